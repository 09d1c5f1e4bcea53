// One attention problem as data: what heed is told, and what the oracle is told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "forward/tensors.h"
#include "heed/attention.h"
#include "oracle/attention.h"

namespace heed_test {

struct Dims {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 1, value_size = 1;
};

/// Functions of a score that heed (in float or double) and the oracle (wider) both know.
enum class Mod {
  none,
  tilt,   // 0.75 t + ((i + 2 j + 3 h + b) mod 7) / 8
  holes,  // -inf where (i + 2 j) mod 3 = 0
  bend,   // t / 2 + sin t
};

/// Everything that attention_forward is told. Copies are independent of each other.
template <typename T>
struct Call {
  std::uint64_t seed = 0;
  std::string words;  // what the generator meant, for the report of a failure
  int rank = 4;
  Tensor<T> q, k, v;
  /// Of q, k, v and the output: T's own, or where T is float a 16-bit one, which holds all numbers
  /// of theirs.
  heed::DType dtype = heed::detail::dtype_of<T>();

  std::vector<double> scale;  // none, one, or one per head
  bool normalize_qk = false;
  std::optional<double> softcap;
  std::vector<double> alibi;
  Tensor<double> bias;  // axes of length 1 broadcast, as in keep and drop
  heed::DType bias_dtype = heed::detail::dtype_of<T>();
  Mod mod = Mod::none;
  bool causal = false;
  std::vector<std::int64_t> query_start;  // none, one, or one per batch entry
  std::optional<std::int64_t> left, right;
  std::vector<std::int64_t> key_lengths, query_lengths;
  Tensor<std::uint8_t> keep, drop;
  heed::DType mask_dtype = heed::DType::boolean;
  std::vector<double> sinks;
  std::vector<std::int64_t> query_offsets,
      key_offsets;  // of packed sequences; the oracle knows none
  oracle::Dropout dropout;
  bool narrow = false;      // vectors of numbers are passed as float32 and int32
  bool fewer_axes = false;  // masks and bias are passed without their leading axes of length 1

  [[nodiscard]] Dims dims() const {
    return {q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]};
  }
};

/// Normal q, k, v, nothing else set.
template <typename T>
Call<T> plain_call(const Dims& d, std::uint64_t seed, double sharpness = 1);

template <typename T>
std::string describe(const Call<T>& call);

template <typename T>
oracle::Problem<T> problem_of(const Call<T>& call);

/// May query i look at key j, and do bias and score_mod leave it?
template <typename T>
bool visible(const Call<T>& call, const oracle::Problem<T>& problem, std::int64_t b, std::int64_t h,
             std::int64_t i, std::int64_t j);

/// Options in heed's words, with the memory that they point into.
template <typename T>
struct Told {
  explicit Told(const Call<T>& call);
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  heed::AttentionOptions options;

 private:
  heed::ConstTensorView encoded(const Call<T>& call, const Tensor<double>& bias);
  heed::ConstTensorView encoded(const Call<T>& call, const Tensor<std::uint8_t>& mask);
  heed::ConstTensorView encoded(const Call<T>& call, const std::vector<double>& numbers);
  heed::ConstTensorView encoded(const Call<T>& call, const std::vector<std::int64_t>& numbers);
  heed::PerBatch per_batch(const Call<T>& call, const std::vector<std::int64_t>& numbers);

  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace heed_test
