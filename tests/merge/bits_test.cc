// The bits of merged parts never depend on how a call is run, on what else is in it, or on how
// tensors lie: D1, D2 and D4, in every type.
// Method: the same parts twice, every bit compared.
#include <gtest/gtest.h>

#include <limits>

#include "forward/executors.h"
#include "merged.h"
#include "sanitized.h"

namespace heed_test {
namespace {

template <typename T>
using Parts = std::vector<Result<T>>;

/// Results that belong together; in one of them some rows have no key.
template <typename T>
Parts<T> parts_of(const Dims& dims) {
  Parts<T> parts;
  for (std::uint64_t seed = 1; seed < 4; ++seed) parts.push_back(run(plain_call<T>(dims, seed)));
  parts[1].lse.each([&](auto b, auto h, auto i, auto) {
    if (i % 7 == 3) parts[1].lse.at(b, h, i, 0) = -std::numeric_limits<T>::infinity();
  });
  return parts;
}

/// f(parts, type of their outputs) in each type.
template <typename F>
void in_every_type(const Dims& dims, const F& f) {
  f(parts_of<float>(dims), heed::DType::f32);
  f(parts_of<double>(dims), heed::DType::f64);
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    Parts<float> parts = parts_of<float>(dims);
    for (auto& part : parts) part.o = nearest(std::move(part.o), dtype);
    SCOPED_TRACE(heed::name_of(dtype));
    f(parts, dtype);
  }
}

TEST(merge, has_the_same_bits_for_any_threads_and_layout) {
  in_every_type({2, 8, 8, 400, 6, 4, 67}, [](const auto& parts, heed::DType dtype) {
    const Merger merge(parts, dtype);
    const auto one = merge(Layout::bhtd, {.executor = nullptr, .threads = 1});
    for (const int threads : thread_counts()) {
      EXPECT_TRUE(same_bits(merge(Layout::bhtd, {.executor = nullptr, .threads = threads}), one))
          << threads;
    }
    // As each_third does: for memory and steps a third will do. Other builds take all layouts.
    for (int n = 0; n < kLayouts; n += sanitized() ? 3 : 1) {
      const auto layout = static_cast<Layout>(n);
      if (!writable(layout)) continue;  // these hold other numbers
      auto moved = parts;
      for (auto& part : moved) {
        part.o = laid_out(part.o, layout);
        part.lse = laid_out(part.lse, layout);
      }
      EXPECT_TRUE(same_bits(Merger(moved, dtype)(layout), one)) << name_of(layout);
    }
  });
}

// A call takes no more threads than it has work for: here each of them has a share.
TEST(merge, has_the_same_bits_where_64_threads_share) {
  in_every_type({2, 8, 8, 500, 3, 2, 67}, [](const auto& parts, heed::DType dtype) {
    constexpr int kTimes = 11;
    const Merger merge(parts, dtype);
    expect_same_where_64_threads_share(
        [&](const auto& execution) { return merge(Layout::bhtd, execution, kTimes); });
  });
}

template <typename T>
Parts<T> gathered(const Parts<T>& parts, std::size_t axis, const std::vector<std::int64_t>& which) {
  Parts<T> some;
  for (const Result<T>& part : parts) some.push_back(gathered(part, axis, which));
  return some;
}

/// Of some batch entries, heads or rows, alone or in another order, beside those of all.
template <typename T>
void expect_same_in_any_company(const Parts<T>& parts, heed::DType dtype) {
  const Result<T> all = Merger(parts, dtype)();
  const auto expect = [&](std::size_t axis, const std::vector<std::int64_t>& which) {
    EXPECT_TRUE(
        same_bits(Merger(gathered(parts, axis, which), dtype)(), gathered(all, axis, which)))
        << which.size() << " along axis " << axis << " from " << which[0];
  };
  const Shape& shape = parts[0].o.shape;
  for (const std::vector<std::int64_t>& entries :
       {std::vector<std::int64_t>{1}, {1, 0}, {0, 0, 1}, {1, 0, 0, 0, 0, 0, 0, 0}})
    expect(0, entries);
  for (std::int64_t h = 0; h < shape[1]; ++h) expect(1, {h});
  expect(1, {2, 0, 1, 0, 2});
  for (const std::int64_t count : {1, 2, 16, 17, 64, 130})
    for (const std::int64_t first : {0, 1, 63, 64, 95, 129}) {
      if (first + count <= shape[2]) expect(2, range(first, first + count));
    }
  const auto one = [](const auto& of, std::int64_t i) {
    return gathered(gathered(gathered(of, 0, {1}), 1, {2}), 2, {i});
  };
  for (const std::int64_t i : {0, 3, 64, 149})  // row 3 has no key in one of the parts
    EXPECT_TRUE(same_bits(Merger(one(parts, i), dtype)(), one(all, i))) << "row " << i << " alone";
}

TEST(merge, has_the_same_bits_of_rows_heads_and_batch_entries_in_any_company) {
  for (const heed::Isa isa : isas_for_races(runnable_isas())) {
    const Forced forced(isa);
    SCOPED_TRACE(heed::name_of(isa));
    for (const std::int64_t size : {1, 5, 16, 67})
      in_every_type({2, 3, 3, 150, 6, 4, size}, [](const auto& parts, heed::DType dtype) {
        expect_same_in_any_company(parts, dtype);
      });
  }
}

}  // namespace
}  // namespace heed_test
