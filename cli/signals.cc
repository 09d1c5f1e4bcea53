// The signal handler: wipe the status line, leave.
#include "signals.h"

#include <unistd.h>

#include <csignal>

#include "exit_codes.h"

namespace heed::cli {
namespace {

volatile std::sig_atomic_t g_status_line = 0;

extern "C" void leave(int signal) {
  if (g_status_line != 0) {
    constexpr char kWipe[] = "\r\033[K";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kWipe, sizeof kWipe - 1);
  }
  ::_exit(static_cast<int>(ExitCode::signal_base) + signal);
}

}  // namespace

void exit_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) {
    struct sigaction old {};
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = leave;
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

void status_line_shown(bool shown) noexcept { g_status_line = shown ? 1 : 0; }

}  // namespace heed::cli
