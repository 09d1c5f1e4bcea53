// The case matrix of the forward pass: which problems there are, and how one is made from its name.
#pragma once

#include <initializer_list>
#include <vector>

#include "forward/call.h"

namespace heed_test {

/// What restricts or changes the scores of a case.
enum class Masking {
  none,
  causal,
  causal_at_end,  // query_start = n_k - n_q
  window_self,    // window(0, 0)
  window_narrow,  // window(3, 2)
  window_causal,  // the last 128 keys
  keep_half,
  keep_empty_rows,
  drop_half,
  bias_finite,
  bias_masking,  // some of it -inf
  key_lengths,
  query_lengths,
  alibi,
  softcap_causal,
  sinks,
  normalized,
  score_mod,
  everything,
};
inline constexpr int kMaskings = 19;

/// What the elements of q, k and v are.
enum class Values {
  normal,
  sharp,       // scores of about 16
  very_sharp,  // about 256
  one_signed,  // q, k, v in [0, 1)
  v_one_signed,
  v_constant,  // 0.1
  q_zero,
  k_equal_rows,
  offset,         // 100 + normal in q and k
  signed_zeros,   // half of v
  v_alternating,  // +-1000, so that o is near 0
  tiny,           // 1e-20, in float16 2^-12
  subnormal,      // q and k, of the type
  v_large,        // 1e30, in float16 2^12
  integers,       // ties
  not_a_number,   // one element of each of q, k, v
  v_infinite,     // some of v
  rising,         // scores rise with the key
};
inline constexpr int kValues = 18;

enum class Scaling { usual, zero, negative, huge, tiny, one, per_head };
inline constexpr int kScalings = 7;

struct Case {
  Dims dims;
  Masking masking = Masking::none;
  Values values = Values::normal;
  Scaling scaling = Scaling::usual;
  Layout q = Layout::bhtd, k = Layout::bhtd, v = Layout::bhtd, output = Layout::bhtd;
  int mask_axes = 15;  // bit 3 - a set: axis a of keep, drop and bias has its full length
  heed::DType mask_dtype = heed::DType::boolean, bias_dtype = heed::DType::f32;
  double dropout = 0;
  std::uint64_t seed = 0;
  /// The entries of the batch are sequences, laid end to end. Keep, drop and bias must broadcast
  /// over entries and rows, and weights cannot be asked for.
  bool packed = false;
};

double flops(const Dims& dims);

/// A number of a case, of which no step through a list meets the same remainders only.
constexpr std::uint64_t mixed(std::uint64_t n) { return n * 0x9E3779B97F4A7C15u >> 32; }

/// Where a call is made a hundred times, or by an instrumented program, the scalar path, far slower
/// than the others, takes none that is larger.
inline constexpr double kMostScalar = 3e6;

/// Every (d, d_v) with every (n_q, n_k), every length and every size with every masking, as far as
/// a case stays below 1 Mflop.
std::vector<Case> core_cases();
/// All lengths and all maskings, and packed sequences, with one size: 720 of the 31,680 cases of
/// the whole block.
std::vector<Case> all_core_cases(std::size_t size);
inline constexpr std::size_t kCoreSizes = 44, kCoreLengths = 36;
/// Every pair of layouts of q, k and v.
std::vector<Case> layout_cases();
/// Every subset of axes along which keep, drop or bias broadcasts, in every type.
std::vector<Case> broadcast_cases();
std::vector<Case> head_cases();
std::vector<Case> value_cases();
std::vector<Case> scale_cases();
/// Every masking and every class of values at three rates.
std::vector<Case> dropout_cases();
/// One to five rows of a KV head and sizes of whole vectors, which have products of their own:
/// every masking, with and without dropout, V with infinities and NaN too.
std::vector<Case> few_cases();
/// Above 1 Mflop: lengths at the edges of blocks and splits, every masking. `most`: Mflop per case.
std::vector<Case> large_cases(double most, std::size_t count);

/// `type`: what the numbers are rounded to afterwards, T or 16 bits: whose range tiny, subnormal
/// and v_large are about.
template <typename T>
Call<T> make(const Case& c, heed::DType type = heed::detail::dtype_of<T>());

/// Each size with each masking, from consecutive seeds; keep, drop and bias broadcast over entries
/// and heads.
template <typename T>
std::vector<Call<T>> crossed(std::initializer_list<Dims> sizes,
                             std::initializer_list<Masking> maskings, std::uint64_t seed) {
  std::vector<Call<T>> all;
  for (const Dims& dims : sizes) {
    for (const Masking masking : maskings) {
      all.push_back(
          make<T>({.dims = dims, .masking = masking, .mask_axes = 3, .seed = seed + all.size()}));
    }
  }
  return all;
}

}  // namespace heed_test
