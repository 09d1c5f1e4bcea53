// Where tensors lie: against unreadable pages, at odd addresses, with strides beyond 2^31, on a
// small stack.
// Method: mmap; anything read or written outside faults.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "forward/between_guards.h"
#include "forward/draws.h"

namespace heed_test {
namespace {

template <typename T>
class placement : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(placement, Reals);

/// Every tensor of a call, each in guarded memory of its own.
template <typename T>
void expect_nothing_beyond(const Call<T>& s, bool at_end, const heed::Execution& execution = {},
                           Layout output = Layout::bhtd) {
  GuardedCopies copies(at_end);
  const auto guarded = [&](heed::ConstTensorView view) { return copies.of(view); };
  const Told<T> told(s);
  const heed::AttentionOptions options = placed(told.options, guarded);
  const Result<T> expected = run(s, {.lse = true, .weights = true, .output = output}, execution);
  Result<T> r = expected;  // lends its shapes
  const auto writable = [&](heed::TensorView view) { return copies.of(view); };
  heed::TensorView lse = r.lse.out();
  --lse.rank;
  const heed::ForwardOutputs outputs{writable(r.o.out()), writable(lse), writable(r.weights.out())};
  heed::attention_forward(guarded(s.q.view()), guarded(s.k.view()), guarded(s.v.view()), outputs,
                          options, execution);
  const auto same = [](const heed::TensorView& got, const heed::ConstTensorView& want) {
    bool good = true;
    each_element(got, want, [&](const std::byte* a, const std::byte* b) {
      good = good && std::memcmp(a, b, sizeof(T)) == 0;
    });
    return good;
  };
  EXPECT_TRUE(same(outputs.output, expected.o.view())) << describe(s);
  EXPECT_TRUE(same(outputs.lse, without_last_axis(expected.lse.view()))) << describe(s);
  EXPECT_TRUE(same(outputs.weights, expected.weights.view())) << describe(s);
}

/// Sizes that fill no vector, lengths around blocks and splits, the maskings that read tensors, and
/// layouts.
std::vector<Case> odd_cases() {
  std::vector<Case> all;
  for (const std::int64_t size : {1, 3, 5, 8, 17, 33})
    for (const auto& [queries, keys] : {std::pair{1, 1}, std::pair{3, 5}, std::pair{17, 97},
                                        std::pair{65, 33}, std::pair{2, 770}})
      for (const Masking masking : {Masking::none, Masking::keep_half, Masking::bias_masking,
                                    Masking::key_lengths, Masking::everything}) {
        Case c;
        c.dims = {2, 2, 1, queries, keys, size, size == 8 ? 7 : size};
        c.masking = masking;
        c.seed = 71;
        all.push_back(in_turn(c, all.size()));
      }
  return all;
}

TYPED_TEST(placement, nothing_beyond_a_tensor_is_touched) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const bool at_end : {false, true})
      for (const Case& c : odd_cases())
        expect_nothing_beyond(make<TypeParam>(c), at_end, {}, c.output);
  }
}

/// Numbers for each head and each batch entry, in both of the types that they may have.
TYPED_TEST(placement, nothing_beyond_a_list_is_read) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const bool at_end : {false, true})
      for (const bool narrow : {false, true})
        for (const auto& [queries, keys] : {std::pair{1, 97}, std::pair{17, 33}})
          expect_nothing_beyond(
              with_lists(plain_call<TypeParam>({3, 3, 1, queries, keys, 16, 5}, 77), narrow),
              at_end);
  }
}

/// f(call) on problems whose products have kernels of their own: 1 to 4 rows of a KV head (two
/// tiles of such: 6 and 8), sizes of whole vectors, lengths around a block of 96 keys and a split
/// of 768.
template <typename F>
void each_of_few_rows(const F& f) {
  constexpr Masking kMasks[] = {Masking::none,         Masking::keep_half, Masking::bias_masking,
                                Masking::key_lengths,  Masking::causal,    Masking::everything,
                                Masking::causal_at_end};
  std::uint64_t cases = 0;
  for (const auto& [size, value_size] : {std::pair{16, 16}, std::pair{32, 64}, std::pair{64, 32},
                                         std::pair{128, 128}, std::pair{144, 16}})
    for (const auto& [heads, queries] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{1, 3},
                                         std::pair{2, 2}, std::pair{2, 3}, std::pair{1, 8}})
      for (const int keys : {1, 15, 17, 95, 97, 767, 770, 785}) {
        const std::uint64_t n = cases++;
        if (n % one_in(240) != 0) continue;
        Case c;
        c.dims = {1, heads, 1, queries, keys, size, value_size};
        c.masking = kMasks[n % std::size(kMasks)];
        c.dropout = n % 11 == 10 ? 0.3 : 0;
        c.seed = 75 + n;
        f(make<float>(c));
      }
}

/// One row of a KV head, d a multiple of 32: scores by kernels of their own.
constexpr heed::Execution kByKey{.decode_order = heed::DecodeOrder::key_by_key};

bool has_few_rows(const heed::ConstTensorView& q, const heed::ConstTensorView& k,
                  const heed::ConstTensorView& v, const heed::AttentionOptions& options) {
  return heed::explain(q, k, v, options).path.find("products of few rows") != std::string::npos;
}

TEST(placement_of_few_rows, nothing_beyond_a_tensor_is_touched) {
  std::map<heed::Isa, int> few;
  int sure = 0;
  each_of_few_rows([&](const Call<float>& s) {
    const Told<float> told(s);
    sure += s.dims().heads * s.dims().queries <= 4;
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      few[isa] += has_few_rows(s.q.view(), s.k.view(), s.v.view(), told.options);
      for (const bool at_end : {false, true}) {
        expect_nothing_beyond(s, at_end);
        if (s.dims().queries == 1) expect_nothing_beyond(s, at_end, kByKey);
      }
    }
  });
  // The scalar kernels have none; with vectors all of one tile have, and many of two.
  EXPECT_GT(sure, 0);
  for (const auto& [isa, count] : few) {
    EXPECT_TRUE(isa == heed::Isa::scalar ? count == 0 : count >= sure)
        << heed::name_of(isa) << ": " << count;
  }
}

/// Every tensor of a call in 16 bits, in guarded memory of its own; the bits are those of other
/// memory.
void expect_nothing_beyond_halves(const Call<float>& s, heed::DType dtype,
                                  const heed::Execution& execution = {}) {
  const Dims d = s.dims();
  const Told<float> told(s);
  EXPECT_TRUE(same_elsewhere(Elsewhere::between_guards, [&](Memory& at) {
    heed::attention_forward(
        at.input(s.q, dtype), at.input(s.k, dtype), at.input(s.v, dtype),
        {.output = at.result(dtype, {d.batch, d.heads, d.queries, d.value_size}),
         .lse = at.result(heed::DType::f32, {d.batch, d.heads, d.queries}),
         .weights = at.result(heed::DType::f32, {d.batch, d.heads, d.queries, d.keys})},
        at.options(told.options), execution);
  })) << describe(s);
}

class placement_of_halves : public testing::TestWithParam<heed::DType> {};

TEST_P(placement_of_halves, nothing_beyond_a_tensor_of_few_rows_is_touched) {
  const heed::DType dtype = GetParam();
  std::map<heed::Isa, int> few;
  int sure = 0;
  each_of_few_rows([&](Call<float> s) {
    const Dims d = s.dims();
    sure += d.heads * d.queries <= 4 && d.size % 32 == 0 && d.value_size % 32 == 0;
    s = nearest(std::move(s), dtype);
    const Halves q(s.q, dtype), k(s.k, dtype), v(s.v, dtype);
    const Told<float> told(s);
    for (const heed::Isa isa : isas_of(dtype)) {
      const Forced forced(isa);
      few[isa] += has_few_rows(q.view(4), k.view(4), v.view(4), told.options);
      expect_nothing_beyond_halves(s, dtype);
      if (s.dims().queries == 1) expect_nothing_beyond_halves(s, dtype, kByKey);
    }
  });
  // Pairs of coordinates fill twice as much: three of the five sizes are whole vectors of 16 such.
  EXPECT_GT(sure, 0);
  for (const auto& [isa, count] : few) {
    EXPECT_TRUE(isa == heed::Isa::scalar ? count == 0 : count >= sure)
        << heed::name_of(isa) << ": " << count;
  }
}

TEST_P(placement_of_halves, nothing_beyond_a_tensor_is_touched) {
  const heed::DType dtype = GetParam();
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    std::uint64_t seed = 76;
    for (Case c : odd_cases()) {
      c.seed = seed++;
      const auto s = nearest(make<float>(c, dtype), dtype);
      expect_nothing_beyond_halves(s, dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(types, placement_of_halves,
                         testing::Values(heed::DType::bf16, heed::DType::f16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

TYPED_TEST(placement, any_address_will_do) {  // A28
  using T = TypeParam;
  const auto s = plain_call<T>({1, 2, 1, 19, 110, 7, 9}, 72);
  const auto expected = run(s);
  for (const std::size_t offset : {1U, 2U, 3U, 5U, 7U}) {
    const auto moved = [&](const Tensor<T>& t, std::vector<std::byte>& bytes) {
      bytes.resize(t.memory.size() * sizeof(T) + offset);
      std::memcpy(bytes.data() + offset, t.memory.data(), t.memory.size() * sizeof(T));
      auto view = t.view();
      view.data = bytes.data() + offset;
      return view;
    };
    std::vector<std::byte> q, k, v, o(expected.o.memory.size() * sizeof(T) + offset),
        lse(expected.lse.memory.size() * sizeof(T) + offset);
    heed::TensorView out = Tensor<T>(expected.o).out(), row = Tensor<T>(expected.lse).out();
    out.data = o.data() + offset;
    row.data = lse.data() + offset;
    --row.rank;
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      std::fill(o.begin(), o.end(), std::byte{0xFF});
      std::fill(lse.begin(), lse.end(), std::byte{0xFF});
      heed::attention_forward(moved(s.q, q), moved(s.k, k), moved(s.v, v),
                              {.output = out, .lse = row, .weights = {}});
      const auto bytes_of = [](const Tensor<T>& t) {
        return static_cast<std::size_t>(t.count()) * sizeof(T);
      };
      EXPECT_EQ(std::memcmp(out.data, expected.o.memory.data(), bytes_of(expected.o)), 0);
      EXPECT_EQ(std::memcmp(row.data, expected.lse.memory.data(), bytes_of(expected.lse)), 0);
    }
  }
}

/// Anonymous pages, of which only those take memory that rows are in: strides of 2^32 elements.
TYPED_TEST(placement, strides_beyond_32_bits_are_followed) {  // A20
  using T = TypeParam;
  constexpr std::int64_t kKeys = 3, kSize = 5;
  for (const std::int64_t stride : {(std::int64_t{1} << 31) - 1, (std::int64_t{1} << 31) + 1,
                                    std::int64_t{1} << 32, -((std::int64_t{1} << 31) + 1)}) {
    const std::size_t span =
        static_cast<std::size_t>(std::abs(stride) * (kKeys - 1) + kSize) * sizeof(T) + 4096;
    void* const base = mmap(nullptr, span, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) GTEST_SKIP() << "no address space for " << span << " bytes";
    const auto s = plain_call<T>({1, 1, 1, 4, kKeys, kSize, kSize}, 73);
    T* first = static_cast<T*>(base) + (stride < 0 ? -stride * (kKeys - 1) : 0);
    heed::ConstTensorView far = s.k.view(2);
    far.data = first;
    far.stride[0] = stride;
    for (std::int64_t j = 0; j < kKeys; ++j)
      for (std::int64_t x = 0; x < kSize; ++x) first[j * stride + x] = s.k.at(0, 0, j, x);
    Call<T> same = s;
    same.v = s.k;
    const auto expected = run(same);
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      Tensor<T> o(expected.o.shape);
      heed::attention_forward(s.q.view(2), far, far, {.output = o.out(2)});
      EXPECT_TRUE(same_bits(o, expected.o)) << heed::name_of(isa) << ", stride " << stride;
    }
    munmap(base, span);
  }
}

/// The same of heads, and of every tensor: where a row begins is computed in 64 bits.
TYPED_TEST(placement, heads_may_lie_further_apart_than_32_bits) {
  using T = TypeParam;
  const auto s = plain_call<T>({1, 2, 2, 4, 3, 5, 5}, 74);
  const auto expected = run(s);
  for (const std::int64_t stride :
       {(std::int64_t{1} << 31) + 1, std::int64_t{1} << 32, -((std::int64_t{1} << 31) + 1)}) {
    constexpr std::int64_t kApart = 1024;  // elements, from tensor to tensor
    const std::size_t span = static_cast<std::size_t>(std::abs(stride) + 4 * kApart) * sizeof(T);
    void* const base = mmap(nullptr, span, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) GTEST_SKIP() << "no address space for " << span << " bytes";
    T* next = static_cast<T*>(base) + (stride < 0 ? -stride : 0);
    const auto far = [&](const Tensor<T>& from) {
      Tensor<T> moved = from;  // lends its shape
      moved.stride[1] = stride;
      moved.first = 0;
      heed::TensorView view = moved.out();
      T* const data = next;
      next += kApart;
      view.data = data;
      from.each([&](auto b, auto h, auto i, auto x) {
        data[h * stride + i * from.stride[2] + x] = from.at(b, h, i, x);
      });
      return view;
    };
    const heed::TensorView q = far(s.q), k = far(s.k), v = far(s.v), o = far(s.q);
    T* const result = static_cast<T*>(o.data);
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      heed::attention_forward(q, k, v, {.output = o});
      expected.o.each([&](auto b, auto h, auto i, auto x) {
        T& element = result[h * stride + i * o.stride[2] + x];
        EXPECT_EQ(element, expected.o.at(b, h, i, x))
            << heed::name_of(isa) << ", stride " << stride << ", head " << h << ", row " << i;
        element = 0;  // for the next one to write
      });
    }
    munmap(base, span);
  }
}

TYPED_TEST(placement, a_stack_of_64_kib_is_enough) {  // A27
  const auto s =
      make<TypeParam>({.dims = {1, 2, 1, 130, 900, 40, 24}, .masking = Masking::everything});
  const auto expected = run(s);
  const Told<TypeParam> told(s);
  struct Job {
    const Call<TypeParam>& call;
    Result<TypeParam> result;
    const heed::AttentionOptions& options;
    int threads;
  };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    // The pool's threads have stacks of their own; the caller is one of its workers.
    for (const int threads : {1, 4}) {
      Job job{s, {Tensor<TypeParam>(expected.o.shape), {}, {}}, told.options, threads};
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      ASSERT_EQ(pthread_attr_setstacksize(&attributes, small_stack()), 0);
      pthread_t thread;
      ASSERT_EQ(pthread_create(
                    &thread, &attributes,
                    [](void* context) -> void* {
                      Job& it = *static_cast<Job*>(context);
                      heed::attention_forward(it.call.q.view(), it.call.k.view(), it.call.v.view(),
                                              {.output = it.result.o.out()}, it.options,
                                              {.executor = nullptr, .threads = it.threads});
                      return nullptr;
                    },
                    &job),
                0);
      pthread_join(thread, nullptr);
      pthread_attr_destroy(&attributes);
      EXPECT_TRUE(same_bits(job.result.o, expected.o))
          << heed::name_of(isa) << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace heed_test
