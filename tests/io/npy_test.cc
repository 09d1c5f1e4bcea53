// .npy: what is read, what is written, and every sentence with which a file is refused. The files
// are put together here, byte by byte; that NumPy agrees is the business of test_cross.py.
#include "files.h"

namespace heed::test {
namespace {

using namespace std::string_literals;

const std::string kFour = raw<float>({1.0F, 2.0F, 3.0F, 4.0F});

TEST(npy, a_file_holds_one_tensor_without_name) {
  const TensorFile file = read("x.npy", npy_of("<f4", "(2, 2)", kFour));
  ASSERT_EQ(file.tensors.size(), 1U);
  const Tensor& x = file.tensors.at("");
  EXPECT_EQ(x.dtype, DType::f32);
  EXPECT_EQ(x.shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(bytes_of(x), kFour);
  EXPECT_TRUE(file.metadata.empty());
  EXPECT_EQ(file.trailing_bytes, 0);
}

TEST(npy, the_kind_follows_from_the_bytes_not_the_name) {
  EXPECT_EQ(bytes_of(read("x.bin", npy_of("<f4", "(4,)", kFour)).tensors.at("")), kFour);
  EXPECT_EQ(bytes_of(read("x.npz", npy_of("<f4", "(4,)", kFour)).tensors.at("")), kFour);
}

TEST(npy, each_element_type_has_its_name) {
  const std::vector<std::pair<std::string, DType>> types{
      {"|b1", DType::boolean}, {"|u1", DType::u8},  {"|i1", DType::i8},  {"<u2", DType::u16},
      {"<i2", DType::i16},     {"<u4", DType::u32}, {"<i4", DType::i32}, {"<u8", DType::u64},
      {"<i8", DType::i64},     {"<f2", DType::f16}, {"<f4", DType::f32}, {"<f8", DType::f64}};
  for (const auto& [descr, dtype] : types) {
    const std::string data("\0\1\0\1\0\1\0\1", size_of(dtype));
    EXPECT_EQ(read_npy(npy_of(descr, "(1,)", data)).dtype, dtype) << descr;
    const std::string file = written("x.npy", {.tensors = {{"x", tensor(dtype, {1}, data)}}});
    EXPECT_NE(file.find("'descr': '" + descr + "'"), std::string::npos);
    EXPECT_EQ(bytes_of(read_npy(file)), data);
  }
}

TEST(npy, big_endian_elements_are_swapped) {
  EXPECT_EQ(bytes_of(read_npy(npy_of(">u2", "(2,)", "\1\2\3\4"))), "\2\1\4\3");
  EXPECT_EQ(bytes_of(read_npy(npy_of(">f4", "(2,)", "ABCDEFGH"))), "DCBAHGFE");
  EXPECT_EQ(bytes_of(read_npy(npy_of(">f8", "(1,)", "ABCDEFGH"))), "HGFEDCBA");
  EXPECT_EQ(bytes_of(read_npy(npy_of(">u1", "(2,)", "AB"))), "AB");
}

TEST(npy, fortran_order_becomes_last_axis_fastest) {
  // [i, j, k] = 100 i + 10 j + k, stored with i fastest.
  std::vector<std::uint8_t> stored;
  std::vector<std::uint8_t> wanted;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) stored.push_back(static_cast<std::uint8_t>(100 * i + 10 * j + k));
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) wanted.push_back(static_cast<std::uint8_t>(100 * i + 10 * j + k));
  EXPECT_EQ(bytes_of(read_npy(npy_of("|u1", "(2, 3, 4)", raw(stored), "True"))), raw(wanted));
}

TEST(npy, fortran_order_and_big_endian_work_together_beyond_one_chunk) {
  constexpr std::uint32_t kRows = 1200;  // 1200 * 300 * 4 bytes exceed 1 MiB
  constexpr std::uint32_t kColumns = 300;
  std::string stored;
  std::vector<std::uint32_t> wanted(std::size_t{kRows} * kColumns);
  for (std::uint32_t j = 0; j < kColumns; ++j) {
    for (std::uint32_t i = 0; i < kRows; ++i) {
      const std::string low_first = little(i * kColumns + j, 4);
      stored.append(low_first.rbegin(), low_first.rend());
      wanted[std::size_t{i} * kColumns + j] = i * kColumns + j;
    }
  }
  EXPECT_EQ(bytes_of(read_npy(npy_of(">u4", "(1200, 300)", stored, "True"))), raw(wanted));
}

TEST(npy, scalars_and_empty_tensors_are_legal) {
  EXPECT_EQ(read_npy(npy_of("<f4", "()", kFour.substr(0, 4))).shape.size(), 0U);
  EXPECT_EQ(read_npy(npy_of("<f4", "(0,)", "")).data.size(), 0U);
  EXPECT_EQ(read_npy(npy_of("<f4", "(3, 0, 5)", "", "True")).shape,
            (std::vector<std::int64_t>{3, 0, 5}));
}

TEST(npy, headers_may_be_written_in_any_legal_way) {
  const std::string data = kFour;
  for (const std::string& dictionary :
       {"{'shape':(4,),'fortran_order':False,'descr':'<f4'}"s,
        "{\"descr\":\"<f4\",\"shape\":(4,),\"fortran_order\":False}"s,
        " { 'descr' : '<f4' , 'shape' : ( 4 , ) , 'fortran_order' : False , } \n"s,
        "\t{'descr':\r\n'<f4','shape':(4, 1,),\f'fortran_order':True}"s,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4L,), }"s,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 2L), }"s}) {
    EXPECT_EQ(bytes_of(read_npy(npy(dictionary, data, 1))), data) << dictionary;
    EXPECT_EQ(bytes_of(read_npy(npy(dictionary, data, 2))), data) << dictionary;
  }
  EXPECT_EQ(bytes_of(read_npy(npy("{'shape':(4,),'fortran_order':False,'descr':'<f4'}", data, 3))),
            data);
}

TEST(npy, headers_are_version_1_and_aligned_to_64_bytes) {
  const std::string file =
      written("x.npy", {.tensors = {{"any", tensor(DType::f32, {2, 2}, kFour)}}});
  std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  dictionary.resize(117, ' ');
  EXPECT_EQ(file, npy(dictionary + '\n', kFour));
  EXPECT_EQ(written("x.npy", {.tensors = {{"", tensor(DType::f32, {}, "abcd")}}}).substr(60, 5),
            "(), }");
  EXPECT_EQ(written("x.npy", {.tensors = {{"", tensor(DType::f32, {1}, "abcd")}}}).substr(60, 7),
            "(1,), }");
}

std::string dictionary_error(const std::string& dictionary, char major = 1) {
  return read_error("x.npy", npy(dictionary, kFour, major));
}

TEST(npy, a_header_that_is_no_header_is_refused) {
  EXPECT_EQ(read_error("x.npy", "\x93NUMPX\1\0"s),
            "format: x.npy: expected the magic \"\\x93NUMPY\", found \"\\x93NUMPX\", at offset 0");
  EXPECT_EQ(read_error("x.npy", "\x93NUM"s),
            "format: x.npy: expected 6 bytes of magic \"\\x93NUMPY\", found 4, at offset 0");
  EXPECT_EQ(read_error("x.npy", ""),
            "format: x.npy: expected 6 bytes of magic \"\\x93NUMPY\", found the end, at offset 0");
  EXPECT_EQ(read_error("x.npy", "\x93NUMPY\4\0"s),
            "format: x.npy: expected version 1.0, 2.0 or 3.0, found 4.0, at offset 6");
  EXPECT_EQ(read_error("x.npy", "\x93NUMPY\1\1"s),
            "format: x.npy: expected version 1.0, 2.0 or 3.0, found 1.1, at offset 6");
  EXPECT_EQ(read_error("x.npy", "\x93NUMPY\1\0\5"s),
            "format: x.npy: expected 2 bytes of header length, found 1, at offset 8");
  EXPECT_EQ(read_error("x.npy", "\x93NUMPY\1\0\5\0{}"s),
            "format: x.npy: expected 5 bytes of header, found 2, at offset 10");
  EXPECT_EQ(dictionary_error(std::string(10001, ' ')),
            "format: x.npy: expected a header of at most 10000 bytes, found 10001, at offset 8");
  EXPECT_EQ(
      read_error("x.npy", "\x93NUMPY\2\0\xff\xff\xff\xff"s),
      "format: x.npy: expected a header of at most 10000 bytes, found 4294967295, at offset 8");
  EXPECT_EQ(
      read_error("x.dat", "hello"),
      "format: x.dat: expected the start of a .npy, .npz or .safetensors file, found \"hello\", "
      "at offset 0");
}

TEST(npy, a_dictionary_is_parsed_and_never_evaluated) {
  const std::string rest = ", 'fortran_order': False, 'shape': (4,), }";
  EXPECT_EQ(dictionary_error("[1]"),
            "format: x.npy: expected a Python dictionary, found \"[\", at offset 10");
  EXPECT_EQ(
      dictionary_error(""),
      "format: x.npy: expected a Python dictionary, found the end of the header, at offset 10");
  EXPECT_EQ(dictionary_error("{'descr': __import__('os').abort()" + rest),
            "format: x.npy: expected an element type in quotes, found \"_\", at offset 20");
  EXPECT_EQ(dictionary_error("{'descr': [('a', '<f4')]" + rest),
            "format: x.npy: expected an element type in quotes, found \"[\", at offset 20");
  EXPECT_EQ(dictionary_error("{descr: '<f4'" + rest),
            "format: x.npy: expected a key in quotes, found \"d\", at offset 11");
  EXPECT_EQ(dictionary_error("{'descr' '<f4'" + rest),
            "format: x.npy: expected ':', found \"'\", at offset 19");
  EXPECT_EQ(dictionary_error("{'descr': '<f4' 'shape': (4,)}"),
            "format: x.npy: expected ',' or '}', found \"'\", at offset 26");
  EXPECT_EQ(dictionary_error("{'descr': '<f\\x34'" + rest),
            "format: x.npy: expected plain characters up to a quote, found \"\\\\\", at offset 23");
  EXPECT_EQ(
      dictionary_error("{'descr': '<f4"),
      "format: x.npy: expected plain characters up to a quote, found the end of the header, at "
      "offset 24");
  EXPECT_EQ(dictionary_error("{'descr': '<f4'" + rest + "evil"),
            "format: x.npy: expected nothing after the dictionary, found \"evil\", at offset 67");
}

TEST(npy, keys_are_the_three_each_once) {
  EXPECT_EQ(dictionary_error("{'descr': '<f4', 'shape': (4,), 'shape': (4,)}"),
            "format: x.npy: expected the key \"shape\" once, found it again, at offset 42");
  EXPECT_EQ(
      dictionary_error("{'descr': '<f4', 'shape': (4,)}"),
      "format: x.npy: expected the key \"fortran_order\", found the end of the keys, at offset "
      "40");
  EXPECT_EQ(dictionary_error("{'descr': '<f4', 'a\tb': (4,)}"),
            "format: x.npy: expected plain characters up to a quote, found \"\\t\", at offset 29");
  EXPECT_EQ(
      dictionary_error("{'descr': '<f4', 'more': (4,)}"),
      "format: x.npy: expected one of the keys \"descr\", \"fortran_order\" and \"shape\", found "
      "\"more\", at offset 27");
}

TEST(npy, element_types_that_heed_lacks_are_refused) {
  const std::string expected =
      "format: x.npy: expected an element type of b1, u1, i1, u2, i2, u4, i4, u8, i8, f2, f4, f8 "
      "after '<' or '>', of one byte after '|' too, found ";
  const auto error = [](const std::string& descr) {
    return read_error("x.npy", npy_of(descr, "(4,)", kFour));
  };
  EXPECT_EQ(error("<c8"), expected + "\"<c8\", at offset 20");
  EXPECT_EQ(error("f4"), expected + "\"f4\", at offset 20");
  EXPECT_EQ(error("|f4"), expected + "\"|f4\", at offset 20");
  EXPECT_EQ(error("=f4"), expected + "\"=f4\", at offset 20");
  EXPECT_EQ(error("<V2"), expected + "\"<V2\", at offset 20");
  EXPECT_EQ(error("O"), expected + "\"O\", Python objects, which are never loaded, at offset 20");
  EXPECT_EQ(error("|O"), expected + "\"|O\", Python objects, which are never loaded, at offset 20");
}

TEST(npy, shapes_are_tuples_of_sizes) {
  const auto error = [](const std::string& shape, char major = 1) {
    return dictionary_error("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + "}",
                            major);
  };
  EXPECT_EQ(error("(2, -2)"),
            "format: x.npy: expected a size, an integer >= 0, found \"-\", at offset 64");
  EXPECT_EQ(error("(4.0,)"), "format: x.npy: expected ',', found \".\", at offset 62");
  EXPECT_EQ(error("(True,)"),
            "format: x.npy: expected a size, an integer >= 0, found \"T\", at offset 61");
  EXPECT_EQ(error("((4,),)"),
            "format: x.npy: expected a size, an integer >= 0, found \"(\", at offset 61");
  EXPECT_EQ(error("(4)"), "format: x.npy: expected ',', found \")\", at offset 62");
  EXPECT_EQ(error("4"), "format: x.npy: expected a tuple of sizes, found \"4\", at offset 60");
  EXPECT_EQ(error("(,)"),
            "format: x.npy: expected a size, an integer >= 0, found \",\", at offset 61");
  EXPECT_EQ(error("(4L,)", 3), "format: x.npy: expected ',', found \"L\", at offset 64");
  EXPECT_EQ(error("(04,)"),
            "format: x.npy: expected a size without leading zero, found \"04\", at offset 61");
  EXPECT_EQ(
      error("(9223372036854775808,)"),
      "format: x.npy: expected a size below 2^63, found \"9223372036854775808,)}\", at offset 61");
  EXPECT_EQ(
      error("(92233720368547758070,)"),
      "format: x.npy: expected a size below 2^63, found \"92233720368547758070,)}\", at offset 61");
  EXPECT_EQ(error("(4"), "format: x.npy: expected ',', found \"}\", at offset 62");
  EXPECT_EQ(
      error("(4294967296, 4294967296)"),
      "format: x.npy: expected a shape of less than 2^63 bytes, found (4294967296, 4294967296), "
      "at offset 60");
  EXPECT_EQ(
      error("(2305843009213693952, 0)"),
      "format: x.npy: expected a shape of less than 2^63 bytes, found (2305843009213693952, 0), "
      "at offset 60");
  std::string many = "(";
  for (int axis = 0; axis < 65; ++axis) many += "1,";
  EXPECT_EQ(error(many + ")"),
            "format: x.npy: expected at most 64 axes, found one more, at offset 189");
  EXPECT_EQ(dictionary_error("{'descr': '<f4', 'fortran_order': 0, 'shape': (4,)}"),
            "format: x.npy: expected True or False, found \"0\", at offset 44");
}

TEST(npy, keys_of_other_characters_are_refused) {
  EXPECT_EQ(
      dictionary_error("{'\xff': '<f4'}", 3),
      "format: x.npy: expected plain characters up to a quote, found \"\\xff\", at offset 14");
}

TEST(npy, data_are_as_long_as_the_shape_says) {
  EXPECT_EQ(read_error("x.npy", npy_of("<f4", "(5,)", kFour)),
            "format: x.npy: expected 20 bytes of data for shape (5,), found 16, at offset 68");
  EXPECT_EQ(read_error("x.npy", npy_of("<f4", "(3,)", kFour)),
            "format: x.npy: expected 12 bytes of data for shape (3,), found 16, at offset 68");
  const TensorFile file = read("x.npy", npy_of("<f4", "(3,)", kFour), {.allow_trailing = true});
  EXPECT_EQ(bytes_of(file.tensors.at("")), kFour.substr(0, 12));
  EXPECT_EQ(file.trailing_bytes, 4);
  EXPECT_EQ(read_error("x.npy", npy_of("<f4", "(5,)", kFour), {.allow_trailing = true}),
            "format: x.npy: expected 20 bytes of data for shape (5,), found 16, at offset 68");
}

TEST(npy, a_claimed_size_is_checked_before_it_is_allocated) {
  EXPECT_EQ(read_error("x.npy", npy_of("<f4", "(1152921504606846976,)", "")),
            "format: x.npy: expected 4611686018427387904 bytes of data for shape "
            "(1152921504606846976,), found 0, at offset 86");
  EXPECT_EQ(
      read_error("x.npy", npy_of("<f4", "(4,)", kFour), {.max_bytes = 15}),
      "memory: x.npy: expected tensors of at most 15 bytes together, found one of 16 after 0");
  EXPECT_EQ(read_error("x.npy", npy_of("<f4", "(4,)", kFour), {.max_bytes = 16}), "nothing");
  EXPECT_EQ(read_error("x.npy", npy_of("<f4", "(4,)", kFour), {.max_bytes = -1}),
            "argument: x.npy: max_bytes is -1; it is >= 0");
}

TEST(npy, what_the_format_cannot_hold_is_not_written) {
  const Directory directory;
  const auto error = [&](const std::string& name, const TensorFile& file) {
    const std::string text = error_of(directory, [&] { write_tensors(directory / name, file); });
    EXPECT_EQ(directory.entries(), 0U);
    return text;
  };
  const Tensor x = tensor(DType::f32, {4}, kFour);
  EXPECT_EQ(error("x.npy", {.tensors = {{"b", tensor(DType::bf16, {1}, "ab")}}}),
            "argument: x.npy: \"b\": bfloat16 has no name in .npy; convert to float32 or write "
            ".safetensors");
  EXPECT_EQ(error("x.npy", {.tensors = {{"a", x}, {"b", x}}}),
            "argument: x.npy: .npy holds one tensor, not 2; write .npz or .safetensors");
  EXPECT_EQ(error("x.npy", {}),
            "argument: x.npy: .npy holds one tensor, not 0; write .npz or .safetensors");
  EXPECT_EQ(error("x.npy", {.tensors = {{"a", x}}, .metadata = {{"k", "v"}}}),
            "argument: x.npy: only .safetensors holds metadata");
  EXPECT_EQ(error("x.txt", {.tensors = {{"a", x}}}),
            "argument: x.txt: the name must end in .npy, .npz or .safetensors");
  EXPECT_EQ(
      error("x.npy", {.tensors = {{"a", tensor(DType::f32, {5}, kFour)}}}),
      "argument: x.npy: \"a\": a tensor of shape (5,) and type float32 has 16 bytes of data; it "
      "takes 20");
  EXPECT_EQ(
      error("x.npy", {.tensors = {{"a", tensor(DType::f32, {-4}, kFour)}}}),
      "argument: x.npy: \"a\": a tensor of shape (-4,) and type float32 has 16 bytes of data; no "
      "memory can hold it");
  EXPECT_EQ(error("x.npy",
                  {.tensors = {{"a", tensor(DType::u8, std::vector<std::int64_t>(65, 1), "a")}}}),
            "argument: x.npy: \"a\": a tensor has 65 axes; .npy holds at most 64");
}

/// What stands for these bytes in a message.
std::string shown(const std::string& bytes) {
  const std::string text = read_error(bytes, "x");
  const std::size_t begin = std::string("format: ").size();
  return text.substr(begin, text.find(": expected") - begin);
}

TEST(npy, characters_that_hide_or_turn_text_are_shown_as_bytes) {
  for (const std::string& plain :
       {"\x7e"s, "\xc2\xa0"s, "\xe2\x80\x8a"s, "\xe2\x80\x90"s, "\xe2\x80\xa7"s, "\xe2\x80\xaf"s,
        "\xe2\x81\x9f"s, "\xe2\x81\xb0"s, "\xed\x9f\xbf"s, "\xee\x80\x80"s, "\xf0\x90\x80\x80"s,
        "\xf4\x8f\xbf\xbd"s}) {
    EXPECT_EQ(shown(plain), plain);
  }
  const std::vector<std::pair<std::string, std::string>> hidden_characters{
      {"\n", "\\n"},
      {"\t", "\\t"},
      {"\x01", "\\x01"},
      {"\x1f", "\\x1f"},
      {"\x7f", "\\x7f"},
      {"\xc2\x80", "\\u0080"},
      {"\xc2\x9f", "\\u009f"},  // controls
      {"\xc2\xad", "\\u00ad"},
      {"\xef\xb8\x8f", "\\ufe0f"},
      {"\xe3\x85\xa4", "\\u3164"},  // what fonts leave out
      {"\xd8\x9c", "\\u061c"},
      {"\xe1\xa0\x8e", "\\u180e"},
      {"\xe2\x80\x8b", "\\u200b"},
      {"\xe2\x80\x8f", "\\u200f"},
      {"\xe2\x80\xa8", "\\u2028"},  // width 0, lines
      {"\xe2\x80\xa9", "\\u2029"},
      {"\xe2\x80\xaa", "\\u202a"},
      {"\xe2\x80\xae", "\\u202e"},  // paragraphs, directions
      {"\xe2\x81\xa0", "\\u2060"},
      {"\xe2\x81\xaf", "\\u206f"},
      {"\xef\xbb\xbf", "\\ufeff"},  // joiners, byte order
      {"\xef\xbf\xb9", "\\ufff9"},
      {"\xef\xbf\xbf", "\\uffff"},
      {"\xf3\xa0\x81\xbf", "\\U000e007f"},
      {"\xf4\x8f\xbf\xbf", "\\U0010ffff"}};  // annotations, tags, no characters
  for (const auto& [hidden, text] : hidden_characters) EXPECT_EQ(shown(hidden), text);
  const auto hexadecimal = [](const std::string& bytes) {
    std::string text;
    for (const char c : bytes) {
      constexpr char kDigits[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      text += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    }
    return text;
  };
  for (const std::string& hidden :
       {"\xc1\xbf"s, "\xe0\x9f\xbf"s,
        "\xf0\x8f\xbf\xbf"s,  // longer than need be
        "\xed\xa0\x80"s, "\xed\xbf\xbf"s,
        "\xf4\x90\x80\x80"s,                                            // surrogates, too large
        "\xf5\x80\x80\x80"s, "\xc2"s, "\xe2\x80"s, "\xe2\x28\x80"s}) {  // cut, or no UTF-8
    const std::string text = hexadecimal(hidden);
    EXPECT_EQ(shown(hidden), hidden[1] == '(' ? "\\xe2(\\x80" : text) << text;
  }
}

TEST(npy, names_of_files_do_not_break_the_line) {
  EXPECT_EQ(read_error("a\nb\x1b[31m\xff\\\xc3\xa9\xe2\x80\xae.npy", "x"),
            "format: a\\nb\\x1b[31m\\xff\\\\\xc3\xa9\\u202e.npy: expected 6 bytes of magic "
            "\"\\x93NUMPY\", found 1, at offset 0");
}

TEST(npy, of_a_long_name_a_message_keeps_both_ends) {
  const auto error = [](const std::string& name) {
    return error_of(Directory(), [&] { (void)read_tensors(name); });
  };
  const auto none = [](const std::string& shown) {
    return "io: " + shown + ": cannot open: No such file or directory";
  };
  const std::string whole = "none/" + std::string(247, 'x') + ".npy";
  EXPECT_EQ(error(whole), none(whole));
  std::string path = "none/";
  while (path.size() < 4091) path += "x/";
  const std::string shown = path.substr(0, 126) + "..." + path.substr(4091 - 122) + ".npy";
  EXPECT_EQ(error(path + ".npy"), none(shown));
  // No character is halved: 126 bytes from either end stand in the middle of one.
  std::string accents;
  for (int i = 0; i < 200; ++i) accents += "\xc3\xa9";
  EXPECT_EQ(error("none/" + accents + "/1"),
            none("none/" + accents.substr(0, 120) + "..." + accents.substr(0, 124) + "/1"));
  EXPECT_EQ(error("none/" + accents + "/12"),
            none("none/" + accents.substr(0, 120) + "..." + accents.substr(0, 122) + "/12"));
}

}  // namespace
}  // namespace heed::test
