// Damaged files: cut at every byte, or with any one bit of a header turned over. Reading ends in a
// refusal that names file and offset, or in a tensor that is legal; never in a crash and never in
// another exception. Run under AddressSanitizer this also shows that no byte outside is touched.
#include "files.h"
#include "sanitized.h"

namespace heed::test {
namespace {

struct Sample {
  std::string name;
  std::string bytes;
  std::size_t header = 0;  // bytes that are no elements: each of their bits is turned over
};

std::vector<Sample> samples() {
  std::string data(1980, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  const std::string q = npy_of("<f4", "(15, 33)", data);
  const std::string k = npy_of(">i4", "(11, 15)", data.substr(0, 660), "True");
  const TensorFile file{.tensors = {{"q", tensor(DType::f32, {15, 33}, data)},
                                    {"k", tensor(DType::bf16, {10}, data.substr(0, 20))}},
                        .metadata = {{"format", "pt"}}};
  const std::string archive = zip({Member("q.npy", q).deflate(), {"k.npy", k}});
  Member wide("q.npy", q);
  wide.zip64 = true;
  const std::string archive64 = zip({wide}, true);
  const std::string safe = written("x.safetensors", file);
  return {{"x.npy", q, q.size() - data.size()},
          {"f.npy", k, k.size() - 660},
          {"x.npz", archive, archive.size()},
          {"z.npz", archive64, archive64.size()},
          {"x.safetensors", safe, safe.size() - data.size() - 20}};
}

void expect_legal(const TensorFile& file, const std::string& where) {
  for (const auto& [name, x] : file.tensors) {
    std::int64_t bytes = static_cast<std::int64_t>(size_of(x.dtype));
    for (const std::int64_t axis : x.shape) bytes *= axis;
    EXPECT_EQ(static_cast<std::size_t>(bytes), x.data.size()) << where;
  }
}

/// "kind: name: [member ...:] expected E, found F" and, but for memory, ", at offset N", in one
/// line.
bool is_refusal(const std::string& error, const std::string& name) {
  const auto expected = error.find(": expected ");
  const auto found = error.find(", found ");
  const auto offset = error.rfind(", at offset ");
  const bool offset_given = offset != std::string::npos && offset > found &&
                            offset + 12 < error.size() &&
                            error.find_first_not_of("0123456789", offset + 12) == std::string::npos;
  return error.find('\n') == std::string::npos && expected != std::string::npos &&
         found != std::string::npos && found > expected &&
         (error.starts_with("memory: " + name) ||
          (error.starts_with("format: " + name) && offset_given));
}

TEST(damage, a_file_cut_anywhere_is_refused_with_its_name_and_an_offset) {
  const Directory directory;
  for (const Sample& sample : samples()) {
    const std::string path = directory / sample.name;
    for (std::size_t size = 0; size < sample.bytes.size(); ++size) {
      put(path, sample.bytes.substr(0, size));
      for (const bool trailing : {false, true}) {
        const std::string error =
            error_of(directory, [&] { (void)read_tensors(path, {.allow_trailing = trailing}); });
        ASSERT_TRUE(is_refusal(error, sample.name) && error.starts_with("format"))
            << sample.name << " of " << size << ": " << error;
      }
    }
  }
}

TEST(damage, a_header_bit_turned_over_is_refused_or_leaves_legal_tensors) {
  const Directory directory;
  for (const Sample& sample : samples()) {
    const std::string path = directory / sample.name;
    // 3 is prime to 8: in three bytes each place of a bit has its turn. Other builds take all.
    for (std::size_t bit = 0; bit < 8 * sample.header; bit += heed_test::sanitized() ? 3 : 1) {
      std::string bytes = sample.bytes;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      put(path, bytes);
      const std::string where = sample.name + ", bit " + std::to_string(bit);
      const std::string error =
          error_of(directory, [&] { expect_legal(read_tensors(path), where); });
      ASSERT_TRUE(error == "nothing" || is_refusal(error, sample.name)) << where << ": " << error;
    }
  }
}

TEST(damage, a_data_bit_of_an_archive_turned_over_never_goes_unnoticed) {
  const std::string data(400, 'd');
  const std::string q = npy_of("|u1", "(400,)", data);
  const Member member("q.npy", q);
  const std::string bytes = zip({member});
  const std::size_t start = bytes.find(q);
  for (std::size_t bit = 8 * start; bit < 8 * (start + q.size()); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ASSERT_EQ(read_error("x.npz", damaged).substr(0, 7), "format:") << bit;
  }
}

}  // namespace
}  // namespace heed::test
