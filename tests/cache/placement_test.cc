// Where the tensors lie that a cache and attention against it are given: against unreadable pages, ahead and
// behind. Method: the same bytes as from ordinary memory; anything read or written outside faults.
// (The own memory of a cache is an allocation for keys and one for values: AddressSanitizer watches them.)
#include <gtest/gtest.h>

#include <cstring>

#include "cached.h"
#include "forward/guarded.h"
#include "forward/half.h"

namespace heed_test {
namespace {

/// Outputs of a call, dense, all of it 0xFF at first.
struct Outputs {
  std::vector<std::byte> o, lse, weights;
  heed::ForwardOutputs views;

  Outputs(const Dims& d, heed::DType dtype, bool with_weights) {
    const heed::DType wide = dtype == heed::DType::f64 ? dtype : heed::DType::f32;
    const auto made = [](std::vector<std::byte>& bytes, heed::DType type,
                         std::initializer_list<std::int64_t> shape) {
      std::size_t size = heed::size_of(type);
      for (const std::int64_t n : shape) size *= static_cast<std::size_t>(n);
      bytes.assign(size, std::byte{0xFF});
      void* const data = bytes.data();
      return heed::view(data, type, shape);
    };
    views.output = made(o, dtype, {d.batch, d.heads, d.queries, d.value_size});
    views.lse = made(lse, wide, {d.batch, d.heads, d.queries});
    if (with_weights) views.weights = made(weights, wide, {d.batch, d.heads, d.queries, d.keys});
  }
};

struct Inputs {
  heed::ConstTensorView q, k, v;
};

/// Rows begin .. end - 1 of entry b of a view [B, H, T, X].
heed::ConstTensorView some_of(heed::ConstTensorView view, std::int64_t b, std::int64_t begin,
                              std::int64_t end) {
  const std::int64_t elements = b * view.stride[0] + begin * view.stride[2];
  view.data = static_cast<const std::byte*>(view.data) +
              elements * static_cast<std::int64_t>(heed::size_of(view.dtype));
  view.shape[0] = 1;
  view.shape[2] = end - begin;
  return view;
}

/// Puts the keys of two sequences, the second of which is shorter, into a cache, by some rows at a time and
/// by both sequences at once, then attends; place(view) is where a tensor of the caller lies.
template <typename Place>
heed::ForwardOutputs decoded(const Inputs& in, const Dims& d, std::int64_t page_keys,
                             heed::AttentionOptions options, const heed::ForwardOutputs& outputs,
                             const Place& place) {
  const std::int64_t lengths[] = {d.keys, d.keys - d.keys / 3};
  heed::KvCache cache({.kv_heads = d.kv_heads,
                       .head_size = d.size,
                       .value_size = d.value_size,
                       .dtype = in.k.dtype,
                       .pages = 2 * (d.keys / page_keys + 1),
                       .page_keys = page_keys});
  const heed::SequenceId ids[] = {cache.create(), cache.create()};
  const std::int64_t first = lengths[1] / 2;  // of each, one after another
  for (std::int64_t s = 0; s < 2; ++s) {
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, first / 2}, {first / 2, first}}) {
      cache.append(ids[s], place(some_of(in.k, s, begin, end)),
                   place(some_of(in.v, s, begin, end)));
    }
  }
  const std::int64_t more = lengths[1] - first;  // of both at once
  heed::ConstTensorView k = some_of(in.k, 0, first, first + more),
                        v = some_of(in.v, 0, first, first + more);
  k.shape[0] = v.shape[0] = 2;
  cache.append(ids, place(k), place(v));
  if (lengths[1] < lengths[0]) {  // and the rest of the first, as packed sequences
    const std::int32_t offsets[] = {0, static_cast<std::int32_t>(lengths[0] - lengths[1])};
    cache.append({ids, 1}, place(some_of(in.k, 0, lengths[1], lengths[0])),
                 place(some_of(in.v, 0, lengths[1], lengths[0])),
                 place(heed::ConstTensorView(heed::view(&offsets[0], {2}))));
  }
  options = placed(options, place);
  const heed::ForwardOutputs to{place(outputs.output), place(outputs.lse), place(outputs.weights)};
  heed::attention_decode(place(in.q), cache, ids, to, options, {.executor = nullptr, .threads = 2});
  if (!options.bias.present() && !options.mask.keep.present() && !options.mask.drop.present()) {
    const std::int64_t offsets[] = {0, d.queries};  // the first once more, as a packed sequence
    options.packing.query_offsets = place(heed::ConstTensorView(heed::view(&offsets[0], {2})));
    for (heed::PerBatch* list :
         {&options.mask.query_start, &options.mask.key_lengths, &options.mask.query_lengths}) {
      list->each.shape[0] = 1;
      list->each = place(list->each);
    }
    heed::ForwardOutputs own = to;
    own.output.shape[0] = own.lse.shape[0] = 1;
    own.weights = {};
    heed::attention_decode(place(some_of(in.q, 0, 0, d.queries)), cache, {ids, 1}, own, options);
  }
  return to;
}

template <typename T>
void expect_nothing_beyond(const Call<T>& s, const Inputs& in, std::int64_t page_keys, bool at_end,
                           bool weights) {
  const Dims d = s.dims();
  const Told<T> told(s);
  Outputs expected(d, in.q.dtype, weights), moved(d, in.q.dtype, weights);
  (void)decoded(in, d, page_keys, told.options, expected.views, [](auto view) { return view; });
  GuardedCopies copies(at_end);
  const heed::ForwardOutputs got = decoded(in, d, page_keys, told.options, moved.views,
                                           [&](auto view) { return copies.of(view); });
  const auto same = [](const heed::TensorView& view, const std::vector<std::byte>& bytes) {
    return bytes.empty() || std::memcmp(view.data, bytes.data(), bytes.size()) == 0;
  };
  EXPECT_TRUE(same(got.output, expected.o)) << describe(s);
  EXPECT_TRUE(same(got.lse, expected.lse)) << describe(s);
  EXPECT_TRUE(same(got.weights, expected.weights)) << describe(s);
}

/// f(call, page_keys, at_end, weights): all sizes with all lengths, maskings and pages in turns.
template <typename T, typename F>
void each_problem(const F& f) {
  constexpr Masking kMasks[] = {Masking::none,  Masking::keep_half, Masking::bias_masking,
                                Masking::alibi, Masking::drop_half, Masking::sinks};
  constexpr std::int64_t kPages[] = {16, 96, 192, 112};
  std::size_t n = 0;
  for (const bool at_end : {false, true})
    for (const std::int64_t size : {1, 3, 5, 8, 17, 33, 64})
      for (const auto& [queries, keys] :
           {std::pair{1, 3}, std::pair{1, 97}, std::pair{3, 20}, std::pair{17, 200},
            std::pair{2, 770}, std::pair{65, 100}}) {
        Case c;
        c.dims = {2, 4, n % 3 == 0 ? 4 : 2, queries, keys, size, size == 8 ? 7 : size};
        c.masking = kMasks[(n + n / 6) % std::size(kMasks)];
        c.seed = 75 + n;
        auto s = make<T>(c);
        s.query_start = {};  // rows stand behind the keys, as in a cache
        s.causal = n % 2 == 0;
        // Dense copies: a view may reach to its last element and no further.
        if (s.keep.present()) s.keep = laid_out(s.keep, Layout::bhtd);
        if (s.drop.present()) s.drop = laid_out(s.drop, Layout::bhtd);
        if (s.bias.present()) s.bias = laid_out(s.bias, Layout::bhtd);
        if (n % 3 == 2) {  // numbers for each head and each sequence
          s.narrow = n % 2 == 0;
          for (std::int64_t h = 0; h < 4; ++h) s.scale.push_back(0.5 + static_cast<double>(h) / 8);
          s.query_start = {keys - queries, keys / 2};
          s.key_lengths = {keys - 1, keys / 2};
          s.query_lengths = {queries, queries - 1};
        }
        f(s, kPages[n % std::size(kPages)], at_end, n % 5 == 1);
        ++n;
      }
}

template <typename T>
void expect_nothing_beyond_reals() {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    each_problem<T>([](const Call<T>& s, std::int64_t page_keys, bool at_end, bool weights) {
      expect_nothing_beyond(s, {s.q.view(), s.k.view(), s.v.view()}, page_keys, at_end, weights);
    });
  }
}

void expect_nothing_beyond_halves(heed::DType dtype) {
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    each_problem<float>([&](Call<float> s, std::int64_t page_keys, bool at_end, bool weights) {
      s = nearest(std::move(s), dtype);
      const Halves q(s.q, dtype), k(s.k, dtype), v(s.v, dtype);
      expect_nothing_beyond(s, {q.view(4), k.view(4), v.view(4)}, page_keys, at_end, weights);
    });
  }
}

TEST(cache_placement, nothing_beyond_a_tensor_is_touched_in_float32) {
  expect_nothing_beyond_reals<float>();
}
TEST(cache_placement, nothing_beyond_a_tensor_is_touched_in_float64) {
  expect_nothing_beyond_reals<double>();
}
TEST(cache_placement, nothing_beyond_a_tensor_is_touched_in_float16) {
  expect_nothing_beyond_halves(heed::DType::f16);
}
TEST(cache_placement, nothing_beyond_a_tensor_is_touched_in_bfloat16) {
  expect_nothing_beyond_halves(heed::DType::bf16);
}

}  // namespace
}  // namespace heed_test
