// The status line: a thread that wakes five times a second and redraws one line.
#include "progress.h"

#include <unistd.h>

#include <csignal>
#include <system_error>

#include "plain_text.h"
#include "signals.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};
constexpr std::chrono::milliseconds kRedraw{200};

void write_raw(const std::string& text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

StatusLine::StatusLine(const std::string& command, bool quiet) : command_(command) {
  // A terminal's encoding is that of the locale, for which glibc loses memory where LOCPATH is set.
  if (quiet || isatty(STDERR_FILENO) != 1 || !terminal_of(STDERR_FILENO).cursor) return;
  // Those that end the command are for the thread that works, which holds them while a file takes
  // its name.
  sigset_t ending;
  sigset_t before;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&ending, signal);
  pthread_sigmask(SIG_BLOCK, &ending, &before);
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    // No thread to be had: the work goes on, only unseen.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StatusLine::~StatusLine() { end(); }

void StatusLine::end() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  watcher_.join();
  wipe_status_line();
  status_line_shown(false);
}

void StatusLine::stage(const std::string& name) {
  const std::lock_guard lock(mutex_);
  stage_ = name;
  done = 0;
  total = 0;
}

void StatusLine::watch() {
  std::unique_lock lock(mutex_);
  auto pause = kPatience;
  while (!wake_.wait_for(lock, pause, [this] { return stop_; })) {
    draw();
    pause = kRedraw;
  }
}

void StatusLine::draw() {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
  std::string line = "heed " + command_ + ": " + one_line(stage_);
  const auto all = total.load();
  if (all > 0) {
    line +=
        format(" %3.0f %%", 100.0 * static_cast<double>(done.load()) / static_cast<double>(all));
  }
  line += format("  %.0f s", elapsed.count());
  const auto width = static_cast<std::size_t>(terminal_of(STDERR_FILENO).width - 1);
  if (line.size() > width) line.resize(width);
  status_line_shown(true);
  write_raw("\r" + line + "\033[K");
}

void CountingExecutor::run(std::int64_t tasks,
                           void (*task)(void* context, std::int64_t index, int worker),
                           void* context) {
  struct Counted {
    void (*task)(void* context, std::int64_t index, int worker);
    void* context;
    StatusLine* status;
  } counted{task, context, status_};
  status_->total += tasks;
  inner_->run(
      tasks,
      [](void* raw, std::int64_t index, int worker) {
        const auto& inner = *static_cast<const Counted*>(raw);
        inner.task(inner.context, index, worker);
        inner.status->done.fetch_add(1, std::memory_order_relaxed);
      },
      &counted);
}

}  // namespace heed::cli
