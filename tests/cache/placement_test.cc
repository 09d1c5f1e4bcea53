// Where the tensors lie that a cache and attention against it are given, and a cache's own memory:
// against unreadable pages, ahead and behind; tensors also with heads far apart.
// Method: the same bytes as from ordinary memory; anything read or written outside faults. Keys and
// values of a cache are an allocation each, which this program's operator new gives it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <new>

#include "cached.h"
#include "forward/between_guards.h"
#include "sanitized.h"

namespace {
enum class Guard { none, behind, ahead };
Guard guard = Guard::none;                        // of what is asked for with an alignment
std::map<void*, heed_test::Guarded>& guarded() {  // by this thread alone while there is a guard
  static std::map<void*, heed_test::Guarded> all;
  return all;
}

void* obtain(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (guard == Guard::none)
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
  heed_test::Guarded between(bytes, guard == Guard::behind);
  between.clear();  // what nobody has written is NaN
  memory = between.data();
  guarded().emplace(memory, std::move(between));
  return memory;
}
// Inlined, g++ 12 could take it for free() of what another operator new gave.
[[gnu::noinline]] void give_back(void* memory) noexcept {
  if (guarded().erase(memory) == 0) std::free(memory);
}
}  // namespace

void* operator new(std::size_t bytes, std::align_val_t a) {
  void* const memory = obtain(bytes, static_cast<std::size_t>(a));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  try {
    return obtain(bytes, static_cast<std::size_t>(a));
  } catch (...) {  // no memory for the guards either: the caller says so, and the test fails
    return nullptr;
  }
}
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }

namespace heed_test {
namespace {

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

/// What a call is asked for beside output and lse.
struct Asked {
  bool weights, statistics;
};

/// The outputs of entry 0 alone, without weights, whose rows are longer than those of one sequence.
heed::ForwardOutputs of_the_first(heed::ForwardOutputs outputs, heed::RowStatistics& statistics) {
  outputs.output.shape[0] = outputs.lse.shape[0] = 1;
  outputs.weights = {};
  if (outputs.statistics != nullptr) {
    for (const auto which : kStatistics) (statistics.*which).shape[0] = 1;
    outputs.statistics = &statistics;
  }
  return outputs;
}

/// A cache whose memory ends at an unreadable page, or begins right after one.
heed::KvCache guarded_cache(const heed::KvCacheOptions& options, Guard where) {
  guard = where;
  const std::size_t before = guarded().size();
  heed::KvCache cache(options);
  guard = Guard::none;
  EXPECT_EQ(guarded().size(), before + 2)
      << "keys and values were not asked for as this test has it";
  return cache;
}

/// Puts the keys of two sequences, the second of which is shorter, into a cache, by some rows at a
/// time and by both sequences at once, until it is full, then attends; all tensors of the caller
/// lie where `at` says.
void decode(Memory& at, const Inputs& in, const Dims& d, std::int64_t page_keys, Guard where,
            heed::AttentionOptions options, Asked asked) {
  const std::int64_t lengths[] = {d.keys, d.keys - d.keys / 3};
  const auto pages = [&](std::int64_t keys) { return (keys + page_keys - 1) / page_keys; };
  heed::KvCache cache = guarded_cache({.kv_heads = d.kv_heads,
                                       .head_size = d.size,
                                       .value_size = d.value_size,
                                       .dtype = in.k.dtype,
                                       .pages = pages(lengths[0]) + pages(lengths[1]),
                                       .page_keys = page_keys},
                                      where);
  const heed::SequenceId ids[] = {cache.create(), cache.create()};
  const std::int64_t first = lengths[1] / 2;  // of each, one after another
  for (std::int64_t s = 0; s < 2; ++s) {
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, first / 2}, {first / 2, first}}) {
      cache.append(ids[s], at.input(some_of(in.k, s, begin, end)),
                   at.input(some_of(in.v, s, begin, end)));
    }
  }
  const std::int64_t more = lengths[1] - first;  // of both at once
  heed::ConstTensorView k = some_of(in.k, 0, first, first + more),
                        v = some_of(in.v, 0, first, first + more);
  k.shape[0] = v.shape[0] = 2;
  cache.append(ids, at.input(k), at.input(v));
  if (lengths[1] < lengths[0]) {  // and the rest of the first, as packed sequences
    const std::int32_t offsets[] = {0, static_cast<std::int32_t>(lengths[0] - lengths[1])};
    cache.append({ids, 1}, at.input(some_of(in.k, 0, lengths[1], lengths[0])),
                 at.input(some_of(in.v, 0, lengths[1], lengths[0])),
                 at.input(heed::view(&offsets[0], {2})));
  }
  EXPECT_EQ(cache.free_pages(), 0);
  options = at.options(options);
  const heed::DType dtype = in.q.dtype;
  heed::RowStatistics statistics;
  heed::ForwardOutputs to{.output = at.result(dtype, {d.batch, d.heads, d.queries, d.value_size}),
                          .lse = at.result(wide(dtype), {d.batch, d.heads, d.queries})};
  if (asked.weights) to.weights = at.result(wide(dtype), {d.batch, d.heads, d.queries, d.keys});
  if (asked.statistics) {
    statistics = some_statistics(at, dtype, d);
    to.statistics = &statistics;
  }
  heed::attention_decode(at.input(in.q), cache, ids, to, options,
                         {.executor = nullptr, .threads = 2});
  if (!options.bias.present() && !options.mask.keep.present() && !options.mask.drop.present()) {
    const std::int64_t offsets[] = {0, d.queries};  // the first once more, as a packed sequence
    options.packing.query_offsets = at.input(heed::view(&offsets[0], {2}));
    for (heed::PerBatch* list :
         {&options.mask.query_start, &options.mask.key_lengths, &options.mask.query_lengths}) {
      list->each.shape[0] = 1;
      list->each = at.input(list->each);
    }
    heed::attention_decode(at.input(some_of(in.q, 0, 0, d.queries)), cache, {ids, 1},
                           of_the_first(to, statistics), options);
  }
}

template <typename T>
void expect_same(Elsewhere elsewhere, const Call<T>& s, const Inputs& in, std::int64_t page_keys,
                 Asked asked) {
  const Told<T> told(s);
  int n = 0;  // each kind of memory meets both guards in other calls
  EXPECT_TRUE(same_elsewhere(elsewhere, [&](Memory& at) {
    const Guard where = n++ % 2 == 0 ? Guard::behind : Guard::ahead;
    decode(at, in, s.dims(), page_keys, where, told.options, asked);
  })) << describe(s);
}

/// f(call, page_keys, asked): all sizes with all lengths; maskings, pages and what is asked for in
/// turns.
template <typename T, typename F>
void each_problem(const F& f) {
  constexpr Masking kMasks[] = {Masking::none,  Masking::keep_half, Masking::bias_masking,
                                Masking::alibi, Masking::drop_half, Masking::sinks};
  constexpr std::int64_t kPages[] = {16, 96, 192, 112};
  std::size_t problems = 0;
  for (const std::int64_t size : {1, 3, 5, 8, 17, 33, 64})
    for (const auto& [queries, keys] :
         {std::pair{1, 3}, std::pair{1, 97}, std::pair{3, 20}, std::pair{17, 200},
          std::pair{2, 770}, std::pair{65, 100}, std::pair{2, 768}}) {  // 768 keys fill pages
      const std::size_t n = problems++;
      // One in five has every size, length, masking and page; the release build takes all.
      if (sanitized() && (n + n / 7) % 5 != 0) continue;
      Case c;
      c.dims = {2, 4, n % 3 == 0 ? 4 : 2, queries, keys, size, size == 8 ? 7 : size};
      c.masking = kMasks[(n + n / 7) % std::size(kMasks)];
      c.seed = 75 + n;
      auto s = make<T>(c);
      s.query_start = {};  // rows stand behind the keys, as in a cache
      s.causal = n % 2 == 0;
      if (n % 3 == 2) {  // numbers for each head and each sequence
        s.narrow = n % 2 == 0;
        for (std::int64_t h = 0; h < 4; ++h) s.scale.push_back(0.5 + static_cast<double>(h) / 8);
        s.query_start = {keys - queries, keys / 2};
        s.key_lengths = {keys - 1, keys / 2};
        s.query_lengths = {queries, queries - 1};
      }
      f(s, kPages[n % std::size(kPages)], {.weights = n % 5 == 1, .statistics = n % 5 < 3});
    }
}

template <typename T>
void expect_same_reals(Elsewhere elsewhere) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    each_problem<T>([&](const Call<T>& s, std::int64_t page_keys, Asked asked) {
      expect_same(elsewhere, s, {s.q.view(), s.k.view(), s.v.view()}, page_keys, asked);
    });
  }
}

void expect_same_halves(Elsewhere elsewhere, heed::DType dtype) {
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    each_problem<float>([&](Call<float> s, std::int64_t page_keys, Asked asked) {
      s = nearest(std::move(s), dtype);
      const Halves q(s.q, dtype), k(s.k, dtype), v(s.v, dtype);
      expect_same(elsewhere, s, {q.view(4), k.view(4), v.view(4)}, page_keys, asked);
    });
  }
}

class cache_placement : public testing::TestWithParam<heed::DType> {
 protected:
  static void expect_same_in_type(Elsewhere elsewhere) {
    if (GetParam() == heed::DType::f32) return expect_same_reals<float>(elsewhere);
    if (GetParam() == heed::DType::f64) return expect_same_reals<double>(elsewhere);
    expect_same_halves(elsewhere, GetParam());
  }
};

TEST_P(cache_placement, nothing_beyond_a_tensor_is_touched) {
  expect_same_in_type(Elsewhere::between_guards);
}

TEST_P(cache_placement, heads_may_lie_further_apart_than_32_bits) {  // A20
  expect_same_in_type(Elsewhere::heads_far_apart);
}

INSTANTIATE_TEST_SUITE_P(types, cache_placement, testing::ValuesIn(kFloating),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test
