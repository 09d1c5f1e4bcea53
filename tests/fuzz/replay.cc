// Runs a fuzz target without a fuzzer: on the inputs of corpora, each after its length in four
// bytes, or with --one on a file that is one input.   fuzz_npy tests/fuzz/corpus/npy.*
// With --part 1/3 on the second of each three inputs.
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"

namespace {

const char* corpus = "";
std::size_t input_number = 0;
std::size_t part = 0, parts = 1;  // runs the inputs whose number leaves `part` when divided

extern "C" void tell_input(int signal) {
  std::fprintf(stderr, "input %zu of %s, counted from 0\n", input_number,
               corpus);  // it ends anyway
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::vector<std::uint8_t> bytes_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  return {bytes, bytes + text.size()};
}

/// False if there is none, which proves nothing, or they are not whole.
bool run_all(const std::vector<std::uint8_t>& bytes) {
  input_number = 0;
  std::size_t run = 0;
  for (std::size_t at = 0; at < bytes.size(); ++input_number) {
    std::uint32_t size = 0;
    if (bytes.size() - at < 4) return false;
    for (std::size_t i = 4; i-- > 0;) size = size << 8U | bytes[at + i];
    at += 4;
    if (size > bytes.size() - at) return false;
    // Memory of its own, so that what is read beyond an input is seen.
    const std::vector<std::uint8_t> input(bytes.data() + at, bytes.data() + at + size);
    at += size;
    if (input_number % parts != part) continue;
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++run;
  }
  std::printf("%zu of %zu inputs of %s\n", run, input_number, corpus);
  return input_number > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--one") == 0) {
    const std::vector<std::uint8_t> input = bytes_of(argv[2]);
    return LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  int first = 1;
  if (argc > 2 && std::strcmp(argv[1], "--part") == 0) {
    char end = 0;
    const int read = std::sscanf(argv[2], "%zu/%zu%c", &part, &parts, &end);
    first = read == 2 && part < parts ? 3 : argc;
  }
  if (first >= argc) {
    std::fprintf(stderr, "usage: %s [--part N/PARTS] CORPUS.. | --one FILE\n", argv[0]);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, tell_input);
  // All are read before any runs: a target may go to a folder of its own.
  std::vector<std::pair<const char*, std::vector<std::uint8_t>>> corpora;
  for (int n = first; n < argc; ++n) corpora.emplace_back(argv[n], bytes_of(argv[n]));
  for (const auto& [path, bytes] : corpora) {
    corpus = path;
    if (!run_all(bytes)) {
      std::fprintf(stderr, "no corpus: %s\n", corpus);
      return 1;
    }
  }
  return 0;
}
