// The matrix products of linear maps, made of attention's kernels: rows of x are lanes, weights are
// broadcast.
//
//     y  = x W' + b      y_no   = (chains over x of W[o][x] x_nx) + b_o
//     dx = sum of dy W   dx_nx  = sum over maps, then chunks of outputs, of chains over o of
//                                 W[o][x] dy_no
//     dW += dy' x        dW_ox += sum over chunks of rows of chains over n of dy_no x_nx
//                        db_o  += sum over n of dy_no, in double
//
// Each element is one fixed order of operations (chains of kProductChain, added up in their order),
// which knows neither tiles, tasks and threads, nor how many rows there are beside its own.
#pragma once

#include <cstdint>
#include <span>

#include "attention/workers.h"
#include "modules/rows.h"

namespace heed {

/// Coordinates, outputs or rows of one chain.
inline constexpr int kProductChain = kernels::kChainSize;

/// Who computes a call, and the name under which it is known.
struct Hands {
  const char* function;
  Workers workers;
};

/// The caller's executor with as many workers as it had when a module's call asked, for calls
/// inside it, which ask again.
class AskedBefore final : public Executor {
 public:
  explicit AskedBefore(const Workers& workers)
      : executor_(workers.executor), workers_(workers.count) {}

  [[nodiscard]] int workers() const override { return workers_; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    executor_->run(tasks, task, context);
  }
  /// How a call inside runs.
  [[nodiscard]] Execution inside(Execution execution) {
    if (executor_ != nullptr) execution.executor = this;
    return execution;
  }

 private:
  Executor* executor_;
  int workers_;
};

/// A map of rows: weight [y.size][x.size], bias [y.size] or null.
struct Projection {
  const float* weight;
  const float* bias;
  Rows y;
};

/// y = x W' + b for each map; x is packed once for all.
void project(const Hands& hands, const Rows& x, std::span<const Projection> maps);

/// A map backwards: weight [dy.size][dx.size].
struct BackProjection {
  const float* weight;
  Rows dy;
};

/// dx = sum over the maps of dy W.
void project_back(const Hands& hands, std::span<const BackProjection> maps, const Rows& dx);

/// dW [dy.size][x.size] += dy' x of the chosen rows, and db [dy.size] += the sum of all rows of dy
/// unless db is null.
void add_weight_gradient(const Hands& hands, const Rows& dy, const Rows& x, RowRange chosen,
                         float* dw, float* db);

}  // namespace heed
