// Induction: copy what followed the last occurrence of this token. The task, and a model of two
// layers of attention and nothing between them, which is the least that can do it: a first head
// that brings each token's predecessor along, a second that looks for it.
#pragma once

#include <optional>

#include "training/learning.h"

namespace heed::training {

struct CopyOptions {
  std::int64_t vocabulary = 12, length = 32, batch = 16;
  std::int64_t d_model = 48, heads = 1, head_size = 16;
  std::optional<double> scale{};  ///< of the scores; absent: 1 / sqrt(head size)
  double rate = 3e-3;
  std::uint64_t seed = 1;
};

/// Sequences of random tokens; the target of each is the token after the last place before it that
/// had the same token.
///
///     tokens   C A B A D B    targets   - - - B - A
struct CopyBatch {
  std::vector<std::int64_t> tokens, targets, sources;  ///< [batch, length]; source: where it stands
};
[[nodiscard]] CopyBatch draw_copies(const CopyOptions& options, Random& random);

class CopyModel {
 public:
  explicit CopyModel(const CopyOptions& options);

  /// Forward, backward, a step downhill on a new batch.
  Loss train();
  /// Forward only, on a new batch, which `look` then is about.
  Loss test();

  /// What the heads of a layer (0 or 1) did in the last test.
  struct Look {
    std::vector<double> previous;  ///< [heads]: mean weight on the token before
    std::vector<double>
        induction;  ///< [heads]: share of rows with a target whose largest weight is on it
    double saturation =
        0;  ///< share of rows with 8 keys or more whose largest weight is above 0.99
    double entropy_share = 0;  ///< mean over the same rows
  };
  [[nodiscard]] Look look(int layer) const;

  [[nodiscard]] const CopyOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t size() const { return adam_.size(); }

 private:
  Loss forward(const CopyBatch& batch);
  void backward(const CopyBatch& batch);
  [[nodiscard]] AttentionOptions attention_options() const;
  [[nodiscard]] TensorView rows(std::vector<float>& of, std::int64_t size) const {
    return view(of.data(), {options_.batch, options_.length, size});
  }
  std::vector<Parameter> parameters();

  CopyOptions options_;
  Random random_;
  Embedding tokens_, places_;
  MultiHeadAttention attention_[2];
  Linear logits_;
  Adam adam_;
  std::vector<std::int64_t> place_;                   // of each row in its sequence
  std::vector<float> x_[3], y_[2], d_x_, d_y_, out_;  // [batch, length, ..]
  SavedAttention saved_[2];
  CopyBatch last_;
};

}  // namespace heed::training
