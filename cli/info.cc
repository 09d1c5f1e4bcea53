// heed info: the CPU, what of it is used, and what this program is.
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "heed/heed.h"
#include "heed/io.h"
#include "json.h"
#include "machine.h"
#include "plain_text.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  heed info         what this machine has, and what of it is used\n"
    "  heed info --json  the same for programs\n"
    "\n"
    "Environment:\n"
    "  HEED_NUM_THREADS  threads, 1 to 4096 (else OMP_NUM_THREADS)\n"
    "  HEED_MAX_ISA      the best instruction set that is used: one of the names shown\n";

struct InfoFlags {
  bool json = false;

  template <typename Visitor>
  void visit(Visitor& flag) {
    flag("--json", json, "", "print JSON");
  }
};

// Why instruction_set() is what it is: the best there is, the best below a cap, or a slow one that
// is named.
std::string reason() {
  for (const InstructionSet& set : instruction_sets()) {
    if (set.isa == instruction_set() && set.slow) {
      return "HEED_MAX_ISA=" + std::string(name_of(set.isa));
    }
    if (set.isa > instruction_set() && set.compiled && set.supported && !set.slow) {
      const char* cap = std::getenv("HEED_MAX_ISA");
      return "HEED_MAX_ISA=" + std::string(cap == nullptr ? "" : cap);
    }
  }
  return "the best that this CPU and this build have";
}

// What float32, float64 and float16 have: dot products of bfloat16 are of no use to them.
Isa isa_of_other_types() {
  const Tensor one = make_tensor(DType::f32, {1, 1});
  return explain(view_of(one), view_of(one), view_of(one)).isa;
}

std::string state_of(const InstructionSet& set) {
  const Isa others = isa_of_other_types();
  if (set.isa == instruction_set()) {
    return "used: " + reason() + (set.isa == others ? "" : "; for bfloat16 only");
  }
  if (set.isa == others) return "used: for all types but bfloat16";
  if (!set.compiled) return "not in this build";
  if (!set.supported) return "not on this CPU";
  if (set.isa < instruction_set()) return "available";
  const std::string name(name_of(set.isa));
  return set.slow ? "slower on this CPU; HEED_MAX_ISA=" + name + " takes it" : "above HEED_MAX_ISA";
}

Json info_json() {
  Json json = Json::object();
  json["version"] = version();
  json["compiler"] = compiler();
  json["cpu"] = cpu_model();
  json["instruction_set"] = name_of(instruction_set());
  json["instruction_set_but_bfloat16"] = name_of(isa_of_other_types());
  json["reason"] = reason();
  json["instruction_sets"] = Json::array();
  for (const auto& set : instruction_sets()) {
    json["instruction_sets"].push_back({{"name", name_of(set.isa)},
                                        {"compiled", set.compiled},
                                        {"supported", set.supported},
                                        {"slow", set.slow}});
  }
  json["threads"] = default_threads();
  json["threads_from"] = threads_source();
  return json;
}

std::string info_text() {
  std::string text;
  text += "heed      " + std::string(version()) + "\n";
  text += "compiler  " + compiler() + "\n";
  text += "CPU       " + one_line(cpu_model()) + "\n";
  text += format("threads   %d, from %s\n", default_threads(), threads_source().c_str());
  text += "instruction sets\n";
  for (const auto& set : instruction_sets()) {
    text += format("  %-12s %s\n", std::string(name_of(set.isa)).c_str(), state_of(set).c_str());
  }
  return text;
}

}  // namespace

Action add_info(CLI::App& root) {
  CLI::App& app = add_command(root, "info", "CPU, instruction sets, threads, version", kExamples);
  auto flags = std::make_shared<InfoFlags>();
  AddFlags add(app);
  flags->visit(add);
  return [flags] { print(flags->json ? info_json().dump(2) + "\n" : info_text()); };
}

}  // namespace heed::cli
