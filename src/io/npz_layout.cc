// Walks the directory of a .npz and asks where each part begins and ends. Numbers are those of the
// zip format (APPNOTE 6.3.9): 4.3.7 member, 4.3.9 data descriptor, 4.3.12 directory, 4.3.14 to
// 4.3.16 end records, 4.5.3 zip64.
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
};

struct Member {
  Part part;
  bool described_after;
  std::uint64_t crc, packed, size;
};

/// An offset; one beyond the file, which libzip refuses, is the file's end.
std::int64_t within(const InputFile& file, std::uint64_t offset) {
  return static_cast<std::int64_t>(std::min(offset, static_cast<std::uint64_t>(file.size())));
}

/// The part of `size` bytes from `begin`, as far as it is within the file.
Part part(const InputFile& file, std::uint64_t begin, std::uint64_t size) {
  const std::int64_t from = within(file, begin);
  return {from, from + std::min(within(file, size), file.size() - from)};
}

/// Refuses another beginning than where the part before it ends.
void expect_begin(const InputFile& file, const std::string& what, std::int64_t begin,
                  std::int64_t end_before) {
  if (begin == end_before) return;
  const bool hole = begin > end_before;
  refuse(file.label(), what,
         (hole ? "a hole of " : "an overlap of ") +
             count_of(hole ? begin - end_before : end_before - begin, "byte"),
         std::min(begin, end_before));
}

/// Where zip64's record says, which must end right before its locator, where other readers look for
/// it, and say what the end record says, which yet others read.
Part find_wide_directory(const InputFile& file, const Record<20>& locator, std::int64_t locator_at,
                         std::int64_t end) {
  constexpr std::uint64_t kSize = 44;  // without data of others' at its end
  constexpr std::int64_t kUncounted = 12;
  const std::int64_t at = within(file, locator.number(8, 8));
  const Record<kSize + kUncounted> wide(file, at);
  if (wide.number(4, 8) != kSize) {
    refuse(file.label(), "a zip64 end record of " + std::to_string(kSize) + " bytes",
           std::to_string(wide.number(4, 8)), at);
  }
  const auto size = static_cast<std::int64_t>(kSize) + kUncounted;
  expect_begin(file, "the zip64 end locator", locator_at, at + size);

  struct Field {
    std::size_t at, bytes, wide_at;
  };
  const Record<22> record(file, end);
  for (const Field field : {Field{8, 2, 24}, {10, 2, 32}, {12, 4, 40}, {16, 4, 48}}) {
    const std::uint64_t all_ones = (std::uint64_t{1} << (8 * field.bytes)) - 1;
    const std::uint64_t told = record.number(field.at, field.bytes);
    const std::uint64_t meant = wide.number(field.wide_at, 8);
    if (told != all_ones && told != meant) {
      refuse(file.label(), "end records that agree",
             std::to_string(told) + " beside " + std::to_string(meant) + " in that of zip64", end);
    }
  }
  const Part directory = part(file, wide.number(48, 8), wide.number(40, 8));
  expect_begin(file, "the zip64 end record", at, directory.end);
  return directory;
}

Part find_directory(const InputFile& file, std::int64_t end) {
  constexpr std::int64_t kLocator = 20;
  if (end >= kLocator) {
    const Record<kLocator> locator(file, end - kLocator);
    if (locator.begins_with({"PK\6\7", 4})) {
      return find_wide_directory(file, locator, end - kLocator, end);
    }
  }
  const Record<22> record(file, end);
  const Part directory = part(file, record.number(16, 4), record.number(12, 4));
  expect_begin(file, "the end record", end, directory.end);
  return directory;
}

/// What a record's extra fields change: numbers that are kInZip64, in the order in which the format
/// has them. Of several fields libzip takes the first, and zipfile of Python 3.11 goes on where a
/// number of the first is kInZip64, too. A name in UTF-8, which only libzip takes, is to be the
/// record's own.
void read_extra(const InputFile& file, std::int64_t name_at, std::int64_t name_size,
                std::int64_t extra_size, std::array<std::uint64_t*, 3> numbers) {
  constexpr std::uint64_t kZip64 = 1, kUnicodePath = 0x7075;
  std::vector<std::byte> bytes(static_cast<std::size_t>(name_size + extra_size));
  file.read(bytes, name_at, "archive");
  const std::string_view name = text_of(bytes).substr(0, static_cast<std::size_t>(name_size));
  auto rest = std::span<const std::byte>(bytes).subspan(name.size());
  int fields_of_zip64 = 0;
  while (rest.size() >= 4) {
    const std::uint64_t kind = little_endian(rest.first(2));
    const auto size = static_cast<std::size_t>(little_endian(rest.subspan(2, 2)));
    auto field = rest.subspan(4, std::min(size, rest.size() - 4));
    rest = rest.subspan(4 + field.size());
    // After a version and a CRC-32, which tells libzip whether to take the name.
    const std::string_view path = text_of(field).substr(std::min<std::size_t>(field.size(), 5));
    if (kind == kUnicodePath && path != name) {
      refuse(file.label(), "one name of a member", in_quotes(name) + " and " + in_quotes(path),
             name_at);
    }
    if (kind == kZip64 && ++fields_of_zip64 > 1) {
      refuse(file.label(), "one field of zip64 in a member's header", "another one", name_at);
    }
    for (std::uint64_t* const number : numbers) {
      if (kind != kZip64 || *number != kInZip64 || field.size() < 8) continue;
      *number = little_endian(field.first(8));
      field = field.subspan(8);
    }
  }
}

/// In a name: libzip reads a blank there, others the name's end, and so another tensor.
void refuse_zero_byte(const InputFile& file, std::int64_t at, std::int64_t bytes) {
  std::vector<std::byte> name(static_cast<std::size_t>(bytes));
  file.read(name, at, "archive");
  const std::string_view text = text_of(name);
  if (text.find('\0') != std::string_view::npos) {
    refuse(file.label(), "a member's name without a zero byte", in_quotes(text), at);
  }
}

/// The member that the directory's record at `at` tells of; `at` becomes the next one's place.
Member find_member(const InputFile& file, std::int64_t& at) {
  const Record<46> record(file, at);
  Member member{{}, false, record.number(16, 4), record.number(20, 4), record.number(24, 4)};
  std::uint64_t begin = record.number(42, 4);
  if (record.length(30) > 0) {
    read_extra(file, at + 46, record.length(28), record.length(30),
               {&member.size, &member.packed, &begin});
  }
  refuse_zero_byte(file, at + 46, record.length(28));
  at += 46 + record.length(28) + record.length(30) + record.length(32);

  member.part.begin = within(file, begin);
  const Record<30> local(file, member.part.begin);
  const std::uint64_t head = 30 + local.number(26, 2) + local.number(28, 2);
  member.part.end = part(file, begin + head, member.packed).end;
  member.described_after = ((record.number(8, 2) | local.number(6, 2)) & kDescribedAfter) != 0;
  return member;
}

/// Whether what is between the member and `next` is its data descriptor: CRC-32 and sizes, of 4
/// bytes or 8, with a magic before them or without.
bool is_described(const InputFile& file, const Member& member, std::int64_t next) {
  std::array<std::byte, 24> buffer;
  const std::int64_t bytes = next - member.part.end;
  if (!member.described_after || bytes < 12 || bytes > 24 || bytes % 4 != 0) return false;
  const auto all = std::span(buffer).first(static_cast<std::size_t>(bytes));
  file.read(all, member.part.end, "archive");
  const bool has_magic = bytes % 8 == 0;
  if (has_magic && text_of(all.first(4)) != std::string_view("PK\7\10", 4)) return false;
  const auto numbers = all.subspan(has_magic ? 4 : 0);
  const std::size_t width = (numbers.size() - 4) / 2;
  return little_endian(numbers.first(4)) == member.crc &&
         little_endian(numbers.subspan(4, width)) == member.packed &&
         little_endian(numbers.subspan(4 + width)) == member.size;
}

}  // namespace

void check_layout(const InputFile& file, std::int64_t end) {
  const Part directory = find_directory(file, end);
  std::vector<Member> members;
  std::int64_t at = directory.begin;
  while (at < directory.end) members.push_back(find_member(file, at));
  expect_begin(file, "the end of the directory", at, directory.end);

  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.part.begin < b.part.begin; });
  members.push_back({{directory.begin, directory.begin}, false, 0, 0, 0});
  Member before{};
  for (const Member& member : members) {
    const std::int64_t begin = member.part.begin;
    if (!is_described(file, before, begin)) {
      expect_begin(file, &member == &members.back() ? "the directory" : "a member", begin,
                   before.part.end);
      if (before.described_after) {
        refuse(file.label(), "CRC-32 and sizes after a member, as its flag says", "none", begin);
      }
    }
    before = member;
  }
}

}  // namespace heed::io
