// What a case of the matrix must hold, in each type.
#pragma once

#include <span>
#include <vector>

#include "forward/cases.h"
#include "forward/half.h"

namespace heed_test {

struct Tally {
  std::size_t cases = 0, mistrusted = 0, failed = 0, held_to_t3 = 0;

  Tally& operator+=(const Tally& other) {
    cases += other.cases;
    mistrusted += other.mistrusted;
    failed += other.failed;
    held_to_t3 += other.held_to_t3;
    return *this;
  }
};

/// The instruction sets that judge a case: runnable_isas(), under a sanitizer without the scalar
/// path for more than kMostScalar operations.
std::vector<heed::Isa> judging_isas(const Dims& dims);

/// The oracle's answer for the call in its dtype, on the instruction set that is forced now, with
/// the bounds of T1.
template <typename T>
oracle::Answer truth_of(const Call<T>& call, bool weights);

/// Whether T3 of numerics speaks of the case, with outputs of `dtype`: 4,096 or more, of standard
/// normal numbers. Left out are outputs so small that what T1 allows beside u m may be most of
/// their error.
template <typename T>
bool is_of_t3(const Case& c, const oracle::Answer& answer, heed::DType dtype);

/// T3, what of it needs no peer, of r = o - o*:
///
///     |mean over columns of mean(r / (u m))| <= 0.02 + 4 standard errors of the columns' means
///     |r| <= 8 u (1 + mean kappa) |o*|
///
/// Where float32's results were rounded to 16 bits, which is most of r then, the first line is also
/// of r with the sign of o*: the r of outputs that are all cut off, towards 0, have no other mean.
/// Where P was rounded, too, all columns of a row share its errors, and have such a mean.
///
/// A column is one of V, whose numbers have either sign: rows that lean on the same keys take their
/// signs from the same numbers, but columns are independent of each other.
template <typename T>
testing::AssertionResult keeps_t3(const Case& c, const Result<T>& result,
                                  const oracle::Answer& answer, heed::DType dtype);

/// The case on judging_isas() against the oracle's bounds (T1, T4; of normal numbers also T3), and
/// all of them against each other bit by bit (D6). `n` decides what is asked for beside the output.
/// Fails the test.
template <typename T>
Tally judge(const Case& c, std::size_t n, heed::DecodeOrder order = heed::DecodeOrder::of_prefill);

/// The case in 16 bits, widened: the oracle's bounds (T1, T4; of normal numbers also T3), and the
/// bits of float32 on the same numbers, the output rounded once.
Tally judge_half(const Case& c, std::size_t n, heed::DType dtype, std::span<const heed::Isa> isas,
                 heed::DecodeOrder order = heed::DecodeOrder::of_prefill);

/// q, k and v as dot products of bfloat16 read them: rounded, subnormal numbers as 0.
Call<float> read_by_pairs(Call<float> call);

/// What the call, whose numbers are read by pairs, gives by dot products of bfloat16: T1 with what
/// rounding P and the output may cost.
oracle::Answer paired_truth(const Call<float>& call, bool weights);

/// The case by dot products of bfloat16: T1 with what rounding P and the output may cost, of normal
/// numbers also T3.
Tally judge_paired(const Case& c, std::size_t n,
                   heed::DecodeOrder order = heed::DecodeOrder::of_prefill);

}  // namespace heed_test
