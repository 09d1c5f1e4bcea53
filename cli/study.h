// The studies: each makes tables, charts and findings from a seed, and some from tensors.
#pragma once

#include <cstdint>

#include "normals.h"
#include "study_result.h"

namespace heed::cli {

class StudyTensors;

struct StudyInput {
  Generator generator = Generator::heed;
  std::uint64_t seed = 1;
  const StudyTensors* tensors = nullptr;  ///< where the study takes them

  /// The sequence from its start.
  [[nodiscard]] Normals normals() const { return {generator, seed}; }
};

/// What numbers come from, for Study::facts.
[[nodiscard]] Json facts_of(const StudyInput& input);

[[nodiscard]] Study study_variance(const StudyInput& input);
[[nodiscard]] Study study_scaling(const StudyInput& input);
[[nodiscard]] Study study_gradients(const StudyInput& input);
[[nodiscard]] Study study_strategies(const StudyInput& input);
[[nodiscard]] Study study_initialisation(const StudyInput& input);
[[nodiscard]] Study study_complexity(const StudyInput& input);
[[nodiscard]] Study study_masks(const StudyInput& input);
[[nodiscard]] Study study_precision(const StudyInput& input);
[[nodiscard]] Study study_training(const StudyInput& input);

}  // namespace heed::cli
