// The model that train_text has trained writes on, with a cache of keys and values: each token is
// one row. The same text comes from a contiguous cache, from pages, and from computing everything
// anew each time.
//
//     example_train_text model.safetensors --steps 1000
//     example_generate model.safetensors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "training/character_model.h"

namespace {

namespace training = heed::training;
using Rows = std::vector<float>;

constexpr const char* kUsage =
    "example_generate [MODEL.safetensors]  that example_train_text has trained "
    "(model.safetensors)\n";

/// One layer of the model, its parameters read from the checkpoint.
struct Layer {
  Layer(const heed::TensorFile& file, const std::string& name, const training::CharacterOptions& o)
      : before_attention(o.d_model),
        before_map(o.d_model),
        w_q({.inputs = o.d_model, .outputs = o.d_model}),
        w_k({.inputs = o.d_model, .outputs = o.d_model}),
        w_v({.inputs = o.d_model, .outputs = o.d_model}),
        w_o({.inputs = o.d_model, .outputs = o.d_model}),
        up({.inputs = o.d_model, .outputs = 4 * o.d_model, .bias = true}),
        down({.inputs = 4 * o.d_model, .outputs = o.d_model, .bias = true}) {
    heed::get_parameters(file, before_attention.parameters(),
                         {.prefix = name + "before_attention."});
    heed::get_parameters(file, before_map.parameters(), {.prefix = name + "before_map."});
    heed::get_parameters(file, up.parameters(), {.prefix = name + "up."});
    heed::get_parameters(file, down.parameters(), {.prefix = name + "down."});
    std::vector<heed::Parameter> attention;
    for (const auto& [as, linear] :
         {std::pair{"W_q", &w_q}, {"W_k", &w_k}, {"W_v", &w_v}, {"W_o", &w_o}}) {
      attention.push_back(linear->parameters()[0]);
      attention.back().name = as;
    }
    heed::get_parameters(file, attention, {.prefix = name + "attention."});
  }

  training::LayerNorm before_attention, before_map;
  heed::Linear w_q, w_k, w_v, w_o, up, down;
};

/// y = W x + b for each row.
Rows through(const heed::Linear& linear, const Rows& x) {
  const auto rows = static_cast<std::int64_t>(x.size()) / linear.inputs();
  Rows y(static_cast<std::size_t>(rows * linear.outputs()));
  linear.forward(heed::view(x.data(), {rows, linear.inputs()}),
                 heed::view(y.data(), {rows, linear.outputs()}));
  return y;
}

Rows normalised(const training::LayerNorm& norm, const Rows& x) {
  Rows y(x.size());
  norm.forward(x, y);
  return y;
}

void add(Rows& to, const Rows& more) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

class Decoder {
 public:
  Decoder(const heed::TensorFile& file, const training::CharacterModel& model,
          std::int64_t page_keys)
      : o_(model.options()),
        tokens_(std::ssize(model.vocabulary()), o_.d_model, 0, 1),
        places_(o_.context, o_.d_model, 0, 1),
        last_(o_.d_model),
        logits_({.inputs = o_.d_model, .outputs = std::ssize(model.vocabulary())}) {
    heed::get_parameters(file, tokens_.parameters(), {.prefix = "tokens."});
    heed::get_parameters(file, places_.parameters(), {.prefix = "places."});
    heed::get_parameters(file, last_.parameters(), {.prefix = "last."});
    heed::get_parameters(file, logits_.parameters(), {.prefix = "logits."});
    for (std::int64_t n = 0; n < o_.layers; ++n) {
      layers_.emplace_back(file, "layers." + std::to_string(n) + ".", o_);
      caches_.emplace_back(heed::KvCacheOptions{
          .kv_heads = o_.heads,
          .head_size = o_.d_model / o_.heads,
          .pages = (o_.context + page_keys - 1) / page_keys,
          .page_keys = page_keys,
      });
      sequences_.push_back(caches_.back().create());
    }
  }

  /// Logits after some more tokens: all of a prompt, or one.
  Rows after(std::span<const std::int64_t> tokens) {
    const auto count = std::ssize(tokens);
    std::vector<std::int64_t> place;
    for (std::int64_t n = 0; n < count; ++n) place.push_back(length_ + n);
    length_ += count;
    Rows x(static_cast<std::size_t>(count * o_.d_model));
    tokens_.add(tokens, x);
    places_.add(place, x);
    for (std::size_t n = 0; n < layers_.size(); ++n) layer(n, count, x);
    return through(logits_, normalised(last_, Rows(x.end() - o_.d_model, x.end())));
  }

 private:
  void layer(std::size_t n, std::int64_t count, Rows& x) {
    Layer& l = layers_[n];
    const Rows normal = normalised(l.before_attention, x);
    const Rows q = through(l.w_q, normal), k = through(l.w_k, normal), v = through(l.w_v, normal);
    const auto heads = [&](auto* data) {
      return heed::view_bthd(data, 1, count, o_.heads, o_.d_model / o_.heads);
    };
    Rows attended(x.size());
    caches_[n].append(sequences_[n], heads(k.data()), heads(v.data()));
    heed::attention_decode(heads(q.data()), caches_[n], {&sequences_[n], 1},
                           {.output = heads(attended.data())}, {.mask = {.causal = true}});
    add(x, through(l.w_o, attended));
    Rows wide = through(l.up, normalised(l.before_map, x));
    for (float& h : wide) h = std::max(h, 0.0F);
    add(x, through(l.down, wide));
  }

  training::CharacterOptions o_;
  training::Embedding tokens_, places_;
  training::LayerNorm last_;
  heed::Linear logits_;
  std::vector<Layer> layers_;
  std::vector<heed::KvCache> caches_;  // of each layer
  std::vector<heed::SequenceId> sequences_;
  std::int64_t length_ = 0;
};

constexpr double kTemperature = 0.7;
constexpr std::uint64_t kSeed = 1;

std::vector<std::int64_t> generated(Decoder decoder, std::vector<std::int64_t> tokens, int count) {
  training::Random random(kSeed);
  std::span<const std::int64_t> next = tokens;
  for (int n = 0; n < count; ++n) {
    tokens.push_back(training::drawn_token(decoder.after(next), kTemperature, random));
    next = std::span(tokens).last(1);
  }
  return tokens;
}

template <typename Write>
std::vector<std::int64_t> timed(const char* how, int count, const Write& write) {
  const auto begin = std::chrono::steady_clock::now();
  auto tokens = write();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%-18s %8.0f tokens/s\n", how, count / seconds.count());
  return tokens;
}

}  // namespace

int main(int words, char** word) try {
  const std::string checkpoint = words > 1 ? word[1] : "model.safetensors";
  if (checkpoint == "--help" || checkpoint == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (words > 2) throw heed::Error(std::string("unexpected argument '") + word[2] + "'");
  training::CharacterModel model = training::CharacterModel::load(checkpoint);
  const heed::TensorFile file = heed::read_tensors(checkpoint);
  const std::vector<std::int64_t> prompt = training::tokens_of(
      model.vocabulary().substr(model.vocabulary().size() / 2, 8), model.vocabulary());
  // Places were learnt up to the context's length: there the text ends.
  const auto count = static_cast<int>(model.options().context - std::ssize(prompt));
  const auto anew = timed("everything anew", count,
                          [&] { return model.continued(prompt, count, kTemperature, kSeed); });
  const auto whole = timed("contiguous cache", count, [&] {
    return generated(Decoder(file, model, (model.options().context + 15) / 16 * 16), prompt, count);
  });
  const auto paged = timed("pages of 16 keys", count,
                           [&] { return generated(Decoder(file, model, 16), prompt, count); });
  std::string text;
  for (const std::int64_t token : paged)
    text += model.vocabulary()[static_cast<std::size_t>(token)];
  std::printf("--- %s ---\n%s\n", anew == whole && whole == paged ? "the same text" : "they differ",
              text.c_str());
  return anew == whole && whole == paged ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "generate: %s\n", error.what());
  return 1;
}
