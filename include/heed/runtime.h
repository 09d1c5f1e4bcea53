// Where attention runs: executors and threads, instruction sets, version.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "heed/export.h"

namespace heed {

/// Runs every task once, in any order, on any thread, and returns when all are done.
/// heed's results do not depend on which executor runs them, nor on its number of workers.
class HEED_API Executor {
 public:
  virtual ~Executor() = default;

  /// 1 or more. Worker ids are 0 .. workers() - 1, as it was when the call asked (once, before it
  /// runs tasks); two tasks of one run() never run at once under one id.
  [[nodiscard]] virtual int workers() const = 0;

  /// Calls task(context, i, worker) for each i in [0, tasks). Tasks do not throw.
  /// What `run` itself throws, after all tasks it started have ended, passes through heed's
  /// functions to their caller; outputs are then unspecified. It is called in the default
  /// floating-point environment, as everything on the calling thread is until heed returns (on
  /// x86-64 that of SSE: long double is rounded as the caller has it).
  virtual void run(std::int64_t tasks, void (*task)(void* context, std::int64_t index, int worker),
                   void* context) = 0;
};

/// The process-wide pool of threads, seen with a number of workers of its own. Making one costs
/// nothing: threads start at the first call that needs them, and a forked child starts its own.
/// While one call uses the pool, calls from other threads and nested calls run on their own thread,
/// with worker id 0 each.
class HEED_API PoolExecutor final : public Executor {
 public:
  /// threads = 0: default_threads(); more than 4096 or less than 0 is an error.
  explicit PoolExecutor(int threads = 0);

  [[nodiscard]] int workers() const override { return workers_; }
  void run(std::int64_t tasks, void (*task)(void* context, std::int64_t index, int worker),
           void* context) override;

 private:
  int workers_;
};

/// How often the system has refused the pool a thread, in this process and those it was forked
/// from. Calls go on with the threads there are, and with the same bits; only their time tells.
[[nodiscard]] HEED_API std::int64_t refused_thread_starts() noexcept;

/// HEED_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs that this process may use (affinity, then
/// the cgroup's quota rounded down), at least 1. Found once per process.
/// Throws if the variable that decides is anything but a number from 1 to 4096 (OMP_NUM_THREADS may
/// be a list, as OpenMP has it: its first entry counts). For all variables empty means unset.
[[nodiscard]] HEED_API int default_threads();

/// Instruction sets in ascending order of preference on their architecture.
enum class Isa : std::uint8_t {
  scalar,       ///< plain C++ with std::fma: the reference every other one equals bit for bit
  neon,         ///< 128-bit, AArch64
  avx2,         ///< 256-bit with FMA
  avx512,       ///< 512-bit: F, BW, CD, DQ, VL
  avx512_bf16,  ///< avx512 with VDPBF16PS
  neon_bf16,    ///< neon with BFDOT
};

/// The word that HEED_MAX_ISA knows it by.
[[nodiscard]] HEED_API std::string_view name_of(Isa isa) noexcept;

struct InstructionSet {
  Isa isa;
  bool compiled;   ///< this build has kernels for it
  bool supported;  ///< this CPU and operating system can run it
  bool slow;  ///< slower on this CPU than the one below it: a call has it only if the cap names it
};

/// All instruction sets of this architecture, ascending.
[[nodiscard]] HEED_API std::vector<InstructionSet> instruction_sets();

/// The one that a call would run now: the best that is compiled, supported, not above the cap, and
/// not slow unless it is the cap itself: Intel's CPUs have dot products of bfloat16 with
/// HEED_MAX_ISA=avx512_bf16 only. Throws if HEED_MAX_ISA is set to an unknown word; one that is
/// above the CPU's is no error.
[[nodiscard]] HEED_API Isa instruction_set();

/// Caps the instruction set for all later calls of this process, in place of HEED_MAX_ISA.
/// A cap of another architecture counts by its place in Isa: neon on x86-64 leaves scalar, avx2 on
/// AArch64 leaves neon.
/// Not to be called while other threads are inside heed. Throws for what is no Isa.
HEED_API void cap_instruction_set(Isa highest);

/// "0.1.0"
[[nodiscard]] HEED_API std::string_view version() noexcept;

}  // namespace heed
