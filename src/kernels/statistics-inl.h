// What the rows of a tile look like, counted on the way: sums beside the softmax's state.

#if defined(HEED_KERNELS_STATISTICS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_STATISTICS_INL_H_
#undef HEED_KERNELS_STATISTICS_INL_H_
#else
#define HEED_KERNELS_STATISTICS_INL_H_
#endif

#include "kernels/kernels.h"
#include "kernels/math-inl.h"
#include "kernels/products-inl.h"
#include "kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// count, mean and sum of squared deviations of two sets become those of both (Chan, Golub, LeVeque
/// 1979), a set without members changing nothing. A mean that has overflowed stays: its deviations
/// have, too.
template <typename D, typename V>
HWY_INLINE void join_moments(D d, V& count, V& mean, V& deviations, V count2, V mean2,
                             V deviations2) {
  const V both = hn::Add(count, count2);
  const V share = hn::Div(count2, hn::Max(hn::Set(d, hn::TFromD<D>{1}), both));
  // 0 beside a set without members, and from infinity on: no share of 0 of it, and no distance to
  // another one, is a number.
  const auto alone = hn::Or(hn::Eq(count, hn::Zero(d)), hn::Eq(count2, hn::Zero(d)));
  const V apart = hn::IfThenZeroElse(hn::Or(alone, hn::IsInf(mean)), hn::Sub(mean2, mean));
  mean = hn::IfThenElse(hn::Eq(count, hn::Zero(d)), mean2, fma(d, apart, share, mean));
  deviations =
      fma(d, hn::Mul(hn::Mul(count, share), apart), apart, hn::Add(deviations, deviations2));
  count = both;
}

/// Count, mean and deviations of one vector of rows, a score of -inf being no score: masked, or of
/// no account. seen: keys that each row may see.
template <typename Real>
HWY_INLINE void moments_with_gaps(const Real* s, int keys, int width, const std::uint64_t* visible,
                                  int n, Vec<Real>& count, Vec<Real>& mean, Vec<Real>& deviations,
                                  Vec<Real>& seen) {
  const Tag<Real> d;
  const auto one = hn::Set(d, Real{1});
  const auto lowest = hn::Set(d, -kInf<Real>);
  auto sum = hn::Zero(d);
  count = seen = deviations = hn::Zero(d);
  for (int j = keys; j-- > 0;) {  // downwards, as where there are no gaps
    const auto t = hn::LoadU(d, s + j * width);
    const auto counts = hn::Not(hn::Eq(t, lowest));  // Ne would leave out NaN
    sum = hn::Add(sum, hn::IfThenElseZero(counts, t));
    count = hn::Add(count, hn::IfThenElseZero(counts, one));
    const auto may = visible == nullptr ? hn::Eq(one, one) : mask_of<Real>(visible[j], n);
    seen = hn::Add(seen, hn::IfThenElseZero(may, one));
  }
  mean = hn::Div(sum, hn::Max(one, count));
  for (int j = 0; j < keys; ++j) {
    const auto t = hn::LoadU(d, s + j * width);
    const auto apart = hn::IfThenElse(hn::Eq(t, lowest), hn::Zero(d), hn::Sub(t, mean));
    deviations = fma(d, apart, apart, deviations);
  }
}

template <int Vectors, typename Real>
HWY_INLINE void observe_tile(const Real* s, int keys, const std::uint64_t* visible,
                             const Real* highest, RowSums<Real>& sums, Real* seen, Real* first) {
  const Tag<Real> d;
  constexpr int kL = kLanes<Real>;
  constexpr int kWidth = Vectors * kL;
  const auto all_keys = hn::Set(d, static_cast<Real>(keys));
  Vec<Real> top[Vectors], key[Vectors], sum[Vectors], mean[Vectors], deviations[Vectors];
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    top[n] = hn::LoadU(d, highest + n * kL);
    key[n] = sum[n] = deviations[n] = hn::Zero(d);
  }
  for (int j = keys; j-- > 0;) {  // downwards: the lowest key stays
    const auto index = hn::Set(d, static_cast<Real>(j));
#pragma GCC unroll 4
    for (int n = 0; n < Vectors; ++n) {
      const auto t = hn::LoadU(d, s + j * kWidth + n * kL);
      key[n] = hn::IfThenElse(hn::Eq(t, top[n]), index, key[n]);
      sum[n] = hn::Add(sum[n], t);
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) mean[n] = hn::Div(sum[n], all_keys);
  for (int j = 0; j < keys; ++j) {
#pragma GCC unroll 4
    for (int n = 0; n < Vectors; ++n) {
      const auto apart = hn::Sub(hn::LoadU(d, s + j * kWidth + n * kL), mean[n]);
      deviations[n] = fma(d, apart, apart, deviations[n]);
    }
  }
  for (int n = 0; n < Vectors; ++n) {
    auto count = all_keys, may_see = all_keys;
    // a sum of NaN or -inf: a score that must not count may be among them
    if (visible != nullptr || !hn::AllTrue(d, hn::Gt(sum[n], hn::Set(d, -kInf<Real>)))) {
      moments_with_gaps(s + n * kL, keys, kWidth, visible, n, count, mean[n], deviations[n],
                        may_see);
    }
    hn::StoreU(may_see, d, seen + n * kL);
    hn::StoreU(key[n], d, first + n * kL);
    auto all = hn::LoadU(d, sums.count + n * kL), all_mean = hn::LoadU(d, sums.mean + n * kL),
         all_deviations = hn::LoadU(d, sums.deviations + n * kL);
    join_moments(d, all, all_mean, all_deviations, count, mean[n], deviations[n]);
    hn::StoreU(all, d, sums.count + n * kL);
    hn::StoreU(all_mean, d, sums.mean + n * kL);
    hn::StoreU(all_deviations, d, sums.deviations + n * kL);
  }
}

template <typename Real>
void observe(const Real* s, int keys, int vectors, const std::uint64_t* visible,
             const Real* highest, RowSums<Real>& sums, Real* seen, Real* first) noexcept {
  with_vectors(vectors, [&](auto n) HWY_ATTR {
    observe_tile<decltype(n)::value>(s, keys, visible, highest, sums, seen, first);
  });
}

template <typename Real>
void merge_sums(const Real* m, const Real* l, RowSums<Real>& sums, const Real* m2, const Real* l2,
                const RowSums<Real>& sums2, int vectors) noexcept {
  const Tag<Real> d;
  for (int lane = 0; lane < vectors * kLanes<Real>; lane += kLanes<Real>) {
    const auto m1 = hn::LoadU(d, m + lane);
    const auto other = hn::LoadU(d, m2 + lane);
    const auto r = reference_of(d, running_max(m1, other));
    const auto w = exp2_nonpositive(d, hn::Sub(m1, r));
    const auto z = exp2_nonpositive(d, hn::Sub(other, r));
    auto u = hn::LoadU(d, sums.u + lane), squares = hn::LoadU(d, sums.squares + lane),
         cubes = hn::LoadU(d, sums.cubes + lane);
    auto u2 = hn::LoadU(d, sums2.u + lane), squares2 = hn::LoadU(d, sums2.squares + lane),
         cubes2 = hn::LoadU(d, sums2.cubes + lane);
    move_sums(d, m1, hn::LoadU(d, l + lane), r, w, u, squares, cubes);
    move_sums(d, other, hn::LoadU(d, l2 + lane), r, z, u2, squares2, cubes2);
    hn::StoreU(hn::Add(u, u2), d, sums.u + lane);
    hn::StoreU(hn::Add(squares, squares2), d, sums.squares + lane);
    hn::StoreU(hn::Add(cubes, cubes2), d, sums.cubes + lane);
    auto count = hn::LoadU(d, sums.count + lane), mean = hn::LoadU(d, sums.mean + lane),
         deviations = hn::LoadU(d, sums.deviations + lane);
    join_moments(d, count, mean, deviations, hn::LoadU(d, sums2.count + lane),
                 hn::LoadU(d, sums2.mean + lane), hn::LoadU(d, sums2.deviations + lane));
    hn::StoreU(count, d, sums.count + lane);
    hn::StoreU(mean, d, sums.mean + lane);
    hn::StoreU(deviations, d, sums.deviations + lane);
  }
}

// With f = 2^(m - total_m) / total_l, a weight is f 2^x, and the sums over all keys are
//   entropy = -ln2 f (U + l log2 f),  sum p^2 = f^2 sum 2^2x,  sum p^3 = f^3 sum 2^3x
//   |diag(p) - p p'|^2 = sum p^2 - 2 sum p^3 + (sum p^2)^2
template <typename Real>
void finish_sums(const Real* m, const Real* l, const RowSums<Real>& sums, const Real* total_m,
                 const Real* total_l, int vectors, RowNumbers<Real>& out) noexcept {
  const Tag<Real> d;
  const auto ln2 = hn::Set(d, kLn2<Real>);
  const auto zero = hn::Zero(d);
  for (int lane = 0; lane < vectors * kLanes<Real>; lane += kLanes<Real>) {
    const auto highest = hn::LoadU(d, m + lane);
    const auto sum = hn::LoadU(d, l + lane);
    const auto all = hn::LoadU(d, total_l + lane);
    const auto none = hn::Eq(sum, zero);
    const auto reference = reference_of(d, hn::LoadU(d, total_m + lane));
    const auto below = max_keep_nan(d, hn::Set(d, -kFar<Real>), hn::Sub(highest, reference));
    const auto f = hn::Div(exp2_nonpositive(d, below), all);
    const auto log2_f = hn::Sub(below, log2_positive(d, all));
    const auto ff = hn::Mul(f, f);
    const auto squares = hn::Mul(hn::LoadU(d, sums.squares + lane), ff);
    const auto cubes = hn::Mul(hn::LoadU(d, sums.cubes + lane), hn::Mul(ff, f));
    const auto bits = hn::Mul(f, fma(d, sum, log2_f, hn::LoadU(d, sums.u + lane)));
    const auto norm2 = fma(d, squares, squares, fma(d, hn::Set(d, Real{-2}), cubes, squares));
    const auto count = hn::Max(hn::Set(d, Real{1}), hn::LoadU(d, sums.count + lane));
    const auto variance = hn::Div(hn::LoadU(d, sums.deviations + lane), count);
    const auto store = [&](auto value, Real* to) HWY_ATTR {
      hn::StoreU(hn::IfThenElse(none, zero, value), d, to + lane);
    };
    // The running maximum may have dropped a NaN and the mean may be infinite: the sum of all
    // tells. Of zeros of both signs the maximum may have kept either, and a mean below the least
    // number is -0 until a set without members joins it: + 0 makes them one.
    const auto is_number = hn::Or(none, hn::Eq(all, all));
    const auto number = [&](auto value) HWY_ATTR { return hn::IfThenElse(is_number, value, all); };
    const auto natural = [&](auto score) HWY_ATTR { return hn::Add(hn::Mul(score, ln2), zero); };
    hn::StoreU(number(natural(highest)), d, out.max_score + lane);
    store(f, out.max_weight);
    store(max_keep_nan(d, zero, hn::Mul(hn::Sub(zero, bits), ln2)), out.entropy);
    store(number(natural(hn::LoadU(d, sums.mean + lane))), out.score_mean);
    store(number(hn::Mul(hn::Mul(variance, ln2), ln2)), out.score_variance);
    store(squares, out.sum_squared_weights);
    store(cubes, out.sum_cubed_weights);
    store(hn::Sqrt(max_keep_nan(d, zero, norm2)), out.jacobian_norm);
  }
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
