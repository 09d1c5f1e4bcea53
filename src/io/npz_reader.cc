// Reads .npz: libzip walks the archive and inflates.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "heed/error.h"
#include "io/messages.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/npz_layout.h"
#include "io/zip_source.h"

namespace heed::io {
namespace {

constexpr std::uint64_t kMaxRatio = 1100;
constexpr std::int64_t kEndRecord = 22;  // without its comment
constexpr std::string_view kEndMagic{"PK\5\6", 4};

struct Closer {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};

/// Where the last end-of-archive record starts, and where it ends with its comment.
struct End {
  std::int64_t start;
  std::int64_t end;
};

End find_end(const InputFile& file) {
  constexpr std::int64_t kWindow = kEndRecord + 0xFFFF;
  std::vector<std::byte> tail(static_cast<std::size_t>(std::min(file.size(), kWindow)));
  const std::int64_t base = file.size() - static_cast<std::int64_t>(tail.size());
  file.read(tail, base, "archive");
  for (std::int64_t at = static_cast<std::int64_t>(tail.size()) - kEndRecord; at >= 0; --at) {
    const auto record = std::span(tail).subspan(static_cast<std::size_t>(at));
    if (text_of(record.first(kEndMagic.size())) != kEndMagic) continue;
    const auto comment = static_cast<std::int64_t>(little_endian(record.subspan(20, 2)));
    const std::int64_t behind = file.size() - (base + at + kEndRecord);
    if (comment > behind) {  // zipfile of Python would take this record, libzip one before it
      refuse(file.label(), "a comment of " + count_of(comment, "byte") + " behind the end record",
             std::to_string(behind), base + at);
    }
    return {base + at, base + at + kEndRecord + comment};
  }
  refuse(file.label(), "the end record of a zip archive", "none in the last 64 KiB", file.size());
}

class Archive {
 public:
  Archive(const InputFile& file, End end) : file_(file), end_(end), source_(file, end.end) {
    ZipError error;
    zip_source_t* source = zip_source_function_create(ZipSource::call, &source_, &error.state);
    if (source == nullptr) refuse(error.state);
    // libzip 1.7.3 finds no archive where an allocation failed while it read one; asked again, it
    // opens it. Where memory is lacking for longer, none is left for a message either: bad_alloc.
    for (int tries = 0; tries < 2 && zip_ == nullptr; ++tries) {
      zip_.reset(zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error.state));
      if (zip_error_code_zip(&error.state) != ZIP_ER_NOZIP) break;
    }
    if (zip_ == nullptr) {
      zip_source_free(source);
      refuse(error.state);
    }
    // Where there are several, libzip has chosen the end record that the length of its comment
    // tells.
    int comment = 0;
    zip_get_archive_comment(zip_.get(), &comment, ZIP_FL_ENC_RAW);
    if (comment != end.end - end.start - kEndRecord) {
      io::refuse(file.label(), "one end record of a zip archive",
                 "another one in its comment or in what is before it", end.start);
    }
  }

  /// Throws what reading the file threw, if it did: libzip may say something else of it.
  void rethrow() const { source_.rethrow(); }

  [[nodiscard]] zip_t* get() const noexcept { return zip_.get(); }

  /// Throws what libzip's error means. The offset is the end record's: libzip tells none.
  [[noreturn]] void refuse(zip_error_t& error) const {
    source_.rethrow();
    const int code = zip_error_code_zip(&error);
    if (code == ZIP_ER_MEMORY) {
      throw Error(ErrorKind::memory,
                  file_.label() + ": cannot allocate memory to read the archive");
    }
    const std::string found = code == ZIP_ER_EXISTS ? "a name that occurs twice"
                              : code == ZIP_ER_INCONS
                                  ? "headers that disagree with each other or with the file's size"
                                  : zip_error_strerror(&error);
    io::refuse(file_.label(), "a consistent zip archive", found, end_.start);
  }

 private:
  const InputFile& file_;
  End end_;
  ZipSource source_;
  std::unique_ptr<zip_t, Closer> zip_;
};

/// The inflated bytes of a member.
class Member final : public Stream {
 public:
  Member(const Archive& archive, zip_uint64_t index, std::string label, std::int64_t size)
      : Stream(std::move(label), size), archive_(archive) {
    member_.reset(zip_fopen_index(archive.get(), index, 0));
    if (member_ == nullptr) archive.refuse(*zip_get_error(archive.get()));
  }

  /// Reads to the end, where libzip compares the CRC-32.
  void finish() {
    for (std::byte rest[4096]; remaining() > 0;) {
      const auto bytes = std::min<std::int64_t>(remaining(), sizeof rest);
      read(std::span(rest).first(static_cast<std::size_t>(bytes)), "data");
    }
    std::byte none;
    const zip_int64_t got = zip_fread(member_.get(), &none, 1);
    if (got > 0) refuse("the end of the member", "more bytes than its header says", offset());
    if (got < 0) complain();
  }

 private:
  void fill(std::span<std::byte> to) override {
    while (!to.empty()) {
      const zip_int64_t got = zip_fread(member_.get(), to.data(), to.size());
      if (got < 0) complain();
      if (got == 0) archive_.rethrow();
      if (got == 0) refuse("more data in the member", "its end", offset());
      to = to.subspan(static_cast<std::size_t>(got));
    }
  }

  [[noreturn]] void complain() {
    archive_.rethrow();
    zip_error_t& error = *zip_file_get_error(member_.get());
    const int code = zip_error_code_zip(&error);
    if (code == ZIP_ER_CRC) refuse("data that fit their CRC-32", "other data", offset());
    if (code == ZIP_ER_MEMORY) archive_.refuse(error);
    refuse("deflated data that inflate to what the header says", zip_error_strerror(&error),
           offset());
  }

  const Archive& archive_;
  std::unique_ptr<zip_file_t, Closer> member_;
};

std::string tensor_name(const std::string& label, std::string_view name, std::int64_t offset) {
  if (!is_legal_member(name)) {
    refuse(label, "a relative name without \"..\"", in_quotes(name), offset);
  }
  if (!name.ends_with(".npy")) refuse(label, "a name that ends in .npy", in_quotes(name), offset);
  return std::string(name.substr(0, name.size() - 4));
}

void check(const std::string& label, const zip_stat_t& stat, std::int64_t offset) {
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  if ((stat.valid & kNeeded) != kNeeded) refuse(label, "a complete member", "none", offset);
  if (stat.encryption_method != ZIP_EM_NONE) {
    refuse(label, "a member without encryption", "an encrypted one", offset);
  }
  const bool stored = stat.comp_method == ZIP_CM_STORE;
  if (!stored && stat.comp_method != ZIP_CM_DEFLATE) {
    refuse(label, "a member that is stored or deflated",
           "method " + std::to_string(stat.comp_method), offset);
  }
  const std::string sizes =
      std::to_string(stat.size) + " from " + std::to_string(stat.comp_size) + " bytes";
  if (stat.size > static_cast<zip_uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
      (stored ? stat.size != stat.comp_size
              : (stat.size + kMaxRatio - 1) / kMaxRatio > stat.comp_size)) {
    refuse(label,
           stored ? "as many bytes as are stored" : "at most 1100 bytes from each deflated one",
           sizes, offset);
  }
}

}  // namespace

bool is_legal_member(std::string_view name) noexcept {
  if (name.starts_with('/') || name.starts_with('\\') || (name.size() > 1 && name[1] == ':')) {
    return false;
  }
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("/\\", at), name.size());
    if (name.substr(at, end - at) == "..") return false;
    at = end + 1;
  }
  return name.find('\0') == std::string_view::npos;
}

void read_npz(const InputFile& file, Budget& budget, bool allow_trailing, TensorFile& result) {
  const End end = find_end(file);
  if (end.end < file.size() && !allow_trailing) {
    refuse(file.label(), "the end of the file",
           count_of(file.size() - end.end, "byte") + " after the zip archive", end.end);
  }
  result.trailing_bytes = file.size() - end.end;
  const Archive archive(file, end);
  check_layout(file, end.start);
  const zip_int64_t members = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < members; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    zip_stat_t stat;
    if (zip_stat_index(archive.get(), index, 0, &stat) != 0) {
      archive.refuse(*zip_get_error(archive.get()));
    }
    const std::string_view member_name = stat.name == nullptr ? "" : stat.name;
    const std::string name = tensor_name(file.label(), member_name, end.start);
    const std::string label = file.label() + ": member " + in_quotes(member_name);
    check(label, stat, end.start);
    if (result.tensors.contains(name)) {
      refuse(file.label(), "each name once", in_quotes(member_name) + " again", end.start);
    }
    Member member(archive, index, label, static_cast<std::int64_t>(stat.size));
    std::int64_t trailing = 0;
    Tensor tensor = read_npy(member, budget, allow_trailing ? &trailing : nullptr);
    member.finish();
    result.trailing_bytes += trailing;
    result.tensors.emplace(name, std::move(tensor));
  }
}

}  // namespace heed::io
