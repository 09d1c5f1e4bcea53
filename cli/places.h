// Places that results go to: looked at before anything is computed, made when all of it is there;
// and whether two paths lead to one.
#pragma once

#include <string>

namespace heed::cli {

// Each throws Failure, ExitCode::io, where the system refuses, and std::bad_alloc for want of
// memory; the first two make nothing.

/// The file that write_text would make or replace.
void check_file(const std::string& path);

/// The folder, or the nearest one above it where it is not there yet.
void check_folder(const std::string& folder);

/// The folder, made if it is not there.
void make_folder(const std::string& folder);

/// One file, whatever links lead to it; of files that are not there yet, one place.
[[nodiscard]] bool is_same_file(const std::string& a, const std::string& b);

}  // namespace heed::cli
