// The .npz format: a zip archive of .npy files.
#pragma once

#include <zip.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "heed/io.h"
#include "io/input_file.h"
#include "io/output_file.h"
#include "io/tensor.h"

namespace heed::io {

/// Reads every member, stored or deflated, zip64 or not, and checks its CRC-32. Refuses names that
/// occur twice, are absolute, contain ".." or do not end in .npy; encryption; other methods;
/// headers that differ between a member and the central directory; holes and overlaps, and what
/// else others could read in another way (npz_layout.h); a member that claims to shrink more than
/// 1,100 times (deflate cannot exceed 1,032).
void read_npz(const InputFile& file, Budget& budget, bool allow_trailing, TensorFile& result);

/// Writes the tensors stored, in order of name, dated 1 January 1980: equal tensors, equal bytes.
void write_npz(OutputFile& file, const TensorFile& tensors);

/// A relative path without ".." and without a zero byte.
[[nodiscard]] bool is_legal_member(std::string_view name) noexcept;

/// libzip's error state, freed.
struct ZipError {
  zip_error_t state;
  ZipError() noexcept { zip_error_init(&state); }
  ~ZipError() { zip_error_fini(&state); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;
};

}  // namespace heed::io
