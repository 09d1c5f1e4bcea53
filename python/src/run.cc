// The executor that listens to Ctrl-C, and the translation of errors.
#include "run.h"

#include <unistd.h>

#include <array>
#include <cctype>
#include <string_view>
#include <thread>

#include "heed/error.h"
#include "heed/tensor.h"

// Python has the first from 3.13 on, before it the second; neither is in the stable ABI of 3.11.
extern "C" {
[[gnu::weak]] int Py_IsFinalizing();
[[gnu::weak]] int _Py_IsFinalizing();
}

namespace heed::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::milliseconds kPatience{50};

/// Python's error is set; only thrown and caught by this file.
struct Interrupted {};

/// This is the child of a fork in the midst of a call; only thrown and caught by this file.
struct Forked {};

// Set by the thread that ends Python: before it does, and when there is no interpreter any more.
std::atomic<bool> ending{false}, ended{false};
std::thread::id ending_thread;

/// Whether the interpreter is being taken apart, or was: not yet while handlers of atexit run, one
/// of which may wait for a thread. The GIL is not needed to ask; a Python that cannot be asked
/// counts as ending.
bool finalizing() {
  if (ended.load()) return true;
  if (Py_IsFinalizing != nullptr) return Py_IsFinalizing() != 0;
  return _Py_IsFinalizing == nullptr || _Py_IsFinalizing() != 0;
}

/// Calls what takes the GIL. A thread that still computes when the interpreter ends does not get
/// it: Python calls pthread_exit, with which glibc unwinds the stack, and C++ answers that with
/// std::terminate at the first destructor. So the thread waits here for the end of the process, as
/// Python from 3.14 on lets it; a program that embeds Python must not join it after that.
/// Once Python has taken itself apart it must not be asked at all: see python_ends.
template <typename Take>
void take_gil_or_wait_for_exit(Take take) {
  while (ending.load() && std::this_thread::get_id() != ending_thread && finalizing()) pause();
  try {
    take();
  } catch (...) {  // nothing but that unwinding; a return would let it go on
    for (;;) pause();
  }
}

/// Without the GIL in a scope.
struct Released {
  Released() : state(PyEval_SaveThread()) {}
  ~Released() {
    take_gil_or_wait_for_exit([&] { PyEval_RestoreThread(state); });
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

  PyThreadState* state;
};

/// With it again.
struct Acquired {
  Acquired() {
    take_gil_or_wait_for_exit([&] { state = PyGILState_Ensure(); });
  }
  ~Acquired() { PyGILState_Release(state); }
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;

  PyGILState_STATE state{};
};

/// What C++ and Python call differently.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kWords{{
    {"mask.keep", "mask (keep)"},
    {"mask.drop", "mask (drop)"},
    {"mask.", ""},
    {"options.", ""},
    {"tangents.", "tangent_"},
    {"outputs.", ""},
    {"dropout.p", "dropout_p"},
    {"dropout.seed", "seed"},
    {"bias is absent", "bias is None"},
    {"weights is given together", "return_weights is given together"},
}};

/// heed says "k is float64, ..." where an element type is wrong, and only there.
bool is_about_types(std::string_view message) {
  for (int i = 0; i <= static_cast<int>(DType::f64); ++i) {
    const std::string phrase = " is " + std::string(name_of(static_cast<DType>(i)));
    if (message.find(phrase) != std::string_view::npos) return true;
  }
  return false;
}

/// The message with the word `bias` as `name`: not in dbias and tangent_bias.
std::string with_bias_called(const char* name, std::string message) {
  constexpr std::string_view kWord = "bias";
  const auto in_word = [&](std::size_t at) {
    return at < message.size() &&
           (std::isalnum(static_cast<unsigned char>(message[at])) != 0 || message[at] == '_');
  };
  for (auto at = message.find(kWord); at != std::string::npos; at = message.find(kWord, at + 1)) {
    if (!in_word(at + kWord.size()) && (at == 0 || !in_word(at - 1)))
      message.replace(at, kWord.size(), name);
  }
  return message;
}

[[noreturn]] void raise(const char* function, const Error& error, const char* bias) {
  const std::string message = with_bias_called(bias, in_python_words(function, error.what()));
  switch (error.kind()) {
    case ErrorKind::memory:
      PyErr_SetString(PyExc_MemoryError, message.c_str());
      throw nb::python_error();
    case ErrorKind::io:
      PyErr_SetString(PyExc_OSError, message.c_str());
      throw nb::python_error();
    case ErrorKind::argument:
    case ErrorKind::format:
      break;
  }
  if (is_about_types(message)) throw nb::type_error(message.c_str());
  throw nb::value_error(message.c_str());
}

}  // namespace

void python_ends() {
  ending_thread = std::this_thread::get_id();
  ending.store(true);
}

void python_has_ended() { ended.store(true); }

std::string in_python_words(const char* function, std::string message) {
  if (const auto end = message.find(": "); end != std::string::npos) {
    const std::string_view first(message.data(), end);
    if (first.find(' ') == std::string_view::npos) message.erase(0, end + 2);
  }
  const std::string_view caller(function);
  if ((caller == "attention" || caller == "attention_decode") && message.starts_with("output "))
    message.erase(3, 3);
  for (const auto& [ours, theirs] : kWords) {
    for (auto at = message.find(ours); at != std::string::npos; at = message.find(ours, at)) {
      message.replace(at, ours.size(), theirs);
      at += theirs.size();
    }
  }
  // merge's parts are two lists here: parts[2].lse is lses[2].
  for (auto at = message.find("parts["); at != std::string::npos; at = message.find("parts[", at)) {
    const auto dot = message.find("].", at);
    if (dot == std::string::npos) break;
    const bool is_lse = message.compare(dot + 2, 3, "lse") == 0;
    const std::string place = message.substr(at + 5, dot + 1 - (at + 5));
    const std::string name = (is_lse ? "lses" : "outputs") + place;
    message.replace(at, dot + 2 + (is_lse ? 3 : 6) - at, name);
    at += name.size();
  }
  return std::string(function) + ": " + message;
}

struct InterruptibleExecutor::Watched {
  InterruptibleExecutor* self;
  void (*task)(void* context, std::int64_t index, int worker);
  void* context;
  std::thread::id caller;
  std::atomic<bool> stop{false};
  pid_t process = getpid();
  bool forked = false;

  void look() {
    const auto now = std::chrono::steady_clock::now();
    if (now - self->looked_ < kPatience) return;
    const Acquired gil;
    const bool raised = PyErr_CheckSignals() != 0;
    // Tasks that other threads had begun are lost to the child, which has only this one.
    forked = !raised && self->workers() > 1 && getpid() != process;
    if (raised || forked) stop.store(true, std::memory_order_relaxed);
    self->looked_ = std::chrono::steady_clock::now();
  }
};

void InterruptibleExecutor::run(std::int64_t tasks,
                                void (*task)(void* context, std::int64_t index, int worker),
                                void* context) {
  Watched watched{this, task, context, std::this_thread::get_id()};
  pool_.run(
      tasks,
      [](void* raw, std::int64_t index, int worker) {
        auto& seen = *static_cast<Watched*>(raw);
        if (seen.stop.load(std::memory_order_relaxed)) return;
        seen.task(seen.context, index, worker);
        if (std::this_thread::get_id() == seen.caller) seen.look();
      },
      &watched);
  if (watched.forked) throw Forked{};
  if (watched.stop.load(std::memory_order_relaxed)) throw Interrupted{};
}

void run_without_gil(const char* function, const std::function<void()>& work, const char* bias) {
  try {
    const Released released;
    work();
  } catch (const Interrupted&) {
    throw nb::python_error();
  } catch (const Forked&) {
    const std::string message =
        std::string(function) +
        ": a handler of a signal forked during the call, and its child lacks the threads that "
        "shared the work; expected a fork between calls, or threads=1";
    PyErr_SetString(PyExc_RuntimeError, message.c_str());
    throw nb::python_error();
  } catch (const Error& error) {
    raise(function, error, bias);
  }
}

}  // namespace heed::python
