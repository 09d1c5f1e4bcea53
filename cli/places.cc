// Places that results go to: looked at before anything is computed, made when all of it is there.
#include "places.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "exit_codes.h"
#include "heed/error.h"
#include "heed/io.h"

namespace heed::cli {
namespace {

namespace fs = std::filesystem;

/// check_writable wants a tensor file's name, here one as long as this file's, and tells of it:
/// escaped, and shortened where it is long.
void check_new_file(const fs::path& path, const std::string& told) {
  constexpr std::string_view kEnding = ".npy";
  std::string name = path.filename().string();
  name.replace(name.size() - std::min(name.size(), kEnding.size()), std::string::npos, kEnding);
  try {
    check_writable((path.parent_path() / name).string());
  } catch (const Error& error) {
    std::string message = error.what();
    const auto end = message.find(".npy: cannot ");
    if (end != std::string::npos) message.replace(0, end + kEnding.size(), told);
    throw Failure(exit_code_of(error.kind()), message);
  }
}

/// Functions of paths give a code for want of memory, too, which is no fault of a place.
void throw_if_no_memory(const std::error_code& error) {
  if (error == std::errc::not_enough_memory) throw std::bad_alloc();
}

[[noreturn]] void refuse_folder(const std::string& folder, const std::error_code& error) {
  throw_if_no_memory(error);
  throw Failure(ExitCode::io, folder + ": cannot make the folder: " + error.message());
}

}  // namespace

void check_file(const std::string& path) {
  std::error_code error;
  const fs::path resolved =
      fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : fs::path(path);
  throw_if_no_memory(error);
  if (fs::exists(resolved, error) && !fs::is_regular_file(resolved, error)) {
    throw Failure(ExitCode::io, path + ": cannot write: it exists and is no regular file");
  }
  check_new_file(resolved, path);
}

void check_folder(const std::string& folder) {
  std::error_code error;
  fs::path place = fs::absolute(folder, error);
  if (error) refuse_folder(folder, error);
  // A link that leads nowhere is there too, and no folder is made in its place.
  while (!fs::exists(fs::symlink_status(place, error)) && place.has_relative_path()) {
    if (error == std::errc::filename_too_long) refuse_folder(folder, error);
    place = place.parent_path();
  }
  if (!fs::is_directory(place, error)) {
    throw Failure(ExitCode::io,
                  folder + ": cannot make the folder: " + place.string() + " is no folder");
  }
  check_new_file(place / ".heed", folder);
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && !fs::is_directory(folder)) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) refuse_folder(folder, error);
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (a == b || fs::equivalent(a, b, error)) return true;
  // What is not there at all would stay relative, or not.
  const auto whole = [&](const std::string& path) {
    fs::path found = fs::absolute(path, error);
    if (!error) found = fs::weakly_canonical(found, error);
    throw_if_no_memory(error);
    return found;
  };
  const fs::path first = whole(a);
  if (error) return false;
  const fs::path second = whole(b);
  return !error && first == second;
}

}  // namespace heed::cli
