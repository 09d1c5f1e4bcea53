// The .safetensors format: the length of a JSON header in eight bytes, the header, raw elements.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/io.h"
#include "io/input_file.h"
#include "io/output_file.h"
#include "io/tensor.h"

namespace heed::io {

inline constexpr std::int64_t kSafetensorsMaxHeader = 100'000'000;

/// The format's names, in the order of DType.
inline constexpr std::array<std::string_view, 13> kSafetensorsNames{
    "BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64"};

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // of the elements, from the end of the header
  std::int64_t end = 0;
  std::int64_t offset = 0;  // of the name in the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Reads the JSON text, which starts at offset 8 of the file.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(const std::string& label,
                                                         std::string_view text);

/// Refuses a header that ends after the file or exceeds 100,000,000 bytes, JSON that is not the
/// format's (also unknown keys of an entry, and double keys, which the format's own library takes),
/// elements that overlap, leave a hole, or do not fill their shape.
void read_safetensors(const InputFile& file, Budget& budget, bool allow_trailing,
                      TensorFile& result);

/// Writes wide elements first, so that each tensor is aligned to its element size, as the format's
/// own library does; equal widths in order of name.
void write_safetensors(OutputFile& file, const TensorFile& tensors);

}  // namespace heed::io
