// Runs a fuzz target without a fuzzer: on the inputs of a corpus, each after its length in four bytes, or
// with --one on a file that is one input.   fuzz_npy tests/fuzz/corpus/npy.inputs
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz.h"

namespace {

std::size_t input_number = 0;

extern "C" void tell_input(int signal) {
  std::fprintf(stderr, "input %zu, counted from 0\n", input_number);  // the process ends anyway
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

int main(int argc, char** argv) {
  const bool one = argc == 3 && std::strcmp(argv[1], "--one") == 0;
  if (argc != 2 && !one) {
    std::fprintf(stderr, "usage: %s CORPUS.inputs | --one FILE\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[argc - 1], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (one) return LLVMFuzzerTestOneInput(data, bytes.size());
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, tell_input);
  std::size_t& inputs = input_number;
  for (std::size_t at = 0; at + 4 <= bytes.size(); ++inputs) {
    std::uint32_t size = 0;
    for (std::size_t i = 4; i-- > 0;) size = size << 8U | data[at + i];
    at += 4;
    if (size > bytes.size() - at) return 1;
    // Memory of its own, so that what is read beyond an input is seen.
    const std::vector<std::uint8_t> input(data + at, data + at + size);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    at += size;
  }
  std::printf("%zu inputs\n", inputs);
  return inputs == 0 ? 1 : 0;  // a corpus that is not there proves nothing
}
