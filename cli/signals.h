// Ctrl-C and its relatives end the process at once, with the exit code that shells expect.
#pragma once

namespace heed::cli {

/// SIGINT, SIGTERM and SIGPIPE exit with 128 + their number, unless the parent ignores them.
/// Nothing needs cleaning up: results appear under their names only when they are complete.
void exit_on_signals();

/// Tells the handler whether a status line stands on stderr that it should wipe.
void status_line_shown(bool shown) noexcept;

}  // namespace heed::cli
