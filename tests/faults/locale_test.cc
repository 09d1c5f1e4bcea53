// A host program whose locale writes numbers with a comma.
// Method: `localedef`, which belongs to the C library, makes such a locale from four lines, and the
// process switches to it; streams of C++ are given a facet that says the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

#include "heed/attention.h"
#include "heed/error.h"
#if defined(HEED_TEST_IO)
#include "heed/io.h"
#endif

namespace {

namespace fs = std::filesystem;

/// What streams of C++ write numbers with. Not std::locale("comma"): glibc 2.36's newlocale(),
/// which that calls, keeps the list that it makes of LOCPATH; setlocale() does not.
class Commas final : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

void speak_with_commas() {
  ASSERT_NE(std::setlocale(LC_ALL, "comma"), nullptr) << "localedef made no locale";
  std::locale::global(std::locale(std::locale::classic(), new Commas));
  char text[8];
  std::snprintf(text, sizeof text, "%g", 0.5);
  ASSERT_STREQ(text, "0,5");
  std::ostringstream stream;
  stream << 1234.5;
  ASSERT_EQ(stream.str(), "1.234,5");
}

void speak_as_c() {
  std::locale::global(std::locale::classic());
  std::setlocale(LC_ALL, "C");
}

/// This process in a language of commas, until it goes.
class comma : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "heed-locale-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ / "source") << "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
                                         "grouping 3;3\nEND LC_NUMERIC\n";
    // It warns of what the source leaves out, and exits with 1 for that.
    const std::string make = "cd '" + pattern + "' && localedef --no-archive -c -i ./source" +
                             " -f ANSI_X3.4-1968 ./comma >log 2>&1";
    (void)!std::system(make.c_str());
    ASSERT_EQ(setenv("LOCPATH", pattern.c_str(), 1), 0);
    speak_with_commas();
  }
  void TearDown() override {
    speak_as_c();
    unsetenv("LOCPATH");
    fs::remove_all(folder_);
  }

  fs::path folder_;
};

template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const heed::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(comma, changes_no_message) {
  const std::vector<float> q(6, 1), k(std::size_t{1500} * 3, 1);
  std::vector<float> o(6);
  const auto call = [&](const heed::AttentionOptions& options) {
    return message_of([&] {
      heed::attention_forward(heed::view(q.data(), {2, 3}), heed::view(k.data(), {1500, 3}),
                              heed::view(k.data(), {1500, 3}),
                              {.output = heed::view(o.data(), {2, 3})}, options);
    });
  };
  EXPECT_EQ(call({.dropout = {.p = 1.5, .seed = 1}}),
            "attention_forward: dropout.p is 1.5; expected 0 <= p < 1, and 1 - p above 2^-17");
  EXPECT_NE(call({.softcap = -1234567.5}).find("-1234567.5"), std::string::npos)
      << call({.softcap = -1234567.5});
  const std::vector<float> short_k(std::size_t{1400} * 3, 1);
  const std::string sizes = message_of([&] {
    heed::attention_forward(heed::view(q.data(), {2, 3}), heed::view(k.data(), {1500, 3}),
                            heed::view(short_k.data(), {1400, 3}),
                            {.output = heed::view(o.data(), {2, 3})});
  });
  EXPECT_NE(sizes.find("1400"), std::string::npos) << sizes;
}

#if defined(HEED_TEST_IO)
TEST_F(comma, changes_no_byte_of_a_file) {
  for (const char* name : {"x.npy", "x.npz", "x.safetensors"}) {
    const std::string path = folder_ / name;
    heed::TensorFile file;
    file.tensors[""] = heed::make_tensor(heed::DType::u8, {1234, 5});
    heed::write_tensors(path, file);
    const auto bytes = [&] {
      std::ifstream stream(path, std::ios::binary);
      stream.imbue(std::locale::classic());
      return std::string{std::istreambuf_iterator<char>(stream), {}};
    };
    const std::string written = bytes();
    EXPECT_EQ(heed::read_tensors(path).tensors.at("").shape, (std::vector<std::int64_t>{1234, 5}));
    speak_as_c();
    heed::write_tensors(path, file);
    EXPECT_EQ(bytes(), written) << name;
    speak_with_commas();
  }
}
#endif

}  // namespace
