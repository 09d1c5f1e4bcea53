// Which instruction sets the kernels were compiled for and which of them this CPU can run.
#include "kernels/targets.h"

namespace heed::kernels {

Targets targets() noexcept { return {1, 1}; }

}  // namespace heed::kernels
