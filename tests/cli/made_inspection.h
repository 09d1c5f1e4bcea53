// Inspections for tests of pictures, computed plainly from queries and keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inspection.h"

namespace heed::cli {

/// Queries and keys of all layers and heads: [layers, heads, tokens, size].
struct Operands {
  std::int64_t layers = 1, heads = 1, queries = 1, keys = 1, size = 1;
  std::vector<float> q{}, k{};
};

enum class Sight : std::uint8_t { all, causal };

/// Independent numbers from N(0, 1).
[[nodiscard]] Operands random_operands(std::int64_t layers, std::int64_t heads, std::int64_t tokens,
                                       std::int64_t size);

/// Fills every field, maps of at most `cells` x `cells`.
[[nodiscard]] Inspection made_inspection(const Operands& operands, Sight sight, int cells);

/// The shape and size of an inspection without the time to compute one: smooth maps.
[[nodiscard]] Inspection large_inspection(std::int64_t layers, std::int64_t heads,
                                          std::int64_t tokens, int cells);

/// One head of numbers that are none, NaN or infinite, beside one without rows and keys' worth of
/// data.
[[nodiscard]] Inspection broken_inspection();

/// Tokens that must not get out of their place: markup, quotes, controls, broken UTF-8, much of it.
[[nodiscard]] std::vector<std::string> hostile_tokens(std::size_t count);

}  // namespace heed::cli
