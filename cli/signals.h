// Ctrl-C and its relatives end the process at once, as shells expect.
#pragma once

namespace heed::cli {

/// SIGINT, SIGTERM and SIGPIPE end the process by that signal, which shells tell as 128 + its
/// number, unless the parent ignores them. Nothing needs cleaning up: results appear under their
/// names only when they are complete.
void exit_on_signals();

/// Ends the process at once by a signal, as if nobody had handled it.
[[noreturn]] void end_by(int signal) noexcept;

/// Tells the handler whether a status line stands on stderr that it should wipe.
void status_line_shown(bool shown) noexcept;

/// Wipes the status line, if there is one: before anything else is written.
void wipe_status_line() noexcept;

}  // namespace heed::cli
