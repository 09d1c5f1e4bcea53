// The sizes are those of src/attention/backward_plan.cc, which says why.
#include "gradient_bytes.h"

#include <algorithm>
#include <cmath>

namespace heed::cli {
namespace {

constexpr double kTileRows = 64;    // rows of a tile at most, and that a chain of dK and dV takes
constexpr double kVisitRows = 256;  // rows that share a visit to a block of keys, at most
constexpr double kBlockKeys = 96;   // keys of a block of scores
constexpr double kChunkKeys = 768;  // keys of a chunk, which may be a task of its own
constexpr double kLanes = 16;       // rows of vectors are filled up to so many elements
constexpr double kRowNumbers = 2;   // sums of a row, beside its dQ: for dalibi, norms of dS
constexpr double kTasksOfThread = 4;
constexpr double kFlopsOfThread = 1e6;
constexpr double kSlotBytes = 32 << 20;

double axis_of(const ConstTensorView& view, int from_last) {
  return view.rank < from_last ? 1 : static_cast<double>(view.shape[view.rank - from_last]);
}

double elements_of(const ConstTensorView& view) {
  double count = 1;
  for (int axis = 1; axis <= view.rank; ++axis) count *= axis_of(view, axis);
  return count;
}

/// Elements that one thread works in.
double thread_elements(double head_size, double value_size) {
  const double sizes = std::max(head_size + value_size, 1.0) + 2 * kLanes;
  return sizes * (3 * kVisitRows + kChunkKeys + 2 * kBlockKeys + 4 * kTileRows) +
         5 * kBlockKeys * kTileRows;
}

}  // namespace

double gradient_scratch_bytes(const ConstTensorView& q, const ConstTensorView& k,
                              const ConstTensorView& v, const ConstTensorView& bias, int threads) {
  const double element = static_cast<double>(size_of(q.dtype));
  const double rows = axis_of(q, 4) * axis_of(q, 3) * axis_of(q, 2);
  const double flops = (6 * axis_of(q, 1) + 4 * axis_of(v, 1)) * rows * axis_of(k, 2);
  const double workers = std::clamp(flops / kFlopsOfThread, 1.0, static_cast<double>(threads));
  const double heads = std::max(axis_of(k, 4) * axis_of(k, 3), 1.0);  // of keys, in all entries
  const double slot = std::ceil(rows / heads / kTileRows) * kTileRows *
                      (axis_of(q, 1) + kRowNumbers);  // dQ of one of them
  const double chunks = std::ceil(axis_of(k, 2) / kChunkKeys);
  // A bias that heads share leaves fewer that are apart from each other.
  const bool few = bias.present() || heads < kTasksOfThread * workers;
  double elements = std::min(workers, heads) * slot;
  if (chunks > 1 && workers > 1 && few) {
    // Slots of some chunks at a time, at least one for each worker, and what earlier ones gave.
    const double at_a_time = std::max(kSlotBytes / element, (workers + heads) * slot);
    elements = std::max(elements, std::min(chunks * heads * slot, at_a_time) + heads * slot);
  }
  elements += 3 * rows;  // what rows give to dscale, dalibi and dsinks
  elements += workers * thread_elements(axis_of(q, 1), axis_of(v, 1));
  const bool several = bias.present() && elements_of(bias) < rows * axis_of(k, 2);
  return std::ceil(elements * element) + (several ? elements_of(bias) * sizeof(double) : 0);
}

}  // namespace heed::cli
