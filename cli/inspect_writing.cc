// Where an inspection's files go: checked before anything is computed, written when all of it is
// there.
#include "inspect_writing.h"

#include <filesystem>
#include <system_error>

#include "exit_codes.h"
#include "input_names.h"
#include "machine.h"
#include "places.h"
#include "report_data.h"
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

void refuse_files_read(const InspectFlags& flags, const char* flag, const std::string& path) {
  for (const std::string& read : files_read(flags)) {
    if (is_same_file(path, read)) {
      throw UsageError(std::string(flag) + ": " + path + " is the input " + read);
    }
  }
}

}  // namespace

void check_places(const InspectFlags& flags) {
  if (!flags.html.empty()) {
    if (flags.html == "-") {
      throw UsageError("--html: expected a file, got '-'; for a file of that name give ./-");
    }
    refuse_files_read(flags, "--html", flags.html);
    const fs::path page(flags.html);
    const fs::path in_folder = fs::path(flags.pictures) / page.filename();
    std::error_code error;
    const bool is_made = !flags.pictures.empty() && !fs::exists(flags.pictures, error) &&
                         is_same_file(in_folder.string(), flags.html);  // with the folder
    if (!is_made) check_file(flags.html);
  }
  if (flags.pictures.empty()) return;
  check_folder(flags.pictures);
  if (flags.html.empty()) return;
  // Not there yet, the page is still in the way of a folder in its place.
  for (fs::path place = fs::absolute(flags.pictures); place.has_relative_path();
       place = place.parent_path()) {
    if (is_same_file(place.string(), flags.html)) {
      throw UsageError("--pictures: " + place.string() + " is the page of --html");
    }
  }
}

std::int64_t map_cells(const InspectFlags& flags, const Call& call) {
  if (flags.html.empty()) return flags.map.value;
  return map_side(flags.map.value, call.queries(), call.keys(), call.layers() * call.heads());
}

void check_pictures(const InspectFlags& flags, const std::vector<Picture>& pictures) {
  std::error_code error;
  const bool there = fs::exists(flags.pictures, error);
  for (const Picture& picture : pictures) {
    const std::string path = flags.pictures + "/" + picture.name;
    refuse_files_read(flags, "--pictures", path);
    if (!flags.html.empty() && is_same_file(path, flags.html)) {
      throw UsageError("--pictures: " + path + " is the page of --html");
    }
    if (there) check_file(path);
  }
}

}  // namespace heed::cli
