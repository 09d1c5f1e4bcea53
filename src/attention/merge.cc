// Merging outputs and lse of parts of the keys, row by row.
#include "heed/merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/carver.h"
#include "attention/checker.h"
#include "attention/lists.h"
#include "attention/staging.h"
#include "attention/workers.h"
#include "kernels/kernels.h"
#include "runtime/float_environment.h"

namespace heed {
namespace {

using kernels::kMaxTileRows;

/// Elements read that are worth a task: some 50 us at the bandwidth of one core.
constexpr std::int64_t kTaskElements = std::int64_t{1} << 18;

struct Part {
  View4 output, lse;
};

struct MergeProblem {
  DType element;  ///< of outputs
  DType dtype;    ///< that is computed in, and of lse
  std::int64_t batches, heads, queries, value_size;
  std::vector<Part> parts;
  View4 output, lse;

  [[nodiscard]] std::int64_t rows() const { return batches * heads * queries; }
};

MergeProblem check_merge(std::span<const AttentionPart> parts, const MergeOutputs& merged) {
  const Checker check("merge");
  check.require(!parts.empty(), "there are 0 parts; expected 1 or more");
  std::vector<std::string> names;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const std::string part = "parts[" + std::to_string(n) + "].";
    names.push_back(part + "output");
    names.push_back(part + "lse");
  }
  const ConstTensorView& first = parts[0].output;
  check.require(first.present(), names[0].c_str(), " is absent; expected a view to read from");
  check.memory(names[0].c_str(), first, true);
  check.require(is_floating(first.dtype), names[0].c_str(), " is ", first.dtype,
                "; expected float16, bfloat16, float32 or float64");
  const DType computed = first.dtype == DType::f64 ? DType::f64 : DType::f32;
  const int rank = first.rank;
  check.require(rank >= 2 && rank <= 4, names[0].c_str(), " has rank ", rank,
                "; expected 2 [T, Dv], 3 [B, T, Dv] or 4 [B, H, T, Dv]");
  Sizes sizes{1, 1, 1, 1};
  for (int axis = 0; axis < rank; ++axis) {
    sizes[canonical_axis(rank, axis)] = first.shape[static_cast<std::size_t>(axis)];
  }
  MergeProblem p{first.dtype, computed, sizes[0], sizes[1], sizes[2], sizes[3], {}, {}, {}};
  std::vector<NamedView> read;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const auto input = [&](std::size_t name, const ConstTensorView& view, int dropped,
                           DType dtype) {
      const char* const as = names[name].c_str();
      check.require(view.present(), as, " is absent; expected a view to read from");
      check.memory(as, view, true);
      check.require(view.dtype == dtype, as, " is ", view.dtype, "; expected ", dtype,
                    dtype == p.element ? ", the type of parts[0].output" : "");
      read.emplace_back(as, view);
      return check.exact(as, view, rank, sizes, dropped);
    };
    p.parts.push_back(
        {input(2 * n, parts[n].output, 0, p.element), input(2 * n + 1, parts[n].lse, 1, p.dtype)});
  }
  check.require(merged.output.present(), "output is absent; expected a view to write to");
  check.require(merged.output.dtype == p.element, "output is ", merged.output.dtype, "; expected ",
                p.element, ", the type of parts[0].output");
  check.require(!merged.lse.present() || merged.lse.dtype == p.dtype, "lse is ", merged.lse.dtype,
                "; expected ", p.dtype);
  p.output = check.output("output", merged.output, rank, sizes, 0, p.element, p.element);
  p.lse = check.output("lse", merged.lse, rank, sizes, 1, p.dtype, p.element);
  const NamedView written[] = {{"output", merged.output}, {"lse", merged.lse}};
  check.distinct(written, read);
  return p;
}

/// One worker's memory.
template <typename Real>
struct MergeScratch {
  Real* part;    ///< a row of a part, where it cannot be read in place
  Real* merged;  ///< a row of the result, likewise
  std::size_t bytes;
};

template <typename Real>
MergeScratch<Real> carve_merge(const MergeProblem& p, std::byte* base) {
  Carver carver("merge", base);
  MergeScratch<Real> scratch{};
  scratch.part = carver.take<Real>(p.value_size);
  scratch.merged = carver.take<Real>(p.value_size);
  scratch.bytes = carver.used();
  return scratch;
}

/// Some rows of a call.
template <typename Real>
class MergedRows {
 public:
  MergedRows(const MergeProblem& p, const kernels::Kernels<Real>& table,
             const kernels::Conversions& convert, std::byte* memory)
      : p_(p), kernels_(table), convert_(convert), scratch_(carve_merge<Real>(p, memory)) {}

  void run(std::int64_t first, int count) {
    first_ = first;
    count_ = count;
    find_maxima();
    Real l[kMaxTileRows] = {};
    Real weight[kMaxTileRows];
    for (const Part& part : p_.parts) {
      weigh(part, weight);
      for (int r = 0; r < count_; ++r) l[r] += weight[r];
    }
    const Real zero[kMaxTileRows] = {};
    const int vectors = (count_ + kernels_.lanes - 1) / kernels_.lanes;
    Real log_l[kMaxTileRows];  // natural, -inf where there is no key
    kernels_.finish(zero, l, vectors, inverse_, log_l);
    for (int r = 0; r < count_; ++r) {
      merge_row(r);
      if (!p_.lse.present) continue;
      const Real lse = l[r] == 0 ? log_l[r] : m_[r] + log_l[r];
      scatter_row(&lse, 1, at(p_.lse, r), 1);
    }
  }

 private:
  static constexpr Real kMinusInf = -std::numeric_limits<Real>::infinity();

  [[nodiscard]] std::byte* at(const View4& view, int r) const {
    const std::int64_t row = first_ + r;
    const std::int64_t head = row / p_.queries;
    return view.at(head / p_.heads, head % p_.heads, row % p_.queries);
  }

  [[nodiscard]] Real lse_of(const Part& part, int r) const {
    Real lse = 0;
    std::memcpy(&lse, at(part.lse, r), sizeof lse);
    return lse;
  }

  void find_maxima() {
    std::fill_n(m_, count_, kMinusInf);
    for (const Part& part : p_.parts) {
      for (int r = 0; r < count_; ++r) {
        const Real lse = lse_of(part, r);
        if (lse > m_[r]) m_[r] = lse;  // a NaN comes back in its weight
      }
    }
  }

  /// weight[r] = e^(lse_p - m), 0 for an empty part.
  void weigh(const Part& part, Real* weight) const {
    for (int r = 0; r < count_; ++r) {
      const Real lse = lse_of(part, r);
      weight[r] = lse == kMinusInf ? kMinusInf : (lse - m_[r]) * kernels::kLog2e<Real>;
    }
    kernels_.row_weights(weight, count_, 0, 1);
  }

  void merge_row(int r) {
    const bool in_place = usable_in_place<Real>(p_.output);
    Real* const merged = in_place ? reinterpret_cast<Real*>(at(p_.output, r)) : scratch_.merged;
    bool empty = true;
    for (const Part& part : p_.parts) {
      const Real lse = lse_of(part, r);
      if (lse == kMinusInf) continue;
      Real weight = (lse - m_[r]) * kernels::kLog2e<Real>;
      kernels_.row_weights(&weight, 1, 0, 1);
      weight *= inverse_[r];
      const Real* row = reinterpret_cast<const Real*>(at(part.output, r));
      if (!usable_in_place<Real>(part.output)) {
        gather_row(convert_, part.output, at(part.output, r), p_.value_size, scratch_.part);
        row = scratch_.part;
      }
      for (std::int64_t x = 0; empty && x < p_.value_size; ++x) merged[x] = weight * row[x];
      for (std::int64_t x = 0; !empty && x < p_.value_size; ++x) merged[x] += weight * row[x];
      empty = false;
    }
    if (empty) std::fill_n(merged, p_.value_size, Real{0});
    if (!in_place) scatter_row(convert_, merged, p_.value_size, p_.output, at(p_.output, r));
  }

  const MergeProblem& p_;
  const kernels::Kernels<Real>& kernels_;
  const kernels::Conversions& convert_;
  MergeScratch<Real> scratch_;
  std::int64_t first_ = 0;
  int count_ = 0;
  Real m_[kMaxTileRows];
  Real inverse_[kMaxTileRows];
};

template <typename Real>
void merge_rows(const MergeProblem& p, const Workers& workers) {
  const int target = static_cast<int>(instruction_set());
  const auto& table = *kernels::kernels_for<Real>(target);
  const auto& convert = *kernels::conversions_for(target);
  const std::int64_t rows = p.rows();
  if (rows == 0 || (p.value_size == 0 && !p.lse.present)) return;  // no memory bounds such sizes
  const std::int64_t row_elements = (p.value_size + 1) * static_cast<std::int64_t>(p.parts.size());
  const std::int64_t tile = table.lanes * table.highest_vectors;
  const std::int64_t tiles = (rows + tile - 1) / tile;
  const bool few = rows * row_elements < kTaskElements;
  const std::int64_t per_task =
      few ? tiles : std::max<std::int64_t>(1, kTaskElements / (row_elements * tile));
  const std::int64_t tasks = (tiles + per_task - 1) / per_task;
  const bool small = tasks == 1;
  Executor* const own = small ? nullptr : workers.executor;
  const int areas = own != nullptr
                        ? workers.count
                        : static_cast<int>(std::clamp<std::int64_t>(tasks, 1, workers.count));
  Crew crew("merge", own, areas, carve_merge<Real>(p, nullptr).bytes);
  crew.run(tasks, [&](std::int64_t task, std::byte* memory) {
    MergedRows<Real> merged(p, table, convert, memory);
    const std::int64_t end = std::min((task + 1) * per_task * tile, rows);
    for (std::int64_t row = task * per_task * tile; row < end; row += tile) {
      merged.run(row, static_cast<int>(std::min(tile, end - row)));
    }
  });
}

}  // namespace

void merge(std::span<const AttentionPart> parts, const MergeOutputs& merged,
           const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  const MergeProblem p = with_lists("merge", [&] { return check_merge(parts, merged); });
  const Workers workers = choose_workers("merge", execution);
  if (p.dtype == DType::f32) {
    merge_rows<float>(p, workers);
  } else {
    merge_rows<double>(p, workers);
  }
}

void merge(const ConstTensorView& output_a, const ConstTensorView& lse_a,
           const ConstTensorView& output_b, const ConstTensorView& lse_b,
           const MergeOutputs& merged, const Execution& execution) {
  const std::array<AttentionPart, 2> parts{{{output_a, lse_a}, {output_b, lse_b}}};
  merge(parts, merged, execution);
}

}  // namespace heed
