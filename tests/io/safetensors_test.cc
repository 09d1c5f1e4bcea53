// .safetensors: what is read, what is written, and every sentence with which a file is refused.
#include "files.h"

namespace heed::test {
namespace {

using namespace std::string_literals;

const std::string kData("abcdefghijklmnop");

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string refusal(const std::string& header, const std::string& data = kData) {
  return read_error("x.safetensors", safetensors(header, data));
}

TEST(safetensors, tensors_and_metadata_are_found_by_name) {
  const TensorFile file =
      read("x.safetensors", safetensors(R"({"q":)" + entry("F32", "[2,1]", "[8,16]") +
                                            R"(,"__metadata__":{"format":"pt","":"é"},"k":)" +
                                            entry("U8", "[8]", "[0,8]") + "}   ",
                                        kData));
  EXPECT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(bytes_of(file.tensors.at("q")), "ijklmnop");
  EXPECT_EQ(file.tensors.at("q").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(file.tensors.at("q").dtype, DType::f32);
  EXPECT_EQ(bytes_of(file.tensors.at("k")), "abcdefgh");
  EXPECT_EQ(file.metadata,
            (std::map<std::string, std::string>{{"format", "pt"}, {"", "\xc3\xa9"}}));
}

TEST(safetensors, empty_scalar_misaligned_and_nan_are_legal) {
  const TensorFile file = read("x", safetensors(R"({"a":)" + entry("U8", "[1]", "[0,1]") +
                                                    R"(,"b":)" + entry("F32", "[]", "[1,5]") +
                                                    R"(,"c":)" + entry("F64", "[3,0]", "[1,1]") +
                                                    R"(,"":)" + entry("F16", "[0]", "[5,5]") + "}",
                                                "x\xff\xff\xff\xff"));
  EXPECT_EQ(bytes_of(file.tensors.at("b")), "\xff\xff\xff\xff");
  EXPECT_EQ(file.tensors.at("b").shape.size(), 0U);
  EXPECT_EQ(file.tensors.at("c").shape, (std::vector<std::int64_t>{3, 0}));
  EXPECT_EQ(file.tensors.at("").dtype, DType::f16);
  EXPECT_TRUE(read("x", safetensors("{}", "")).tensors.empty());
}

TEST(safetensors, each_element_type_has_its_name) {
  const std::vector<std::string> names{"BOOL", "U8",  "I8",  "U16",  "I16", "U32", "I32",
                                       "U64",  "I64", "F16", "BF16", "F32", "F64"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string data = kData.substr(0, size_of(dtype));
    const std::string bytes = safetensors(
        R"({"x":)" + entry(names[i], "[1]", "[0," + std::to_string(data.size()) + "]") + "}", data);
    EXPECT_EQ(read("x", bytes).tensors.at("x").dtype, dtype) << names[i];
    const std::string again =
        written("x.safetensors", {.tensors = {{"x", tensor(dtype, {1}, data)}}});
    EXPECT_NE(again.find("\"" + names[i] + "\""), std::string::npos);
    EXPECT_EQ(bytes_of(read("x", again).tensors.at("x")), data);
  }
}

TEST(safetensors, are_written_aligned_with_wide_elements_first) {
  const TensorFile file{.tensors = {{"a", tensor(DType::u8, {3}, "xyz")},
                                    {"b", tensor(DType::f64, {1}, kData.substr(0, 8))},
                                    {"c\"\n", tensor(DType::f64, {1, 1}, kData.substr(8))}},
                        .metadata = {{"k", "v"}}};
  std::string header = R"({"__metadata__":{"k":"v"},"b":)" + entry("F64", "[1]", "[0,8]") +
                       R"(,"c\"\n":)" + entry("F64", "[1,1]", "[8,16]") + R"(,"a":)" +
                       entry("U8", "[3]", "[16,19]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string bytes = written("x.safetensors", file);
  EXPECT_EQ(bytes, safetensors(header, kData + "xyz"));
  const TensorFile again = read("x", bytes);
  EXPECT_EQ(again.metadata, file.metadata);
  EXPECT_EQ(bytes_of(again.tensors.at("c\"\n")), kData.substr(8));
  EXPECT_EQ(bytes_of(again.tensors.at("a")), "xyz");
}

TEST(safetensors, a_header_beyond_the_file_is_refused) {
  EXPECT_EQ(read_error("x.safetensors", "\1\0\0"s),
            "format: x.safetensors: expected 8 bytes of header length, found 3, at offset 0");
  EXPECT_EQ(read_error("x.safetensors", little(100, 8) + "{}"),
            "format: x.safetensors: expected 100 bytes of header, found 2, at offset 8");
  EXPECT_EQ(read_error("x.safetensors", little(100000001, 8) + "{}"),
            "format: x.safetensors: expected a header of at most 100000000 bytes, found 100000001, "
            "at offset 0");
  EXPECT_EQ(read_error("x.safetensors", little(0xFFFFFFFFFFFFFFFF, 8) + "{}"),
            "format: x.safetensors: expected a header of at most 100000000 bytes, found "
            "18446744073709551615, at offset 0");
}

TEST(safetensors, a_header_that_is_not_its_json_is_refused) {
  EXPECT_EQ(
      refusal(" {}"),
      "format: x.safetensors: expected a header that starts with \"{\", found \" \", at offset 8");
  EXPECT_EQ(
      refusal(""),
      "format: x.safetensors: expected a header that starts with \"{\", found \"\", at offset 8");
  EXPECT_EQ(
      refusal("{\"a\""),
      "format: x.safetensors: expected JSON in UTF-8, found the end of the header, at offset 12");
  EXPECT_EQ(refusal("{\"a\": nope}"),
            "format: x.safetensors: expected JSON in UTF-8, found \"o\", at offset 15");
  EXPECT_EQ(refusal("{\"\xff\":1}"),
            "format: x.safetensors: expected JSON in UTF-8, found \"\\xff\", at offset 10");
  EXPECT_EQ(refusal("{} {}"),
            "format: x.safetensors: expected JSON in UTF-8, found \"{\", at offset 11");
  EXPECT_EQ(refusal("{}\0\0"s),
            "format: x.safetensors: expected JSON in UTF-8, found a zero byte, at offset 10");
  EXPECT_EQ(refusal("{\"a\":[]}"),
            "format: x.safetensors: expected an object for \"a\", found \"[\", at offset 13");
  EXPECT_EQ(refusal("{\"a\":-1 }"),
            "format: x.safetensors: expected an object for \"a\", found \"-1\", at offset 13");
  EXPECT_EQ(refusal("{\"a\":null}"),
            "format: x.safetensors: expected an object for \"a\", found \"null\", at offset 13");
  EXPECT_EQ(refusal("{\"a\":true}"),
            "format: x.safetensors: expected an object for \"a\", found \"true\", at offset 13");
  EXPECT_EQ(refusal("{\"a\":1.5}"),
            "format: x.safetensors: expected an object for \"a\", found \"1.5\", at offset 13");
  EXPECT_EQ(refusal("{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}"),
            "format: x.safetensors: expected the key \"dtype\" for tensor \"a\", found the end of "
            "its keys, at offset 47");
  EXPECT_EQ(
      refusal("{" + std::string("\"a\":{\"shape\":") + std::string(100000, '[')),
      "format: x.safetensors: expected a size, an integer from 0 to 2^63 - 1, found \"[\", at "
      "offset 23");
}

TEST(safetensors, an_element_type_that_heed_lacks_is_refused) {
  const std::string expected =
      "format: x.safetensors: expected an element type of BOOL, U8, I8, U16, I16, U32, I32, U64, "
      "I64, "
      "F16, BF16, F32, F64, found ";
  EXPECT_EQ(refusal(R"({"a":)" + entry("F8_E4M3", "[16]", "[0,16]") + "}"),
            expected + "\"F8_E4M3\", which the format has and heed has not, at offset 22");
  EXPECT_EQ(refusal(R"({"a":)" + entry("f32", "[4]", "[0,16]") + "}"),
            expected + "\"f32\", at offset 22");
}

TEST(safetensors, keys_occur_once_and_are_the_three) {
  const std::string good = entry("F32", "[4]", "[0,16]");
  EXPECT_EQ(refusal(R"({"a":)" + good + R"(,"a":)" + good + "}"),
            "format: x.safetensors: expected the key \"a\" once, found it again, at offset 63");
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})"),
            "format: x.safetensors: expected the key \"__metadata__\" once, found it again, at "
            "offset 27");
  EXPECT_EQ(refusal(R"({"__metadata__":{"k":"","k":""}})"),
            "format: x.safetensors: expected the key \"k\" once, found it again, at offset 32");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","dtype":"F32"}})"),
            "format: x.safetensors: expected the key \"dtype\" once, found it again, at offset 28");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","color":1}})"),
            "format: x.safetensors: expected one of the keys \"dtype\", \"shape\" and "
            "\"data_offsets\", found \"color\", at offset 28");
  EXPECT_EQ(
      refusal(R"({"a":{"dtype":"F32","shape":[4]}})"),
      "format: x.safetensors: expected the key \"data_offsets\" for tensor \"a\", found the end "
      "of its keys, at offset 39");
}

TEST(safetensors, metadata_map_strings_to_strings) {
  EXPECT_EQ(
      refusal(R"({"__metadata__":{"k":1}})"),
      "format: x.safetensors: expected a string for the metadata \"k\", found \"1\", at offset 29");
  EXPECT_EQ(
      refusal(R"({"__metadata__":{"k":{}}})"),
      "format: x.safetensors: expected a string for the metadata \"k\", found \"{\", at offset 29");
  EXPECT_EQ(refusal(R"({"__metadata__":"k\"v"})"),
            "format: x.safetensors: expected an object for \"__metadata__\", found "
            "\"\"k\\\\\"v\"\", at offset 24");
}

TEST(safetensors, numbers_are_integers_from_0_to_2_63) {
  const std::string size =
      "format: x.safetensors: expected a size, an integer from 0 to 2^63 - 1, found ";
  const std::string offset =
      "format: x.safetensors: expected two offsets, integers from 0 to 2^63 - 1, found ";
  const auto error = [](const std::string& shape, const std::string& offsets) {
    return refusal(R"({"a":)" + entry("F32", shape, offsets) + "}");
  };
  EXPECT_EQ(error("[-4]", "[0,16]"), size + "\"-4\", at offset 37");
  EXPECT_EQ(error("[4.0]", "[0,16]"), size + "\"4.0\", at offset 37");
  EXPECT_EQ(error("[4e0]", "[0,16]"), size + "\"4e0\", at offset 37");
  EXPECT_EQ(error("[true]", "[0,16]"), size + "\"true\", at offset 37");
  EXPECT_EQ(error("[\"4\"]", "[0,16]"), size + "\"\"4\"\", at offset 37");
  EXPECT_EQ(error("[9223372036854775808]", "[0,16]"),
            size + "\"9223372036854775808\", at offset 37");
  EXPECT_EQ(error("4", "[0,16]"),
            "format: x.safetensors: expected an array for \"shape\", found \"4\", at offset 36");
  EXPECT_EQ(error("[4]", "[0,16,16]"), offset + "\"16\", at offset 61");
  EXPECT_EQ(error("[4]", "[0,-16]"), offset + "\"-16\", at offset 58");
  EXPECT_EQ(error("[4]", "[0]"),
            "format: x.safetensors: expected two offsets, found 1, at offset 57");
  EXPECT_EQ(refusal(R"({"a":{"dtype":7}})"),
            "format: x.safetensors: expected a string for \"dtype\", found \"7\", at offset 22");
  EXPECT_EQ(refusal(R"({"a":{"dtype":[7]}})"),
            "format: x.safetensors: expected a string for \"dtype\", found \"[\", at offset 22");
  EXPECT_EQ(refusal(R"({"a":{"dtype":{}}})"),
            "format: x.safetensors: expected a string for \"dtype\", found \"{\", at offset 22");
  EXPECT_EQ(
      error("\"4\"", "[0,16]"),
      "format: x.safetensors: expected an array for \"shape\", found \"\"4\"\", at offset 36");
  EXPECT_EQ(error("[[4]]", "[0,16]"), size + "\"[\", at offset 37");
  EXPECT_EQ(error("[{}]", "[0,16]"), size + "\"{\", at offset 37");
  EXPECT_EQ(error("[null]", "[0,16]"), size + "\"null\", at offset 37");
  EXPECT_EQ(error("[4e-1]", "[0,16]"), size + "\"4e-1\", at offset 37");
  EXPECT_EQ(error("[4.5E+2 ]", "[0,16]"), size + "\"4.5E+2\", at offset 37");
  EXPECT_EQ(error("[4]", "{}"),
            "format: x.safetensors: expected an array for \"data_offsets\", found \"{\", at "
            "offset 55");
  EXPECT_EQ(error("[4]", "[true]"), offset + "\"true\", at offset 56");
  EXPECT_EQ(error("[4]", "[\"\\\\\\\"\"]"), offset + "\"\"\\\\\\\\\\\\\"\"\", at offset 56");
  EXPECT_EQ(
      error("[4294967296,4294967296]", "[0,16]"),
      "format: x.safetensors: expected a shape of less than 2^63 bytes for tensor \"a\", found "
      "(4294967296, 4294967296), at offset 9");
}

TEST(safetensors, a_shape_of_many_axes_makes_no_long_message) {
  std::string many = "[9";
  for (int axis = 1; axis < 1000; ++axis) many += ",9";
  EXPECT_EQ(
      refusal(R"({"a":)" + entry("U8", many + "]", "[0,16]") + "}"),
      "format: x.safetensors: expected a shape of less than 2^63 bytes for tensor \"a\", found "
      "(9, 9, 9, 9, 9, 9, 9, 9, and 992 axes more), at offset 9");
}

TEST(safetensors, tensors_fill_the_file_without_hole_or_overlap) {
  const auto two = [](const std::string& first, const std::string& second) {
    return refusal(R"({"a":)" + entry("U8", "[8]", first) + R"(,"b":)" +
                   entry("U8", "[8]", second) + "}");
  };
  EXPECT_EQ(two("[8,16]", "[0,8]"), "nothing");
  EXPECT_EQ(
      two("[0,8]", "[4,12]"),
      "format: x.safetensors: expected tensor \"b\" to begin at 8, where the one before ends, "
      "found 4 to 12, an overlap, at offset 61");
  EXPECT_EQ(
      two("[0,8]", "[9,17]"),
      "format: x.safetensors: expected tensor \"b\" to begin at 8, where the one before ends, "
      "found 9 to 17, a hole, at offset 61");
  EXPECT_EQ(
      two("[0,8]", "[0,8]"),
      "format: x.safetensors: expected tensor \"b\" to begin at 8, where the one before ends, "
      "found 0 to 8, an overlap, at offset 61");
  EXPECT_EQ(
      two("[1,9]", "[9,17]"),
      "format: x.safetensors: expected tensor \"a\" to begin at 0, where the one before ends, "
      "found 1 to 9, a hole, at offset 9");
  EXPECT_EQ(
      two("[8,0]", "[8,16]"),
      "format: x.safetensors: expected offsets in ascending order for tensor \"a\", found 8 to "
      "0, at offset 9");
  EXPECT_EQ(two("[0,7]", "[7,16]"),
            "format: x.safetensors: expected 8 bytes for tensor \"a\" of shape (8,), found 7, at "
            "offset 9");
}

TEST(safetensors, the_last_tensor_ends_where_the_file_does) {
  const std::string header = R"({"a":)" + entry("U8", "[16]", "[0,16]") + "}";
  EXPECT_EQ(refusal(header, kData.substr(1)),
            "format: x.safetensors: expected 16 bytes of data, found 15, at offset 63");
  EXPECT_EQ(refusal(header, kData + "zz"),
            "format: x.safetensors: expected the end of the file, found 2 bytes that belong to no "
            "tensor, at offset 79");
  EXPECT_EQ(refusal(header, kData + "z"),
            "format: x.safetensors: expected the end of the file, found 1 byte that belongs to no "
            "tensor, at offset 79");
  const TensorFile file = read("x", safetensors(header, kData + "zz"), {.allow_trailing = true});
  EXPECT_EQ(file.trailing_bytes, 2);
  EXPECT_EQ(bytes_of(file.tensors.at("a")), kData);
}

TEST(safetensors, all_tensors_together_stay_below_max_bytes) {
  const std::string bytes = safetensors(
      R"({"a":)" + entry("U8", "[8]", "[0,8]") + R"(,"b":)" + entry("U8", "[8]", "[8,16]") + "}",
      kData);
  EXPECT_EQ(read_error("x", bytes, {.max_bytes = 16}), "nothing");
  EXPECT_EQ(read_error("x", bytes, {.max_bytes = 15}),
            "memory: x: expected tensors of at most 15 bytes together, found one of 8 after 8");
}

TEST(safetensors, a_header_beyond_65536_bytes_counts_sixteenfold) {
  const auto error = [](std::size_t bytes, std::int64_t most) {
    std::string header = R"({"a":)" + entry("U8", "[16]", "[0,16]") + "}";
    header.resize(bytes, ' ');
    return read_error("x", safetensors(header, kData), {.max_bytes = most});
  };
  EXPECT_EQ(error(65536, 16), "nothing");
  EXPECT_EQ(error(65537, 32), "nothing");
  EXPECT_EQ(error(65537, 31),
            "memory: x: expected tensors of at most 31 bytes together, found one of 16 after 16");
  EXPECT_EQ(
      error(65538, 31),
      "memory: x: expected a header whose names take at most 31 bytes, found one of 65538 bytes, "
      "which may take 32");
}

TEST(safetensors, names_from_a_file_are_escaped_and_cut_in_messages) {
  const std::string name = "a\\nb" + std::string(200, 'x');
  EXPECT_EQ(refusal("{\"" + name + "\":1}"),
            "format: x.safetensors: expected an object for \"a\\nb" + std::string(77, 'x') +
                "...\", found \"1\", at offset 216");
}

TEST(safetensors, what_the_format_cannot_hold_is_not_written) {
  const Directory directory;
  const auto error = [&](const TensorFile& file) {
    return error_of(directory, [&] { write_tensors(directory / "x.safetensors", file); });
  };
  const Tensor x = tensor(DType::u8, {1}, "x");
  EXPECT_EQ(error({.tensors = {{"__metadata__", x}}}),
            "argument: x.safetensors: no tensor can be called \"__metadata__\" in .safetensors");
  EXPECT_EQ(error({.tensors = {{"\xff", x}}}),
            "argument: x.safetensors: \"\\xff\": names must be UTF-8");
  EXPECT_EQ(error({.metadata = {{"k", "\xff"}}}),
            "argument: x.safetensors: metadata \"k\" must be UTF-8");
  EXPECT_EQ(error({.metadata = {{"\xff", "v"}}}),
            "argument: x.safetensors: metadata \"\\xff\" must be UTF-8");
  EXPECT_EQ(directory.entries(), 0U);
  const std::size_t around = std::string(R"({"__metadata__":{"k":""}})").size();
  const std::string largest(100'000'000 - around, 'x');
  EXPECT_EQ(error({.metadata = {{"k", largest + 'x'}}}),
            "argument: x.safetensors: the names and metadata take 100000008 bytes; .safetensors "
            "holds at most 100000000");
  EXPECT_EQ(directory.entries(), 0U);
}

TEST(safetensors, a_header_of_100_million_bytes_is_written_and_read) {
  const Directory directory(Directory::disk());
  const std::size_t around = std::string(R"({"__metadata__":{"k":""}})").size();
  const std::string largest(100'000'000 - around, 'x');
  write_tensors(directory / "x.safetensors", {.metadata = {{"k", largest}}});
  const ReadOptions enough{.max_bytes = std::int64_t{1} << 31};  // a header counts sixteenfold
  EXPECT_EQ(read_tensors(directory / "x.safetensors", enough).metadata.at("k"), largest);
}

}  // namespace
}  // namespace heed::test
