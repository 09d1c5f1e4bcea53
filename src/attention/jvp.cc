// The forward-mode derivative: check, plan, tasks.
#include "heed/jvp.h"

#include "attention/tangents.h"
#include "attention/workers.h"
#include "runtime/float_environment.h"

namespace heed {
namespace {

template <typename Real>
void jvp(const JvpProblem& p, const Workers& workers) {
  if (!p.asks()) return;  // no memory bounds the rows of outputs without elements
  const Plan<Real> plan = make_plan<Real>(p.forward, workers.count);
  if (plan.tasks == 0) return;
  Crew crew(p.forward.function, executor_of(plan, workers), scratch_areas(plan, workers),
            carve_jvp<Real>(p, plan, nullptr).bytes);
  crew.run(plan.tasks, [&](std::int64_t task, std::byte* scratch) {
    TangentRows<Real>(p, plan, scratch).run(task);
  });
}

}  // namespace

void attention_jvp(const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                   const AttentionOptions& options, const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  const JvpProblem p = check_jvp(inputs, tangents, outputs, options);
  const Workers workers = choose_workers("attention_jvp", execution);
  if (p.forward.dtype == DType::f32) {
    jvp<float>(p, workers);
  } else {
    jvp<double>(p, workers);
  }
}

}  // namespace heed
