// The control register of floating point, and the environments that a caller may have set.
#pragma once

#include <cstdint>

namespace heed::testing {

/// A setting of the register: control bits, and no flag of what has happened.
struct Control {
#if defined(__x86_64__)
  using Word = std::uint32_t;  // MXCSR
#else
  using Word = std::uint64_t;  // FPCR
#endif
  const char* name;
  Word word;
};

#if defined(__x86_64__)
inline constexpr Control kStrangeControls[] = {{"upward", 0x5F80},
                                               {"downward", 0x3F80},
                                               {"toward zero", 0x7F80},
                                               {"flush to zero, subnormals are zero", 0x9FC0}};
inline Control::Word read_control() { return __builtin_ia32_stmxcsr(); }
inline void write_control(Control::Word word) { __builtin_ia32_ldmxcsr(word); }
#elif defined(__aarch64__)
inline constexpr Control kStrangeControls[] = {{"upward", 0x00400000},
                                               {"downward", 0x00800000},
                                               {"toward zero", 0x00C00000},
                                               {"flush to zero, default NaN", 0x03000000}};
inline Control::Word read_control() {
  Control::Word word;
  asm volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
  return word;
}
inline void write_control(Control::Word word) {
  asm volatile("msr fpcr, %0" : : "r"(word) : "memory");
}
#endif

/// The environment between construction and destruction; afterwards that of before.
class RestoredControl {
 public:
  explicit RestoredControl(const Control& control) : before_(read_control()) {
    write_control(control.word);
  }
  ~RestoredControl() { write_control(before_); }
  RestoredControl(const RestoredControl&) = delete;
  RestoredControl& operator=(const RestoredControl&) = delete;

 private:
  Control::Word before_;
};

}  // namespace heed::testing
