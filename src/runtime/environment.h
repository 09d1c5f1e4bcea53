// Environment variables, as all parts of the runtime read and quote them.
#pragma once

#include <string>
#include <string_view>

namespace heed::runtime {

/// The variable's text; "" if it is unset, which heed does not tell from empty.
[[nodiscard]] std::string_view environment_variable(const char* name) noexcept;

/// 'text' for a message: without control characters or other bytes that are not plain ASCII, and
/// cut after 64 of them.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace heed::runtime
