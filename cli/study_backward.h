// What a backward pass gives queries and keys, scaled and unscaled: random draws and real heads.
#pragma once

#include "study.h"
#include "study_tensors.h"

namespace heed::cli {

inline constexpr std::int64_t kDrawnSize = 512;  ///< d_k of the draws of the gradients study
inline constexpr std::int64_t kDrawnKeys = 4;
inline constexpr int kDraws = 1000;

/// The table "backward": of the study's 1,000 draws, with V of [4, 512] and dO of [512] for each
/// from `normals`, which has given all before.
[[nodiscard]] StudyTable backward_of_draws(const StudyInput& input, Normals& normals);

/// The table "tensors_backward": of real heads; dO is the file's, or comes from `normals`.
[[nodiscard]] StudyTable backward_of_tensors(const StudyTensors& tensors, Normals& normals);

}  // namespace heed::cli
