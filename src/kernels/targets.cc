// Which instruction sets the kernels were compiled for and which of them this CPU can run.
#include "kernels/targets.h"

#include "kernels/target_list.h"
// after target_list.h
#include <hwy/targets.h>

#include "kernels/target_number.h"

namespace heed::kernels {

Targets targets() noexcept {
  const std::int64_t cpu = hwy::SupportedTargets();
  Targets found{0, 1u << kScalar};
  for (std::int64_t bits = HWY_TARGETS; bits != 0; bits &= bits - 1) {
    const std::int64_t target = bits & -bits;
    found.compiled |= 1u << target_number(target);
    if ((cpu & target) != 0) found.supported |= 1u << target_number(target);
  }
  return found;
}

}  // namespace heed::kernels
