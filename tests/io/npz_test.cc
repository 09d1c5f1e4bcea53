// .npz: archives put together here, byte by byte, stored and deflated, with and without zip64; and
// every sentence with which one is refused.
#include <algorithm>

#include "files.h"

namespace heed::test {
namespace {

using namespace std::string_literals;

const std::string kData = raw<float>({1.0F, 2.0F, 3.0F, 4.0F});
const std::string kNpy = npy_of("<f4", "(4,)", kData);
const std::string kOther = npy_of("|u1", "(2,)", "yz");

std::string refusal(const std::vector<Member>& members) {
  return read_error("x.npz", zip(members));
}

TEST(npz, members_are_found_by_name_without_ending) {
  const TensorFile file = read("x.npz", zip({{"q.npy", kNpy}, {"deep/k.npy", kOther}}));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(bytes_of(file.tensors.at("q")), kData);
  EXPECT_EQ(bytes_of(file.tensors.at("deep/k")), "yz");
  EXPECT_EQ(bytes_of(read("x", zip({{"q.npy", kNpy}})).tensors.at("q")), kData);
}

TEST(npz, stored_deflated_and_zip64_are_read) {
  Member stored("a.npy", kNpy);
  stored.zip64 = true;
  stored.extra = "\x99\x99\2\0ab"s;
  Member deflated("b.npy", kOther);
  deflated.deflate().zip64 = true;
  for (const bool zip64_end : {false, true}) {
    const TensorFile file =
        read("x", zip({stored, deflated, Member("c.npy", kNpy).deflate()}, zip64_end));
    EXPECT_EQ(bytes_of(file.tensors.at("a")), kData);
    EXPECT_EQ(bytes_of(file.tensors.at("b")), "yz");
    EXPECT_EQ(bytes_of(file.tensors.at("c")), kData);
  }
}

TEST(npz, an_empty_archive_holds_no_tensor) {
  EXPECT_TRUE(read("x.npz", zip({})).tensors.empty());
  EXPECT_EQ(written("x.npz", {}), zip({}));
}

TEST(npz, what_is_written_reads_back_and_is_the_same_every_time) {
  const TensorFile file{.tensors = {{"q", tensor(DType::f32, {4}, kData)},
                                    {"empty", tensor(DType::f16, {0, 3}, "")},
                                    {"\xc3\xa9/k", tensor(DType::u8, {2}, "yz")},
                                    {"", tensor(DType::boolean, {}, "\1")}}};
  const std::string bytes = written("x.npz", file);
  EXPECT_EQ(bytes, written("y.npz", file));
  EXPECT_NE(bytes.find(kData), std::string::npos);  // stored
  const TensorFile again = read("x.npz", bytes);
  ASSERT_EQ(again.tensors.size(), file.tensors.size());
  for (const auto& [name, x] : file.tensors) {
    EXPECT_EQ(again.tensors.at(name).shape, x.shape) << name;
    EXPECT_EQ(again.tensors.at(name).data, x.data) << name;
  }
}

TEST(npz, names_that_would_leave_a_directory_or_occur_twice_are_refused) {
  const std::string expected = "format: x.npz: expected a relative name without \"..\", found ";
  EXPECT_EQ(refusal({{"/q.npy", kNpy}}), expected + "\"/q.npy\", at offset 172");
  EXPECT_EQ(refusal({{"../q.npy", kNpy}}), expected + "\"../q.npy\", at offset 176");
  EXPECT_EQ(refusal({{"a/../q.npy", kNpy}}), expected + "\"a/../q.npy\", at offset 180");
  EXPECT_EQ(refusal({{"a\\..\\q.npy", kNpy}}), expected + "\"a\\\\..\\\\q.npy\", at offset 180");
  EXPECT_EQ(refusal({{"C:q.npy", kNpy}}), expected + "\"C:q.npy\", at offset 174");
  EXPECT_EQ(refusal({{"\\q.npy", kNpy}}), expected + "\"\\\\q.npy\", at offset 172");
  EXPECT_EQ(refusal({{"q/..", kNpy}}), expected + "\"q/..\", at offset 168");
  EXPECT_EQ(refusal({{"..q.npy", kNpy}}), "nothing");
  EXPECT_EQ(refusal({{"q", kNpy}}),
            "format: x.npz: expected a name that ends in .npy, found \"q\", at offset 162");
  EXPECT_EQ(refusal({{"q.txt", kNpy}}),
            "format: x.npz: expected a name that ends in .npy, found \"q.txt\", at offset 170");
  EXPECT_EQ(refusal({{"q.npy", kNpy}, {"q.npy", kNpy}}),
            "format: x.npz: expected a consistent zip archive, found a name that occurs twice, at "
            "offset 340");
}

TEST(npz, encryption_and_other_methods_are_refused) {
  Member encrypted("q.npy", kNpy);
  encrypted.flags = 1;
  EXPECT_EQ(
      refusal({encrypted}),
      "format: x.npz: member \"q.npy\": expected a member without encryption, found an encrypted "
      "one, at offset 170");
  Member bzip2("q.npy", kNpy);
  bzip2.method = 12;
  EXPECT_EQ(refusal({bzip2}),
            "format: x.npz: member \"q.npy\": expected a member that is stored or deflated, found "
            "method 12, at offset 170");
}

TEST(npz, local_and_central_headers_agree) {
  const std::string expected =
      "format: x.npz: expected a consistent zip archive, found headers that disagree with each "
      "other "
      "or with the file's size, at offset 170";
  Member name("q.npy", kNpy);
  name.local_name = "k.npy";
  EXPECT_EQ(refusal({name}), expected);
  Member crc("q.npy", kNpy);
  crc.local_crc_change = 1;
  EXPECT_EQ(refusal({crc}), expected);
  Member size("q.npy", kNpy);
  size.local_size_change = 1;
  EXPECT_EQ(refusal({size}), expected);
  Member method("q.npy", kNpy);
  method.local_method_change = 8;
  EXPECT_EQ(refusal({method}), expected);
}

TEST(npz, damaged_data_fail_their_checksum) {
  for (const bool deflated : {false, true}) {
    Member member("q.npy", kNpy);
    if (deflated) member.deflate();
    member.data.back() = static_cast<char>(member.data.back() ^ 1);
    EXPECT_EQ(
        refusal({member}),
        "format: x.npz: member \"q.npy\": expected data that fit their CRC-32, found other data, "
        "at offset 84");
  }
}

TEST(npz, deflated_data_inflate_to_what_is_said) {
  Member broken("q.npy", kNpy);
  broken.deflate().data[0] = '\7';  // a block type that does not exist
  EXPECT_EQ(
      refusal({broken}).substr(0, 103),
      "format: x.npz: member \"q.npy\": expected deflated data that inflate to what the header "
      "says, found Zlib ");
  Member more("q.npy", kNpy);
  more.deflate().size -= 4;
  EXPECT_EQ(
      refusal({more}),
      "format: x.npz: member \"q.npy\": expected 16 bytes of data for shape (4,), found 12, at "
      "offset 68");
  Member fewer("q.npy", npy_of("<f4", "(5,)", kData));
  fewer.deflate().size += 4;
  EXPECT_EQ(refusal({fewer}),
            "format: x.npz: member \"q.npy\": expected more data in the member, found its end, at "
            "offset 68");
  Member longer("q.npy", kNpy + "more");
  longer.deflate().size -= 4;  // what the shape says, so that all of it is read
  EXPECT_EQ(
      refusal({longer}),
      "format: x.npz: member \"q.npy\": expected the end of the member, found more bytes than "
      "its header says, at offset 84");
}

TEST(npz, a_member_is_as_long_as_its_shape_says) {
  const std::string longer = npy_of("<f4", "(3,)", kData);
  EXPECT_EQ(
      refusal({{"q.npy", longer}}),
      "format: x.npz: member \"q.npy\": expected 12 bytes of data for shape (3,), found 16, at "
      "offset 68");
  const TensorFile file = read("x", zip({{"q.npy", longer}}) + "!", {.allow_trailing = true});
  EXPECT_EQ(bytes_of(file.tensors.at("q")), kData.substr(0, 12));
  EXPECT_EQ(file.trailing_bytes, 5);
}

TEST(npz, bombs_are_refused_before_they_are_inflated) {
  Member bomb("q.npy", kNpy);
  bomb.deflate();
  bomb.size = 1101 * bomb.data.size();
  EXPECT_EQ(
      refusal({bomb}),
      "format: x.npz: member \"q.npy\": expected at most 1100 bytes from each deflated one, found "
      "97989 from 89 bytes, at offset 175");
  for (const std::uint64_t size : {std::uint64_t{1} << 63, ~std::uint64_t{1}}) {
    Member endless("q.npy", kNpy);
    endless.deflate();
    endless.zip64 = true;
    endless.size = size;
    EXPECT_EQ(
        refusal({endless}),
        "format: x.npz: member \"q.npy\": expected at most 1100 bytes from each deflated one, "
        "found " +
            std::to_string(size) + " from 89 bytes, at offset 215");
  }
  Member stored("q.npy", kNpy);
  stored.size += 1;
  EXPECT_EQ(
      refusal({stored}),
      "format: x.npz: member \"q.npy\": expected as many bytes as are stored, found 85 from 84 "
      "bytes, at offset 170");
  EXPECT_EQ(
      read_error("x.npz", zip({{"q.npy", kNpy}, {"k.npy", kNpy}}), {.max_bytes = 31}),
      "memory: x.npz: expected tensors of at most 31 bytes together, found one of 16 after 16");
}

TEST(npz, the_archive_ends_where_the_file_does) {
  const std::string bytes = zip({{"q.npy", kNpy}});
  EXPECT_EQ(read_error("x.npz", bytes + "tail"),
            "format: x.npz: expected the end of the file, found 4 bytes after the zip archive, at "
            "offset 192");
  const TensorFile file = read("x.npz", bytes + "tail", {.allow_trailing = true});
  EXPECT_EQ(file.trailing_bytes, 4);
  EXPECT_EQ(bytes_of(file.tensors.at("q")), kData);
  EXPECT_EQ(
      read_error("x.npz", bytes.substr(0, bytes.size() - 1)),
      "format: x.npz: expected the end record of a zip archive, found none in the last 64 KiB, "
      "at offset 191");
}

/// With `more` before the record that begins with `magic`.
std::string inserted(std::string archive, const std::string& magic, const std::string& more) {
  return archive.insert(archive.find(magic), more);
}

/// With another number of four bytes.
std::string changed(std::string archive, std::size_t at, std::size_t number) {
  return archive.replace(at, 4, little(number, 4));
}

std::string hole_before(const std::string& part, std::size_t bytes, std::size_t offset) {
  return "format: x.npz: expected " + part + ", found a hole of " + std::to_string(bytes) +
         " bytes, at offset " + std::to_string(offset);
}

TEST(npz, members_directory_and_end_record_follow_each_other) {
  Member first("a.npy", kNpy), second("b.npy", kOther);
  const std::size_t end_of_first = 30 + 5 + kNpy.size();
  const std::size_t end_of_second = end_of_first + 30 + 5 + kOther.size();
  const std::string plain = zip({first, second}), wide = zip({first, second}, true);
  const std::size_t end = plain.find("PK\5\6");
  EXPECT_EQ(read_error("x.npz", inserted(plain, "PK\5\6", "hole")),
            hole_before("the end record", 4, end));
  EXPECT_EQ(read_error("x.npz", inserted(wide, "PK\6\7", "hole")),
            hole_before("the zip64 end locator", 4, end + 56));
  const std::string moved = inserted(wide, "PK\6\6", "hole");
  EXPECT_EQ(read_error("x.npz", changed(moved, moved.find("PK\6\7") + 8, end + 4)),
            hole_before("the zip64 end record", 4, end));

  second.after = "hole!!";
  EXPECT_EQ(refusal({first, second}), hole_before("the directory", 6, end_of_second));
  second.before = "hole!";
  EXPECT_EQ(refusal({first, second}), hole_before("a member", 5, end_of_first));
  first.before = "hole";
  EXPECT_EQ(refusal({first, second}), hole_before("a member", 4, 0));
}

TEST(npz, a_hole_cannot_hold_a_second_directory) {
  // zipfile of Python takes the directory right before the end record, and with it other data.
  const std::string other_npy = npy_of("<f4", "(4,)", raw<float>({9.0F, 9.0F, 9.0F, 9.0F}));
  const std::string one = zip({{"x.npy", kNpy}}), other = zip({{"x.npy", other_npy}});
  const std::size_t member = one.find("PK\1\2"), directory = one.find("PK\5\6") - member;
  std::string second = other.substr(member, directory);
  second = changed(second, 42, member - directory);  // to which zipfile adds the hole's length
  std::string file = one.substr(0, member) + other.substr(0, member) +
                     one.substr(member, directory) + second + one.substr(member + directory);
  file = changed(file, file.size() - 6, 2 * member);
  EXPECT_EQ(read_error("x.npz", file),
            hole_before("the end record", directory, 2 * member + directory));
}

TEST(npz, a_name_has_no_zero_byte) {
  // libzip reads a blank there, zipfile of Python the end of the name: "bias.npy".
  const std::string name("bias.npy\0.npy", 13);
  const std::string file = zip({{"q.npy", kNpy}, {name, kNpy}});
  EXPECT_EQ(read_error("x.npz", file),
            "format: x.npz: expected a member's name without a zero byte, found "
            "\"bias.npy\\x00.npy\", at offset " +
                std::to_string(file.rfind("PK\1\2") + 46));
}

TEST(npz, a_member_cannot_lie_within_another_ones_data) {
  const Member inner("b.npy", kOther);
  const std::string local = zip({inner}).substr(0, 30 + 5 + kOther.size());
  const Member outer("a.npy", npy_of("|u1", "(" + std::to_string(local.size()) + ",)", local));
  const std::string file = zip({outer, inner});
  const std::size_t within = file.find(local);
  EXPECT_EQ(read_error("x.npz", changed(file, file.rfind("PK\1\2") + 42, within)),
            "format: x.npz: expected a member, found an overlap of " +
                std::to_string(local.size()) + " bytes, at offset " + std::to_string(within));
}

TEST(npz, a_field_of_zip64_has_all_numbers_that_are_not_in_the_header) {
  Member stored("a.npy", kNpy);
  stored.zip64 = true;
  std::string file = zip({stored});
  const std::size_t field = file.rfind("PK\1\2") + 46 + 5;  // size and packed size
  file.replace(field + 2, 2, little(8, 2)).erase(field + 12, 8);
  file.replace(file.rfind("PK\1\2") + 30, 2, little(12, 2));
  const std::size_t end = file.find("PK\5\6");
  EXPECT_EQ(
      read_error("x.npz", changed(file, end + 12, 46 + 5 + 12)),
      "format: x.npz: expected a consistent zip archive, found headers that disagree with each "
      "other or with the file's size, at offset " +
          std::to_string(end));
}

TEST(npz, a_header_has_one_field_of_zip64) {
  // Where a number of the first field has all bits of 32 set, zipfile of Python takes the second's.
  Member member("a.npy", kNpy);
  member.zip64 = true;
  member.extra = little(1, 2) + little(16, 2) + little(kNpy.size(), 8) + little(kNpy.size(), 8);
  EXPECT_EQ(refusal({member}),
            "format: x.npz: expected one field of zip64 in a member's header, found another one, "
            "at offset " +
                std::to_string(30 + 5 + 40 + kNpy.size() + 46));
}

TEST(npz, data_descriptors_are_no_holes) {
  Member described("a.npy", kNpy);
  described.flags = 8;
  const std::string crc = little(described.crc, 4), size = little(kNpy.size(), 4);
  const std::string numbers = crc + size + size,
                    wide = crc + size + "\0\0\0\0"s + size + "\0\0\0\0"s;
  for (const std::string& after : {numbers, "PK\7\10" + numbers, wide, "PK\7\10" + wide}) {
    described.after = after;
    for (const auto& members : {std::vector{described}, {described, Member("b.npy", kOther)}}) {
      EXPECT_EQ(bytes_of(read("x.npz", zip(members)).tensors.at("a")), kData);
    }
  }
  std::string file = zip({described});
  file[file.find("PK\1\2") + 8] = 0;  // said beside the data alone
  EXPECT_EQ(bytes_of(read("x.npz", file).tensors.at("a")), kData);

  std::string magic = "PK\7\10" + wide;
  magic[3] = 9;
  for (const std::string& after :
       {little(described.crc + 1, 4) + size + size, crc + size + crc, magic, crc + crc + size,
        "hole!"s, "hole of thirteen"s.substr(0, 13), numbers + "hole", wide + "hole!!!!"}) {
    described.after = after;
    EXPECT_EQ(refusal({described}),
              hole_before("the directory", after.size(), 30 + 5 + kNpy.size()));
  }
  described.after = "";
  EXPECT_EQ(
      refusal({described, Member("b.npy", kOther)}),
      "format: x.npz: expected CRC-32 and sizes after a member, as its flag says, found none, "
      "at offset " +
          std::to_string(30 + 5 + kNpy.size()));
}

TEST(npz, there_is_one_end_record) {
  // Others look for the last one, and libzip for one that fits.
  const std::string archive = zip({{"x.npy", kNpy}});
  const std::size_t end = archive.size() - 22;
  const auto with_comment = [&](const std::string& comment) {
    return archive.substr(0, end + 20) + little(comment.size(), 2) + comment;
  };
  const auto record = [&](std::size_t size, std::size_t offset, std::size_t comment) {
    return "PK\5\6" + little(0, 4) + little(1, 2) + little(1, 2) + little(size, 4) +
           little(offset, 4) + little(comment, 2);
  };
  EXPECT_EQ(bytes_of(read("x.npz", with_comment("a comment")).tensors.at("x")), kData);
  EXPECT_EQ(
      read_error("x.npz", with_comment(record(end - 119, 119, 1))),
      "format: x.npz: expected a comment of 1 byte behind the end record, found 0, at offset " +
          std::to_string(end + 22));
  const std::string no_directory(46, 'x');
  EXPECT_EQ(read_error("x.npz", with_comment(no_directory + record(46, end + 22, 0))),
            "format: x.npz: expected one end record of a zip archive, found another one in its "
            "comment or in what is before it, at offset " +
                std::to_string(end + 22 + 46));
}

TEST(npz, end_records_of_zip64_have_44_bytes_and_agree_with_the_other_one) {
  const std::string archive = zip({{"x.npy", kNpy}}, true);
  const std::size_t wide = archive.find("PK\6\6"), end = archive.find("PK\5\6");
  EXPECT_EQ(read_error("x.npz", changed(inserted(archive, "PK\6\7", "x"), wide + 4, 45)),
            "format: x.npz: expected a zip64 end record of 44 bytes, found 45, at offset " +
                std::to_string(wide));
  const auto expect_agreement = [&](std::size_t at, int bytes, std::size_t meant) {
    const auto saying = [&](std::size_t number) {
      return archive.substr(0, end + at) + little(number, bytes) +
             archive.substr(end + at + static_cast<std::size_t>(bytes));
    };
    EXPECT_EQ(read_error("x.npz", saying(7)),
              "format: x.npz: expected end records that agree, found 7 beside " +
                  std::to_string(meant) + " in that of zip64, at offset " + std::to_string(end));
    EXPECT_EQ(bytes_of(read("x.npz", saying(meant)).tensors.at("x")), kData);
  };
  expect_agreement(8, 2, 1);
  expect_agreement(10, 2, 1);
  expect_agreement(12, 4, wide - 119);
  expect_agreement(16, 4, 119);
}

TEST(npz, a_name_in_utf_8_beside_the_name_is_the_same) {
  const auto with_path = [](const std::string& path) {
    Member member("x.npy", kNpy);
    member.extra =
        little(0x7075, 2) + little(5 + path.size(), 2) + "\1" + little(crc32("x.npy"), 4) + path;
    return member;
  };
  EXPECT_EQ(bytes_of(read("x.npz", zip({with_path("x.npy")})).tensors.at("x")), kData);
  EXPECT_EQ(
      refusal({with_path("y.npy")}),
      "format: x.npz: expected one name of a member, found \"x.npy\" and \"y.npy\", at offset " +
          std::to_string(30 + 5 + 14 + kNpy.size() + 46));
}

TEST(npz, what_the_format_cannot_hold_is_not_written) {
  const Directory directory;
  const auto error = [&](const TensorFile& file) {
    return error_of(directory, [&] { write_tensors(directory / "x.npz", file); });
  };
  EXPECT_EQ(error({.tensors = {{"b", tensor(DType::bf16, {1}, "ab")}}}),
            "argument: x.npz: \"b\": bfloat16 has no name in .npy; convert to float32 or write "
            ".safetensors");
  EXPECT_EQ(error({.tensors = {{"../b", tensor(DType::u8, {1}, "a")}}}),
            "argument: x.npz: \"../b\": names in .npz are relative paths without \"..\"");
  EXPECT_EQ(error({.tensors = {{"a\0b"s, tensor(DType::u8, {1}, "a")}}}),
            "argument: x.npz: \"a\\x00b\": names in .npz are relative paths without \"..\"");
  // Found by fuzzing: libzip would take the name for another encoding, or not at all.
  for (const std::string& name : {"\x11"s, "a\x1f"s}) {
    EXPECT_EQ(error({.tensors = {{name, tensor(DType::u8, {1}, "a")}}}).substr(0, 10),
              "argument: ");
  }
  EXPECT_EQ(
      error({.tensors = {{"\x11"s, tensor(DType::u8, {1}, "a")}}}),
      "argument: x.npz: \"\\x11\": names in .npz hold no control character but tab and ends of "
      "lines");
  const std::string long_name(65532, 'n');
  EXPECT_TRUE(error({.tensors = {{long_name, tensor(DType::u8, {1}, "a")}}})
                  .ends_with("names in .npz have at most 65531 bytes, not 65532"));
  EXPECT_EQ(directory.entries(), 0U);
  const std::string longest(65531, 'n');
  for (const std::string& name : {longest, "\t\n\r\x7f"s}) {
    EXPECT_EQ(error({.tensors = {{name, tensor(DType::u8, {1}, "a")}}}), "nothing");
    EXPECT_EQ(bytes_of(read_tensors(directory / "x.npz").tensors.at(name)), "a");
  }
}

}  // namespace
}  // namespace heed::test
