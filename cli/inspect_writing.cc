// Where an inspection's files go: checked before anything is computed, written when all of it is there.
#include "inspect_writing.h"

#include <filesystem>
#include <system_error>

#include "exit_codes.h"
#include "heed/error.h"
#include "heed/io.h"
#include "machine.h"
#include "run_inputs.h"

namespace heed::cli {
namespace {

namespace fs = std::filesystem;

/// Every file that the run reads.
std::vector<std::string> files_read(const InspectFlags& flags) {
  std::vector<std::string> paths = input_paths(flags);
  if (flags.files.empty()) paths.push_back(data_file("it.safetensors"));
  for (const auto& path : {flags.tokens, flags.against}) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

/// One file, whatever links lead to it.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  const fs::path first = fs::weakly_canonical(a, error);
  if (error) return false;
  const fs::path second = fs::weakly_canonical(b, error);
  return !error && first == second;
}

void refuse_files_read(const InspectFlags& flags, const char* flag, const std::string& path) {
  for (const std::string& read : files_read(flags)) {
    if (same_file(path, read)) {
      throw UsageError(std::string(flag) + ": " + path + " is the input " + read);
    }
  }
}

/// check_writable wants a tensor file's name, and tells of it: escaped, and shortened where it is long.
void check_new_file(const std::string& path, const std::string& told) {
  try {
    check_writable(path + ".npy");
  } catch (const Error& error) {
    std::string message = error.what();
    const auto end = message.find(".npy: cannot ");
    if (end != std::string::npos) message.replace(0, end + 4, told);
    throw Failure(exit_code_of(error.kind()), message);
  }
}

void check_page(const std::string& path) {
  std::error_code error;
  const fs::path resolved =
      fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : fs::path(path);
  if (fs::exists(resolved, error) && !fs::is_regular_file(resolved, error)) {
    throw Failure(ExitCode::io, path + ": cannot write: it exists and is no regular file");
  }
  check_new_file(resolved.string(), path);
}

/// The folder may not be there yet: then the nearest one above it counts.
void check_folder(const std::string& folder) {
  std::error_code error;
  fs::path place = fs::absolute(folder, error);
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  if (!fs::is_directory(place, error)) {
    throw Failure(ExitCode::io,
                  folder + ": cannot make the folder: " + place.string() + " is no folder");
  }
  check_new_file((place / ".heed").string(), folder);
}

}  // namespace

void check_places(const InspectFlags& flags) {
  if (!flags.html.empty()) {
    refuse_files_read(flags, "--html", flags.html);
    check_page(flags.html);
  }
  if (!flags.pictures.empty()) check_folder(flags.pictures);
}

void check_pictures(const InspectFlags& flags, const std::vector<Picture>& pictures) {
  for (const Picture& picture : pictures) {
    const std::string path = flags.pictures + "/" + picture.name;
    refuse_files_read(flags, "--pictures", path);
    if (!flags.html.empty() && same_file(path, flags.html)) {
      throw UsageError("--pictures: " + path + " is the page of --html");
    }
  }
}

}  // namespace heed::cli
