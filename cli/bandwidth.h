// The fastest that this machine reads memory: what a kernel's traffic is a share of.
#pragma once

namespace heed::cli {

/// Bytes read per second, in 10^9, by `threads` threads of heed's pool that together sum a buffer
/// of at least 256 MiB: the best of several passes. 0 if there is no memory for the buffer.
[[nodiscard]] double measure_read_bandwidth(int threads);

}  // namespace heed::cli
