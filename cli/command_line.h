// The command line as a whole: words in, an exit code out.
#pragma once

namespace heed::cli {

/// Runs the command that the words name, of which argv[0] is the program's: results on stdout or in
/// files, messages on stderr, SIGINT, SIGTERM and SIGPIPE ending the process. Returns one of
/// exit_codes.h; throws nothing.
int run_command_line(int argc, char** argv);

}  // namespace heed::cli
