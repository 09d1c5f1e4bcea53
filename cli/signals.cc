// The signal handler: wipe the status line, end by the signal.
#include "signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "exit_codes.h"

namespace heed::cli {
namespace {

std::atomic<int> g_status_line{0};  // of two threads and the handler
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void leave(int signal) {
  wipe_status_line();
  end_by(signal);
}

}  // namespace

void end_by(int signal) noexcept {
  // By the signal itself, so that a shell's loop over this command ends, too.
  struct sigaction ordinary {};
  ordinary.sa_handler = SIG_DFL;
  sigaction(signal, &ordinary, nullptr);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
  ::_exit(static_cast<int>(ExitCode::signal_base) + signal);
}

void exit_on_signals() {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of the size of files is an error of writing
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) {
    struct sigaction old {};
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = leave;
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

void wipe_status_line() noexcept {
  if (g_status_line == 0) return;
  constexpr char kWipe[] = "\r\033[K";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kWipe, sizeof kWipe - 1);
}

void status_line_shown(bool shown) noexcept { g_status_line = shown ? 1 : 0; }

}  // namespace heed::cli
