// Places that results go to: looked at before anything is computed, made when all of it is there.
#pragma once

#include <string>

namespace heed::cli {

// Each throws Failure, ExitCode::io, where the system refuses; the first two make nothing.

/// The file that write_text would make or replace.
void check_file(const std::string& path);

/// The folder, or the nearest one above it where it is not there yet.
void check_folder(const std::string& folder);

/// The folder, made if it is not there.
void make_folder(const std::string& folder);

}  // namespace heed::cli
