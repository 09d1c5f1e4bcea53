// The copy task: sequences, a model of two layers, what its heads do.
#include "training/copy_task.h"

#include <algorithm>

namespace heed::training {
namespace {

/// Distances of keys -2 and beyond, -1, 0, 1, 2 and beyond; the second is the token before.
constexpr std::int64_t kDistances = 5, kPrevious = 1;

MultiHeadAttention layer(const CopyOptions& o, std::uint64_t number) {
  return MultiHeadAttention({.d_model = o.d_model,
                             .heads = o.heads,
                             .head_size = o.head_size,
                             .initialisation = {.seed = o.seed * 16 + number}});
}

}  // namespace

CopyBatch draw_copies(const CopyOptions& options, Random& random) {
  CopyBatch batch;
  for (std::int64_t b = 0; b < options.batch; ++b) {
    std::vector<std::int64_t> last(static_cast<std::size_t>(options.vocabulary), kNoTarget);
    const std::size_t first = batch.tokens.size();
    for (std::int64_t i = 0; i < options.length; ++i) {
      const std::int64_t token = random.below(options.vocabulary);
      batch.tokens.push_back(token);
      std::int64_t& seen = last[static_cast<std::size_t>(token)];
      // A token that follows itself would be its own answer.
      const std::int64_t source = seen == kNoTarget || seen + 1 == i ? kNoTarget : seen + 1;
      batch.sources.push_back(source);
      batch.targets.push_back(
          source == kNoTarget ? kNoTarget : batch.tokens[first + static_cast<std::size_t>(source)]);
      seen = i;
    }
  }
  return batch;
}

CopyModel::CopyModel(const CopyOptions& options)
    : options_(options),
      random_(options.seed),
      tokens_(options.vocabulary, options.d_model, 1.0, options.seed * 16 + 3),
      places_(options.length, options.d_model, 1.0, options.seed * 16 + 4),
      attention_{layer(options, 1), layer(options, 2)},
      logits_({.inputs = options.d_model,
               .outputs = options.vocabulary,
               .initialisation = {.seed = options.seed * 16 + 5}}),
      adam_(parameters(), {.rate = options.rate}) {
  const auto count = static_cast<std::size_t>(options_.batch * options_.length);
  const auto size = static_cast<std::size_t>(options_.d_model);
  for (std::size_t n = 0; n < count; ++n) {
    place_.push_back(static_cast<std::int64_t>(n) % options_.length);
  }
  for (auto& x : x_) x.resize(count * size);
  for (auto& y : y_) y.resize(count * size);
  d_x_.resize(count * size);
  d_y_.resize(count * size);
  out_.resize(count * static_cast<std::size_t>(options_.vocabulary));
}

std::vector<Parameter> CopyModel::parameters() {
  std::vector<Parameter> all = prefixed("tokens.", tokens_.parameters());
  append(all, prefixed("places.", places_.parameters()));
  append(all, prefixed("first.", attention_[0].parameters()));
  append(all, prefixed("second.", attention_[1].parameters()));
  append(all, prefixed("logits.", logits_.parameters()));
  return all;
}

AttentionOptions CopyModel::attention_options() const {
  AttentionOptions options{.mask = {.causal = true}};
  if (options_.scale) options.scale = *options_.scale;
  return options;
}

/// x1 = x0 + attention(x0), x2 = x1 + attention(x1), logits of x2; then their gradient in out_.
Loss CopyModel::forward(const CopyBatch& batch) {
  const std::int64_t size = options_.d_model;
  std::fill(x_[0].begin(), x_[0].end(), 0.0F);
  tokens_.add(batch.tokens, x_[0]);
  places_.add(place_, x_[0]);
  for (std::size_t n = 0; n < 2; ++n) {
    attention_[n].forward({.x = rows(x_[n], size)},
                          {.output = rows(y_[n], size), .saved = &saved_[n]}, attention_options());
    for (std::size_t i = 0; i < y_[n].size(); ++i) x_[n + 1][i] = x_[n][i] + y_[n][i];
  }
  logits_.forward(rows(x_[2], size), rows(out_, options_.vocabulary));
  return cross_entropy(out_, batch.targets);
}

void CopyModel::backward(const CopyBatch& batch) {
  const std::int64_t size = options_.d_model;
  logits_.backward(rows(x_[2], size), rows(out_, options_.vocabulary), rows(d_x_, size));
  for (std::size_t n = 2; n-- > 0;) {
    attention_[n].backward({.x = rows(x_[n], size)}, saved_[n], rows(d_x_, size),
                           {.dx = rows(d_y_, size)}, attention_options());
    for (std::size_t i = 0; i < d_y_.size(); ++i) d_x_[i] += d_y_[i];
  }
  tokens_.backward(batch.tokens, d_x_);
  places_.backward(place_, d_x_);
}

Loss CopyModel::train() {
  const CopyBatch batch = draw_copies(options_, random_);
  const Loss loss = forward(batch);
  backward(batch);
  adam_.step();
  return loss;
}

Loss CopyModel::test() {
  last_ = draw_copies(options_, random_);
  return forward(last_);
}

CopyModel::Look CopyModel::look(int layer) const {
  const SavedAttention& saved = saved_[layer];
  const std::int64_t heads = options_.heads, T = options_.length, B = options_.batch;
  const auto headed = [&](const std::vector<float>& of) {
    return view_bthd(of.data(), B, T, heads, options_.head_size);
  };
  const auto rows = static_cast<std::size_t>(B * heads * T);
  std::vector<float> output(rows * static_cast<std::size_t>(options_.head_size)), lse(rows),
      largest(rows), entropy(rows), distance(static_cast<std::size_t>(B * heads * kDistances));
  std::vector<std::int64_t> key(rows);
  const auto seen = [&](auto& of) { return view(of.data(), {B, heads, T}); };
  const RowStatistics statistics{
      .max_weight = seen(largest), .max_weight_key = seen(key), .entropy = seen(entropy)};
  attention_forward(headed(saved.q), headed(saved.k), headed(saved.v),
                    {.output = view(output.data(), {B, heads, T, options_.head_size}),
                     .lse = seen(lse),
                     .statistics = &statistics},
                    attention_options());
  inspect_weights({.q = headed(saved.q), .k = headed(saved.k), .lse = seen(lse)},
                  {.distance_mass = view(distance.data(), {B, heads, kDistances})},
                  attention_options());
  Look look{std::vector<double>(static_cast<std::size_t>(heads)), {}};
  look.induction = look.previous;
  double judged = 0, asked = 0;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto head = static_cast<std::size_t>(h);
      const auto first = static_cast<std::size_t>((b * heads + h) * T);
      const auto previous = static_cast<std::size_t>((b * heads + h) * kDistances + kPrevious);
      look.previous[head] +=
          static_cast<double>(distance[previous]) / static_cast<double>(B * (T - 1));
      for (std::int64_t i = 0; i < T; ++i) {
        const std::size_t row = first + static_cast<std::size_t>(i);
        const std::int64_t source = last_.sources[static_cast<std::size_t>(b * T + i)];
        if (source != kNoTarget) {
          asked += h == 0;
          look.induction[head] += key[row] == source;
        }
        if (i < 7) continue;  // a row of few keys is peaked by nature
        ++judged;
        look.saturation += largest[row] > 0.99F;
        look.entropy_share += entropy_share(static_cast<double>(entropy[row]), i + 1);
      }
    }
  for (double& share : look.induction) share /= asked;
  look.saturation /= judged;
  look.entropy_share /= judged;
  return look;
}

}  // namespace heed::training
