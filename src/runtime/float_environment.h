// The floating-point environment of public functions and of tasks: the default one, whatever the
// caller has set.
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace heed::runtime {

/// Between construction and destruction: round to nearest even, subnormals kept, exceptions masked.
/// Afterwards the thread has the control bits and the status flags that it had before.
/// Costs a register read at either end; it writes only what differs. Every public function that
/// computes begins with one, since numbers are rounded before the first task too (scale, slopes);
/// tasks have one each, for they may run on a thread that belongs to somebody else.
///
/// The compiler knows nothing of these registers. Each access below is therefore also a barrier for
/// memory: what is computed in between must be loaded and stored in between, as a task's data are.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() noexcept;
  ~DefaultFloatEnvironment();
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint32_t kDefault = 0x1F80;  // all exceptions masked, nothing else
  static constexpr std::uint32_t kFlags = 0x003F;    // what has happened so far: no control

  static std::uint32_t read() noexcept {
    std::uint32_t value;
    asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
    return value;
  }
  static void write(std::uint32_t value) noexcept {
    asm volatile("ldmxcsr %0" : : "m"(value) : "memory");
  }

  std::uint32_t caller_;
#elif defined(__aarch64__)
  static std::uint64_t read_control() noexcept {
    std::uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
  }
  static std::uint64_t read_status() noexcept {
    std::uint64_t value;
    asm volatile("mrs %0, fpsr" : "=r"(value) : : "memory");
    return value;
  }
  static void write_control(std::uint64_t value) noexcept {
    asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
  }
  static void write_status(std::uint64_t value) noexcept {
    asm volatile("msr fpsr, %0" : : "r"(value) : "memory");
  }

  std::uint64_t control_;
  std::uint64_t status_;
#else
  std::fenv_t caller_;
#endif
};

#if defined(__x86_64__)

inline DefaultFloatEnvironment::DefaultFloatEnvironment() noexcept : caller_(read()) {
  if ((caller_ & ~kFlags) != kDefault) write(kDefault);
}

inline DefaultFloatEnvironment::~DefaultFloatEnvironment() {
  if (read() != caller_) write(caller_);
}

#elif defined(__aarch64__)

inline DefaultFloatEnvironment::DefaultFloatEnvironment() noexcept
    : control_(read_control()), status_(read_status()) {
  if (control_ != 0) write_control(0);
}

inline DefaultFloatEnvironment::~DefaultFloatEnvironment() {
  if (read_control() != control_) write_control(control_);
  if (read_status() != status_) write_status(status_);
}

#else

inline DefaultFloatEnvironment::DefaultFloatEnvironment() noexcept {
  std::fegetenv(&caller_);
  std::fesetenv(FE_DFL_ENV);
}

inline DefaultFloatEnvironment::~DefaultFloatEnvironment() { std::fesetenv(&caller_); }

#endif

}  // namespace heed::runtime
