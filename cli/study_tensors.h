// Queries and keys of a real model: the sample that belongs to this program, or a file of the
// user's.
#pragma once

#include <cstdint>
#include <string>

#include "run_inputs.h"
#include "study_math.h"

namespace heed::cli {

struct QueriesAndKeys {
  Matrix q, k;
};

class StudyTensors {
 public:
  /// Reads q and k of a .npz or .safetensors file as heed run does; "" is the sample.
  /// d_output, if it is there, is read where it is asked for.
  StudyTensors(const std::string& path, bool with_d_output);

  [[nodiscard]] std::int64_t batch() const { return q_.shape[0]; }
  [[nodiscard]] std::int64_t heads() const { return q_.shape[1]; }
  [[nodiscard]] std::int64_t size() const { return q_.shape[3]; }  ///< of a head
  [[nodiscard]] QueriesAndKeys head(std::int64_t batch, std::int64_t head) const;

  // All of it, [B, H, T, X] of float64; d_output may be absent.
  [[nodiscard]] const ConstTensorView& q() const { return q_; }
  [[nodiscard]] const ConstTensorView& k() const { return k_; }
  [[nodiscard]] const ConstTensorView& v() const { return v_; }
  [[nodiscard]] const ConstTensorView& d_output() const { return d_output_; }

  /// "sample" or the file's name.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// What a batch entry is called: "layer" in the sample.
  [[nodiscard]] const char* entry() const { return is_sample() ? "layer" : "entry"; }
  /// "the real heads" or the file's name.
  [[nodiscard]] std::string whose() const { return is_sample() ? "the real heads" : name_; }
  /// "Entropy in real heads"; the name of a file may be longer than a chart is wide.
  [[nodiscard]] std::string titled(const std::string& what) const {
    return what + " in " + (is_sample() ? "real heads" : "the given heads");
  }

 private:
  [[nodiscard]] bool is_sample() const { return name_ == "sample"; }

  std::string name_;
  RunInputs inputs_;
  ConstTensorView q_, k_, v_, d_output_;
};

}  // namespace heed::cli
