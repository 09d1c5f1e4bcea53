// Walks the directory of a .npz and asks where each part begins and ends. Numbers are those of the zip format
// (APPNOTE 6.3.9): 4.3.7 member, 4.3.9 data descriptor, 4.3.12 directory, 4.3.14 to 4.3.16 end records, 4.5.3 zip64.
#include "io/npz_layout.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "io/messages.h"

namespace heed::io {
namespace {

constexpr std::uint64_t kInZip64 = 0xFFFFFFFF;  // the number stands in an extra field, in 8 bytes
constexpr std::uint64_t kDescribedAfter = 8;    // a flag: CRC and sizes stand behind the data, too

/// The first `Bytes` of a record, with the numbers at their offsets.
template <std::size_t Bytes>
class Record {
 public:
  Record(const InputFile& file, std::int64_t offset) { file.read(bytes_, offset, "archive"); }

  [[nodiscard]] bool begins_with(std::string_view magic) const {
    return text_of(std::span(bytes_).first(magic.size())) == magic;
  }
  [[nodiscard]] std::uint64_t number(std::size_t at, std::size_t bytes) const {
    return little_endian(std::span(bytes_).subspan(at, bytes));
  }
  [[nodiscard]] std::int64_t length(std::size_t at) const {
    return static_cast<std::int64_t>(number(at, 2));
  }

 private:
  std::array<std::byte, Bytes> bytes_;
};

struct Part {
  std::int64_t begin;
  std::int64_t end;
  bool described_after;
};

/// The part of `size` bytes from `begin`. One beyond the file, which libzip refuses, would end where the file does.
Part part(const InputFile& file, std::uint64_t begin, std::uint64_t size) {
  const auto most = static_cast<std::uint64_t>(file.size());
  const std::uint64_t from = std::min(begin, most);
  return {static_cast<std::int64_t>(from),
          static_cast<std::int64_t>(from + std::min(size, most - from)), false};
}

/// Refuses another beginning than where the part before it ends.
void expect_begin(const InputFile& file, const std::string& what, std::int64_t begin,
                  std::int64_t end_before) {
  if (begin == end_before) return;
  const bool hole = begin > end_before;
  refuse(file.label(), what + " right after the part before it",
         (hole ? "a hole of " : "an overlap of ") +
             count_of(hole ? begin - end_before : end_before - begin, "byte"),
         std::min(begin, end_before));
}

Part find_directory(const InputFile& file, std::int64_t end) {
  constexpr std::int64_t kLocator = 20, kUncounted = 12;  // the record's magic and its size
  if (end >= kLocator) {
    const Record<kLocator> locator(file, end - kLocator);
    if (locator.begins_with({"PK\6\7", 4})) {
      const std::int64_t at = part(file, locator.number(8, 8), 0).begin;
      const Record<56> record(file, at);
      const Part rest =
          part(file, static_cast<std::uint64_t>(at + kUncounted), record.number(4, 8));
      expect_begin(file, "the zip64 end locator", end - kLocator, rest.end);
      const Part directory = part(file, record.number(48, 8), record.number(40, 8));
      expect_begin(file, "the zip64 end record", at, directory.end);
      return directory;
    }
  }
  const Record<22> record(file, end);
  const Part directory = part(file, record.number(16, 4), record.number(12, 4));
  expect_begin(file, "the end record", end, directory.end);
  return directory;
}

/// What stands for numbers that are kInZip64, in the order in which the format has them.
void widen(const InputFile& file, const Part& extra, std::array<std::uint64_t*, 3> numbers) {
  for (std::int64_t at = extra.begin; at + 4 <= extra.end;) {
    const Record<4> head(file, at);
    const std::int64_t end = at + 4 + head.length(2);
    if (head.length(0) == 1) {
      at += 4;
      for (std::uint64_t* const number : numbers) {
        if (*number != kInZip64 || at + 8 > end) continue;
        *number = Record<8>(file, at).number(0, 8);
        at += 8;
      }
      return;
    }
    at = end;
  }
}

/// The member that the directory's record at `at` tells of; `at` becomes the next one's place.
Part find_member(const InputFile& file, std::int64_t& at) {
  const Record<46> record(file, at);
  std::uint64_t size = record.number(24, 4), packed = record.number(20, 4),
                begin = record.number(42, 4);
  const std::int64_t extra = at + 46 + record.length(28);
  widen(file, {extra, extra + record.length(30), false}, {&size, &packed, &begin});
  at = extra + record.length(30) + record.length(32);

  const Record<30> local(file, part(file, begin, 0).begin);
  const std::uint64_t head = 30 + local.number(26, 2) + local.number(28, 2);
  Part member = part(file, begin + head, packed);
  member.begin -= static_cast<std::int64_t>(head);
  member.described_after = (record.number(8, 2) & kDescribedAfter) != 0;
  return member;
}

/// Whether as many bytes may be a data descriptor: with a magic or without, in zip64 or not.
bool may_describe(std::int64_t bytes) {
  return bytes == 12 || bytes == 16 || bytes == 20 || bytes == 24;
}

}  // namespace

void check_layout(const InputFile& file, std::int64_t end) {
  const Part directory = find_directory(file, end);
  std::vector<Part> members;
  std::int64_t at = directory.begin;
  while (at < directory.end) members.push_back(find_member(file, at));
  expect_begin(file, "the end of the directory", at, directory.end);

  std::sort(members.begin(), members.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  members.push_back({directory.begin, directory.begin, false});
  Part before{0, 0, false};
  for (const Part& member : members) {
    if (!before.described_after || !may_describe(member.begin - before.end)) {
      expect_begin(file, &member == &members.back() ? "the directory" : "a member", member.begin,
                   before.end);
    }
    before = member;
  }
}

}  // namespace heed::io
