// What a call refuses, in words, and memory for its arguments.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "heed/error.h"

namespace heed_test {

template <typename F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const heed::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// What a function says, without its name, which stands first.
inline std::string said_by(const std::string& function, const std::string& message) {
  EXPECT_EQ(message.substr(0, message.find(": ")), function) << message;
  return message.substr(message.find(": ") + 2);
}

inline std::vector<float> memory(std::size_t count) { return std::vector<float>(count, 7.0f); }

}  // namespace heed_test
