// How the instruction set is chosen.
#include "runtime/isa.h"

#include <atomic>
#include <cstdint>
#include <string>

#include "heed/error.h"
#include "runtime/environment.h"

namespace heed {
namespace runtime {
namespace {

constexpr Isa kAll[] = {Isa::scalar, Isa::neon,        Isa::avx2,
                        Isa::avx512, Isa::avx512_bf16, Isa::neon_bf16};

constexpr Isa kOfThisArchitecture[] = {
    Isa::scalar,
#if defined(__x86_64__)
    Isa::avx2,
    Isa::avx512,
    Isa::avx512_bf16,
#elif defined(__aarch64__)
    Isa::neon,
    Isa::neon_bf16,
#endif
};

constexpr int kUnresolved = -1;
constinit std::atomic<int> chosen{kUnresolved};

bool is_in(std::uint32_t bits, Isa isa) noexcept {
  return (bits >> static_cast<unsigned>(isa) & 1U) != 0;
}

bool has(std::uint32_t bits, Isa isa) noexcept { return isa == Isa::scalar || is_in(bits, isa); }

}  // namespace

Isa parse_isa(std::string_view word) {
  std::string words;
  for (const Isa isa : kAll) {
    if (name_of(isa) == word) return isa;
    words += (words.empty() ? "" : ", ") + std::string(name_of(isa));
  }
  throw Error("instruction_set: HEED_MAX_ISA is " + quoted(word) + "; it must be one of " + words);
}

std::vector<InstructionSet> instruction_sets(const kernels::Targets& targets) {
  std::vector<InstructionSet> sets;
  for (const Isa isa : kOfThisArchitecture) {
    sets.push_back({.isa = isa,
                    .compiled = has(targets.compiled, isa),
                    .supported = has(targets.supported, isa),
                    .slow = is_in(targets.slow, isa)});
  }
  return sets;
}

Isa choose_isa(const kernels::Targets& targets, Isa cap) noexcept {
  Isa best = Isa::scalar;
  for (const Isa isa : kOfThisArchitecture) {
    const bool wanted = isa == cap || (isa < cap && !is_in(targets.slow, isa));
    if (wanted && has(targets.compiled & targets.supported, isa)) best = isa;
  }
  return best;
}

}  // namespace runtime

std::string_view name_of(Isa isa) noexcept {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::neon:
      return "neon";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::neon_bf16:
      return "neon_bf16";
  }
  return "unknown";
}

std::vector<InstructionSet> instruction_sets() {
  return runtime::instruction_sets(kernels::targets());
}

Isa instruction_set() {
  int isa = runtime::chosen.load(std::memory_order_relaxed);
  if (isa == runtime::kUnresolved) {
    const std::string_view word = runtime::environment_variable("HEED_MAX_ISA");
    cap_instruction_set(word.empty() ? Isa::neon_bf16 : runtime::parse_isa(word));
    isa = runtime::chosen.load(std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

void cap_instruction_set(Isa highest) {
  if (highest > Isa::neon_bf16) {
    throw Error("cap_instruction_set: highest is " + std::to_string(static_cast<int>(highest)) +
                ", which is no Isa");
  }
  const Isa isa = runtime::choose_isa(kernels::targets(), highest);
  runtime::chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace heed
