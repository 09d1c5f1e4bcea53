// Working memory for one call, kept by the calling thread for its next one.
#pragma once

#include <cstddef>

namespace heed::runtime {

/// Bytes for the time of a call, aligned to a page; what they hold is unspecified.
/// They come from what this thread has kept of earlier leases when that is large enough (no
/// allocation, no lock), and go back there at the end. Leases nest: each has memory of its own.
/// To be destroyed by the thread that made it; other threads may use the bytes until then.
/// Throws Error(ErrorKind::memory) with the number of bytes if they cannot be had.
class ScratchLease {
 public:
  explicit ScratchLease(std::size_t bytes);
  ~ScratchLease();
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
  std::size_t capacity_;  // bytes_ or more, whole pages
};

inline constexpr std::size_t kScratchAlignment = 4096;

/// A thread keeps no more than this between calls, in all.
inline constexpr std::size_t kScratchKept = std::size_t{64} << 20;

/// What the calling thread keeps now.
[[nodiscard]] std::size_t scratch_kept() noexcept;

/// Frees what the calling thread keeps; leases in use are not touched.
void scratch_release() noexcept;

}  // namespace heed::runtime
