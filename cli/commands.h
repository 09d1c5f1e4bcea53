// The commands: each adds itself to the command line, one file per command.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace heed::cli {

/// Runs the command with the flags that were parsed. Throws Failure or heed::Error.
using Action = std::function<void()>;

Action add_run(CLI::App& root);
Action add_inspect(CLI::App& root);
Action add_study(CLI::App& root);
Action add_bench(CLI::App& root);
Action add_info(CLI::App& root);
Action add_demo(CLI::App& root);

}  // namespace heed::cli
