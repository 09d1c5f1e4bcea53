// Where the parts of a .npz lie.
#pragma once

#include <cstdint>

#include "io/input_file.h"

namespace heed::io {

/// Throws ErrorKind::format unless members, directory and zip64 records fill the file from its
/// beginning to the end record, which starts at `end`, one after the other, and nothing in them can
/// be found in another place. libzip looks for the directory where its offset says, other readers,
/// zipfile of Python among them, before the end record: a hole could hold another one, and an
/// overlap makes one member of another's data. For an archive that libzip opened by this end
/// record.
void check_layout(const InputFile& file, std::int64_t end);

}  // namespace heed::io
