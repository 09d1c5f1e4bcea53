// The bitwise bases, and the ways in which each is run.
#include "forward/bases.h"

#include <algorithm>
#include <limits>

#include "forward/end_to_end.h"

namespace heed_test {
namespace {

// From the matrix's lists: less than a vector, whole vectors and more, the sizes that models have.
constexpr std::pair<int, int> kSizes[] = {{5, 5},   {8, 8},   {16, 16},   {33, 33},
                                          {64, 64}, {80, 80}, {128, 128}, {192, 128}};
static_assert(std::size(kSizes) == kBaseSizes);

// One row, few and many, around one and two blocks of 96 keys and the split of 768.
constexpr std::pair<int, int> kLengths[] = {{1, 17},   {1, 1024},  {17, 15},  {65, 64},  {95, 96},
                                            {49, 191}, {192, 193}, {17, 767}, {64, 768}, {33, 769}};
static_assert(std::size(kLengths) == kBaseLengths);

// The plan's masks but the packed one, which follows them.
constexpr Masking kBaseMasks[] = {
    Masking::none,          Masking::causal,          Masking::causal_at_end,
    Masking::window_self,   Masking::window_narrow,   Masking::window_causal,
    Masking::keep_half,     Masking::keep_empty_rows, Masking::bias_finite,
    Masking::bias_masking,  Masking::key_lengths,     Masking::alibi,
    Masking::softcap_causal};
static_assert(std::size(kBaseMasks) + 1 == kBaseMaskings);

constexpr int kThreads[] = {1, 2, 3, 4, 7, 8, 16, 64};
/// Of a base: as many threads have work. One of kEverySoMany has work for all that it asks for.
constexpr int kUsualThreads = 8;
constexpr std::size_t kEverySoMany = 8;
constexpr std::size_t kMostEntries = 4096;
constexpr std::int64_t kBatches[] = {1, 2, 3, 8};
constexpr std::int64_t kRows[] = {1, 2, 16, 17, 64, 1000};
constexpr std::int64_t kPaddings[] = {1, 7, 96, 97, 1025};
static_assert(std::size(kThreads) == kBaseThreads);
static_assert(std::size(kThreads) + std::size(kBatches) + std::size(kRows) + std::size(kPaddings) ==
              kComparisons);

constexpr const char* kHidingNames[] = {"length", "keep", "drop", "bias", "window"};
static_assert(std::size(kHidingNames) == kHidings);

/// `more` elements of one value behind each row of keys; axes that broadcast over the keys get all
/// of them.
template <typename T>
Tensor<T> with_more(const Tensor<T>& from, std::int64_t keys, std::int64_t more, T value) {
  if (!from.present()) return from;
  Shape shape = from.shape;
  shape[3] = keys + more;
  Tensor<T> to(shape);
  to.each([&](auto b, auto h, auto i, auto j) {
    to.at(b, h, i, j) = j < keys ? from.at(b, h, i, from.shape[3] == 1 ? 0 : j) : value;
  });
  return to;
}

/// The same of a mask or bias that may not be there, and then changes nothing.
template <typename T>
Tensor<T> with_more(const Tensor<T>& from, std::int64_t keys, std::int64_t more, T value,
                    T neutral) {
  if (from.present()) return with_more(from, keys, more, value);
  Tensor<T> nothing({1, 1, 1, 1});
  nothing.at(0, 0, 0, 0) = neutral;
  return with_more(nothing, keys, more, value);
}

/// The problem's rows among others, which are copies of them with the other sign; row 0 stands
/// `before` rows behind the first.
template <typename T>
Call<T> among_others(Call<T> s, std::int64_t count, std::int64_t before) {
  const std::int64_t own = s.q.shape[2];
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < count; ++i) rows.push_back((i - before + count * own) % own);
  Tensor<T> q({s.q.shape[0], s.q.shape[1], count, s.q.shape[3]});
  q.each([&](auto b, auto h, auto i, auto x) {
    const T value = s.q.at(b, h, rows[static_cast<std::size_t>(i)], x);
    q.at(b, h, i, x) = i < before || i >= before + own ? -value : value;
  });
  s = with_queries(std::move(s), rows, false);
  s.q = q;
  s.query_start = {(s.query_start.empty() ? 0 : s.query_start[0]) - before};
  return s;
}

/// A base with its reference results, and how many comparisons with them there were.
template <typename T>
class Comparisons {
 public:
  Comparisons(const Case& base, heed::DType dtype, std::size_t n)
      : base_(base), dtype_(dtype), n_(n), isas_(isas_of(dtype)), call_(make<T>(base)) {
    if constexpr (std::is_same_v<T, float>) {
      if (dtype != heed::DType::f32) call_ = nearest(std::move(call_), dtype);
    }
    // Dot products of bfloat16 have bits of their own: a reference of their own, too.
    const std::vector<heed::Isa> plain = runnable_isas();
    references_.emplace_back(plain.back(), answered(call_, plain.back(), 1));
    if (isas_.back() == kPaired) references_.emplace_back(kPaired, answered(call_, kPaired, 1));
  }

  Compared all() {
    threads();
    places();
    rows();
    paddings();
    return {count_, busy_};
  }

 private:
  [[nodiscard]] Result<T> answered(const Call<T>& s, heed::Isa isa, int threads) const {
    const Forced forced(isa);
    const heed::Execution execution{.executor = nullptr, .threads = threads};
    if constexpr (std::is_same_v<T, float>) {
      if (dtype_ != heed::DType::f32) return run_half(s, dtype_, {}, execution);
    }
    return run(s, {}, execution);
  }

  /// The call's results on the instruction set whose turn it is, against part(reference).
  template <typename Part>
  void compare(const Call<T>& s, int threads, const std::string& what, const Part& part) {
    std::size_t turn = n_ + count_++;
    if (turn % isas_.size() == 0 && flops(s.dims()) > kMostScalar) ++turn;
    const heed::Isa isa = isas_[turn % isas_.size()];
    Result<T> got = answered(base_.packed ? packed(s) : s, isa, threads);
    if (base_.packed) got = apart(got, s.q.shape[0]);
    const auto& [_, reference] = references_[isa == kPaired ? 1 : 0];
    const auto [left, right] = part(got, reference);
    EXPECT_TRUE(same_bits(left, right))
        << what << " on " << heed::name_of(isa) << ": " << describe(call_);
  }

  /// Each thread wants work of its own, of which the two entries are little: copies of them make
  /// more.
  void threads() {
    std::size_t copies = 1;
    for (const int threads : kThreads) {
      const int wanted = n_ % kEverySoMany == 0 ? threads : std::min(threads, kUsualThreads);
      std::vector<std::int64_t> entries;
      Call<T> call;
      int working = 0;
      for (;; copies *= 2) {
        entries.clear();
        for (std::size_t n = 0; n < 2 * copies; ++n)
          entries.push_back(static_cast<std::int64_t>(n % 2));
        call = with_batch(call_, entries);
        working = working_threads(call, threads);
        if (working >= wanted || entries.size() >= kMostEntries) break;
      }
      busy_ += working >= wanted;
      compare(call, threads, std::to_string(threads) + " threads",
              [&](const auto& got, const auto& all) {
                return std::pair(got, gathered(all, 0, entries));
              });
    }
  }

  [[nodiscard]] int working_threads(const Call<T>& s, int threads) const {
    const Told<T> told(s);
    return heed::explain(s.q.view(s.rank), s.k.view(s.rank), s.v.view(s.rank), told.options,
                         {.executor = nullptr, .threads = threads})
        .threads;
  }

  void places() {
    for (const std::int64_t size : kBatches) {
      const std::int64_t place = random_.below(size);
      std::vector<std::int64_t> entries(static_cast<std::size_t>(size), 0);
      entries[static_cast<std::size_t>(place)] = 1;
      compare(with_batch(call_, entries), 2,
              "place " + std::to_string(place) + " of " + std::to_string(size),
              [place](const auto& got, const auto& all) {
                return std::pair(gathered(got, 0, {place}), gathered(all, 0, {1}));
              });
    }
  }

  void rows() {
    const std::int64_t own = call_.q.shape[2];
    const Call<T> entry = with_batch(call_, {1});
    for (const std::int64_t count : kRows) {
      const std::int64_t first = random_.below(std::abs(own - count) + 1);
      if (count <= own) {
        const auto some = range(first, first + count);
        compare(with_queries(entry, some, true), 1,
                std::to_string(count) + " rows from " + std::to_string(first),
                [&](const auto& got, const auto& all) {
                  return std::pair(got, gathered(gathered(all, 0, {1}), 2, some));
                });
      } else {
        const auto own_rows = range(first, first + own);
        compare(among_others(entry, count, first), 3,
                "rows " + std::to_string(first) + " and on of " + std::to_string(count),
                [&](const auto& got, const auto& all) {
                  return std::pair(gathered(got, 2, own_rows), gathered(all, 0, {1}));
                });
      }
    }
  }

  void paddings() {
    for (std::size_t p = 0; p < std::size(kPaddings); ++p) {
      const auto how = static_cast<Hiding>((n_ + p) % kHidings);
      const auto last = range(call_.q.shape[2] - 1, call_.q.shape[2]);
      compare(with_hidden_keys(call_, kPaddings[p], how), 1,
              std::to_string(kPaddings[p]) + " keys behind, hidden by " +
                  kHidingNames[static_cast<int>(how)],
              [&](const auto& got, const auto& all) {
                return std::pair(got, how == Hiding::window ? gathered(all, 2, last) : all);
              });
    }
  }

  const Case& base_;
  heed::DType dtype_;
  std::size_t n_, count_ = 0, busy_ = 0;
  std::vector<heed::Isa> isas_;
  Call<T> call_;
  Random random_{base_.seed};
  std::vector<std::pair<heed::Isa, Result<T>>> references_;
};

}  // namespace

template <typename T>
Call<T> with_hidden_keys(Call<T> s, std::int64_t more, Hiding how, T large) {
  const T garbage[] = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                       large};
  constexpr std::uint8_t kShown = 1, kHidden = 0;
  const std::int64_t keys = s.k.shape[2];
  if (how == Hiding::window) {
    s = with_queries(s, {s.q.shape[2] - 1}, true);
    const std::int64_t ahead = keys - 1 - s.query_start[0];
    if (ahead < 0)
      how = Hiding::length;
    else
      s.right = std::min(ahead, s.right.value_or(ahead));
  }
  for (Tensor<T>* t : {&s.k, &s.v}) {
    Tensor<T> longer({t->shape[0], t->shape[1], keys + more, t->shape[3]});
    longer.each([&](auto b, auto h, auto j, auto x) {
      longer.at(b, h, j, x) = j < keys ? t->at(b, h, j, x) : garbage[j % 3];
    });
    *t = longer;
  }
  s.keep = how == Hiding::keep ? with_more(s.keep, keys, more, kHidden, kShown)
                               : with_more(s.keep, keys, more, kShown);
  s.drop = how == Hiding::drop ? with_more(s.drop, keys, more, kShown, kHidden)
                               : with_more(s.drop, keys, more, kHidden);
  s.bias = how == Hiding::bias
               ? with_more(s.bias, keys, more, -std::numeric_limits<double>::infinity(), 0.0)
               : with_more(s.bias, keys, more, 0.0);
  if (how == Hiding::length && s.key_lengths.empty()) s.key_lengths = {keys};
  return s;
}

Case masked(Case problem, std::size_t masking) {
  problem.packed = masking == std::size(kBaseMasks);
  problem.masking = problem.packed ? Masking::causal_at_end : kBaseMasks[masking];
  return problem;
}

std::vector<Case> bases_of_size(std::size_t size) {
  std::vector<Case> all;
  for (const auto& [queries, keys] : kLengths)
    for (std::size_t masking = 0; masking < kBaseMaskings; ++masking) {
      const std::size_t n = all.size();
      Case c;
      const int heads = queries > 64 ? 1 : 2;
      c.dims = {
          2, heads, n % 3 == 2 ? heads : 1, queries, keys, kSizes[size].first, kSizes[size].second};
      c.mask_axes = n % 5 == 4 ? 15 : n % 5 == 3 ? 7 : 3;
      c.mask_dtype = n % 2 == 0 ? heed::DType::boolean : heed::DType::u8;
      c.seed = (1000 + size) << 32 | n;
      all.push_back(masked(c, masking));
    }
  return all;
}

Compared compare_base(const Case& base, heed::DType dtype, std::size_t n) {
  if (dtype == heed::DType::f64) return Comparisons<double>(base, dtype, n).all();
  return Comparisons<float>(base, dtype, n).all();
}

#define HEED_INSTANTIATE(T) template Call<T> with_hidden_keys(Call<T>, std::int64_t, Hiding, T);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed_test
