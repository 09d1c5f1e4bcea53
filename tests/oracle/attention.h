// The oracle: attention in two naive passes, in twice the precision, and how far off one may be.
//
// It shares no header with the library that it judges. float32 is computed in double, float64 in
// double-double.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "double_double.h"
#include "dropout.h"

namespace oracle {

/// Element [b, h, i, x] lies at data[b * stride[0] + h * stride[1] + i * stride[2] + x *
/// stride[3]].
template <typename T>
struct View {
  const T* data = nullptr;
  std::array<std::int64_t, 4> stride{};

  T at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t x) const {
    return data[b * stride[0] + h * stride[1] + i * stride[2] + x * stride[3]];
  }
};

/// The precision that judges T.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, DoubleDouble>;

template <typename T>
struct Problem {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, size = 0, value_size = 0;
  View<T> q{}, k{}, v{};

  // Numbers that the library rounds to T before it uses them are rounded here too.
  std::vector<double>
      scale{};  // none: 1 / sqrt(size), or 1 with normalize_qk; one; or one per head
  bool normalize_qk = false;
  std::optional<double> softcap{};
  std::vector<double> alibi{};  // none, or one per head
  View<double> bias{};
  std::function<Wide<T>(Wide<T> t, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>
      score_mod{};
  double score_mod_slope = 1;  // |f(s) - f(t)| <= slope |s - t|
  // For gradients: f', how much it can change, |f'(s) - f'(t)| <= curvature |s - t|, and f itself
  // for complex numbers.
  std::function<Wide<T>(Wide<T> t, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>
      score_mod_derivative{};
  double score_mod_curvature = 0;
  std::function<std::complex<double>(std::complex<double> t, std::int64_t b, std::int64_t h,
                                     std::int64_t i, std::int64_t j)>
      complex_score_mod{};

  bool causal = false;
  std::vector<std::int64_t> query_start{};  // none, one, or one per batch entry; so are the lengths
  std::optional<std::int64_t> left{}, right{};
  std::vector<std::int64_t> key_lengths{}, query_lengths{};
  View<std::uint8_t> keep{}, drop{};

  std::vector<double> sinks{};  // none, or one per head
  Dropout dropout{};
};

/// May query i look at key j? All but what bias and score_mod mask by -inf.
template <typename T>
bool allowed(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);

/// A tensor of results: value[n] + low[n] is the truth, bound[n] how far a float result may be from
/// it. Where the bound is infinite, any value that is not finite will do: an infinity in v meets a
/// weight that may already be 0. For weights that bound marks a masked place in a row of NaN, where
/// 0 will do too.
struct Truth {
  std::vector<double> value, low, bound;
  /// Held against numbers that were rounded to 16 bits afterwards: a small negative one is -0 then.
  bool rounded = false;
  /// Numbers that may be so large may be infinite, of their sign: those that 16 bits do not hold.
  double infinite_from = std::numeric_limits<double>::infinity();

  void resize(std::size_t n);
};

struct Answer {
  Truth o;        // [batch, heads, queries, value_size]
  Truth lse;      // [batch, heads, queries]
  Truth weights;  // [batch, heads, queries, keys], if asked for
  /// Of the weights of keys that are seen: |p - p*| <= relative p* + tiny; infinite where a weight
  /// may be anything.
  std::vector<double> relative;

  std::vector<double> m;  // sum_j P_ij |v_jx|, laid out as o; not finite where o is not
  /// sum_j P_ij A_ij / sum_j P_ij, laid out as lse: kappa without the sink. The largest A where
  /// kappa is that, too; NaN in rows without weights.
  std::vector<double> kappa_of_keys;
};

template <typename T>
Answer attention(const Problem<T>& problem, bool with_weights);

/// Whether some chain of the problem errs by more than its part of the bounds, which end there: in
/// its fixed order, not as somebody has computed it. Told in one_way.cc.
template <typename T>
bool roundings_go_one_way(const Problem<T>& problem);

}  // namespace oracle
