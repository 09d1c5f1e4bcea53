// F5: lines of text as the arguments of the program, in one process and in an empty folder of its
// own with a few small inputs. It ends with one of the documented exit codes, and a refusal is one
// line.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef HEED_FUZZ
#include <sanitizer/common_interface_defs.h>
#endif

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <vector>

#include "command_line.h"
#include "reading.h"

namespace {

using heed_fuzz::expect;

heed::Tensor ramp(std::vector<std::int64_t> shape) {
  heed::Tensor tensor = heed::make_tensor(heed::DType::f32, std::move(shape));
  auto* x = reinterpret_cast<float*>(tensor.data.data());
  for (std::size_t i = 0; i < tensor.data.size() / sizeof(float); ++i)
    x[i] = static_cast<float>(i % 7) / 4 - 0.5F;
  return tensor;
}

/// The folder where the process works, as it was at first.
void fill() {
  for (const auto& entry : std::filesystem::directory_iterator(heed_fuzz::folder()))
    std::filesystem::remove_all(entry.path());
  heed::write_tensors("x.npz", {.tensors = {{"q", ramp({1, 2, 3, 4})},
                                            {"k", ramp({1, 1, 5, 4})},
                                            {"v", ramp({1, 1, 5, 3})},
                                            {"d_output", ramp({1, 2, 3, 3})}}});
  heed::write_tensors("y.safetensors", {.tensors = {{"q", ramp({6, 4})}, {"k", ramp({6, 4})}}});
  heed::write_tensors("q.npy", {.tensors = {{"", ramp({3, 4})}}});
}

/// What would leave the folder or compute for more than some milliseconds does not: of the studies
/// two do not.
std::vector<std::string> decode(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> arguments{"heed"};
  std::string text(reinterpret_cast<const char*>(data), size);
  std::ranges::replace(text, '/', '_');
  std::ranges::replace(text, '\0', ' ');
  for (std::size_t at = 0; (at = text.find("..", at)) != std::string::npos;) text[at] = '_';
  for (std::size_t at = 0; at < text.size() && arguments.size() < 40;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    arguments.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  const auto has = [&](const char* word) { return std::ranges::count(arguments, word) > 0; };
  constexpr const char* kLong[] = {"all",        "variance", "gradients", "strategies",
                                   "complexity", "masks",    "precision", "training"};
  const bool long_study = has("study") && std::ranges::any_of(kLong, has);
  if (has("bench") || has("demo") || long_study) arguments.emplace_back("--no-such-flag");
  return arguments;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int errors = memfd_create("stderr", 0), nothing = open("/dev/null", O_WRONLY);
  static int runs = 0;
  if (runs == 0) expect(chdir(heed_fuzz::folder().c_str()) == 0, "a folder");
  if (runs++ % 256 == 0) fill();
  std::vector<std::string> arguments = decode(data, size);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  // What it says on stderr goes to a file; what this program and its sanitizers say there must not.
  std::fflush(stdout);
  const int out = dup(1), err = dup(2);
  expect(ftruncate(errors, 0) == 0 && lseek(errors, 0, SEEK_SET) == 0, "an empty stderr");
  dup2(nothing, 1);
  dup2(errors, 2);
#ifdef HEED_FUZZ
  __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<std::intptr_t>(err)));
#endif
  const int code = heed::cli::run_command_line(static_cast<int>(arguments.size()), argv.data());
  std::fflush(stdout);
  std::cout.flush();
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);

  std::string message(static_cast<std::size_t>(std::max<off_t>(lseek(errors, 0, SEEK_END), 0)),
                      ' ');
  expect(pread(errors, message.data(), message.size(), 0) >= 0, "reading stderr");
  expect(code >= 0 && code <= 6, "exit code", std::to_string(code) + ", " + message);
  if (code != 0) {
    expect(message.starts_with("heed") && message.ends_with('\n'), "no message", message);
    expect(message.find(": ") != std::string::npos, "no command before the message", message);
  }
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    expect((byte >= 0x20 && byte != 0x7F) || c == '\n', "control characters", message);
  }
  return 0;
}
