// A file descriptor that is closed when it goes.
#pragma once

#include <unistd.h>

#include <utility>

namespace heed::io {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) noexcept : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }

  [[nodiscard]] int get() const noexcept { return value_; }
  [[nodiscard]] bool is_open() const noexcept { return value_ >= 0; }
  int release() noexcept { return std::exchange(value_, -1); }

 private:
  int value_ = -1;
};

}  // namespace heed::io
