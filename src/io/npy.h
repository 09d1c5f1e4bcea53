// The .npy format: a magic string, a version, a Python dictionary as text, and raw elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/input_file.h"
#include "io/tensor.h"

namespace heed::io {

inline constexpr std::string_view kNpyMagic{"\x93NUMPY"};
inline constexpr std::size_t kNpyMaxRank = 64;  // NumPy 2 refuses more

struct NpyHeader {
  DType dtype = DType::f32;
  bool big_endian = false;
  bool fortran_order = false;  // first axis fastest
  std::vector<std::int64_t> shape;
  std::int64_t descr_offset = 0;  // where in the stream the type and the shape were read
  std::int64_t shape_offset = 0;
};

/// Reads magic, version and dictionary; the stream then stands at the elements. Refuses what NumPy
/// refuses, and also escapes in strings, a byte order of '=' or none, and types that heed lacks.
[[nodiscard]] NpyHeader read_npy_header(Stream& stream);

/// The same from the text of the dictionary, which starts at `offset`.
[[nodiscard]] NpyHeader parse_npy_dictionary(const Stream& stream, std::string_view text,
                                             std::int64_t offset, int version);

/// Reads one tensor. `trailing` is null if the stream must end where the tensor does; otherwise it
/// receives the number of surplus bytes.
[[nodiscard]] Tensor read_npy(Stream& stream, Budget& budget, std::int64_t* trailing);

/// Everything before the elements, version 1.0, a multiple of 64 bytes. Throws ErrorKind::argument
/// for bfloat16, which the format cannot name, and for more axes than NumPy reads.
[[nodiscard]] std::string npy_header(const std::string& label, const Tensor& tensor);

}  // namespace heed::io
