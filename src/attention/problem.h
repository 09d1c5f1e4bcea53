// One call of attention, checked: sizes, strides and options with nothing left to decide.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention/row_statistics.h"
#include "heed/attention.h"

namespace heed {

/// Rows in pages: row i of batch entry b is row i % rows of page tables[b][i / rows].
struct Pages {
  std::int64_t rows = 0;    ///< of a page
  std::int64_t stride = 0;  ///< elements from page to page
  const std::int64_t* const* tables = nullptr;
};

/// A tensor over the axes batch, head, row, column; broadcast axes have stride 0 (in elements).
/// Batch entries may lie end to end along rows and columns, or have their rows in pages.
struct View4 {
  std::byte* data = nullptr;  ///< never written through where the caller gave a ConstTensorView
  DType dtype = DType::f32;
  bool present = false;
  std::array<std::int64_t, 4> stride{};
  const std::int64_t* first_row = nullptr;     ///< of each batch entry, where they lie end to end
  const std::int64_t* first_column = nullptr;  ///< likewise
  const Pages* pages = nullptr;                ///< where rows lie in pages

  [[nodiscard]] std::byte* at(std::int64_t b, std::int64_t h, std::int64_t i,
                              std::int64_t j = 0) const {
    if (first_row != nullptr) i += first_row[b];
    if (first_column != nullptr) j += first_column[b];
    std::int64_t base = b * stride[0];
    if (pages != nullptr) {
      base = pages->tables[b][i / pages->rows] * pages->stride;
      i %= pages->rows;
    }
    const std::int64_t offset = base + h * stride[1] + i * stride[2] + j * stride[3];
    return data + offset * static_cast<std::int64_t>(size_of(dtype));
  }
  /// How many of the rows begin .. end - 1 of an entry, from the first on, lie one stride apart.
  [[nodiscard]] std::int64_t rows_in_piece(std::int64_t begin, std::int64_t end) const {
    return pages == nullptr ? end - begin
                            : std::min(end - begin, pages->rows - begin % pages->rows);
  }
  [[nodiscard]] bool in_one_piece(std::int64_t begin, std::int64_t end) const {
    return rows_in_piece(begin, end) == end - begin;
  }
  /// True if that may be wrong of the rows of a block.
  [[nodiscard]] bool cuts_blocks(std::int64_t block) const {
    return pages != nullptr && pages->rows % block != 0;
  }
};

/// Batch entries with numbers of rows of their own.
struct Ragged {
  std::vector<std::int64_t> queries, keys;           ///< of each entry
  std::vector<std::int64_t> first_query, first_key;  ///< its rows in the tensors
  std::int64_t all_queries = 0;                      ///< query rows of the tensors

  // Of a cache: pages, keys from 0 on that nobody may see, and where query rows stand.
  std::vector<const std::int64_t*> tables;
  Pages k_pages, v_pages;
  std::vector<std::int64_t> hidden, starts;

  [[nodiscard]] std::int64_t entries() const { return static_cast<std::int64_t>(keys.size()); }
  [[nodiscard]] static std::int64_t largest(const std::vector<std::int64_t>& numbers) {
    return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end());
  }
};

struct Problem {
  const char* function;  ///< for messages
  DType element;         ///< type of q, k, v, output, and of their gradients and tangents
  DType dtype;           ///< that is computed in: of lse, weights, statistics and all else
  /// Where batch entries differ, queries and keys are those of the longest.
  std::int64_t batches, heads, kv_heads, queries, keys, head_size, value_size;
  std::shared_ptr<const Ragged> ragged;  ///< null: all batch entries are alike
  View4 q, k, v;
  View4 output, lse, weights;
  View4 bias, keep, drop;
  std::array<View4, kStatisticFields.size()> statistics;  ///< in the order of kStatisticFields
  bool counting = false;                                  ///< some of them are asked for
  std::uint32_t drop_below = 0;  ///< draws of 16 bits below are dropped weights; 0: no dropout
  double keep_factor = 1;        ///< of the weights that are kept
  std::int64_t draw_heads = 0;   ///< heads between the places of two batch entries
  AttentionOptions options;  ///< scalars, one-or-each values, score_mod; views in it are checked

  /// Query heads that read one KV head.
  [[nodiscard]] std::int64_t group() const { return kv_heads == 0 ? 0 : heads / kv_heads; }
  [[nodiscard]] std::int64_t queries_of(std::int64_t b) const {
    return ragged == nullptr ? queries : ragged->queries[static_cast<std::size_t>(b)];
  }
  [[nodiscard]] std::int64_t keys_of(std::int64_t b) const {
    return ragged == nullptr ? keys : ragged->keys[static_cast<std::size_t>(b)];
  }
  /// Keys of an entry from 0 on that nobody may see.
  [[nodiscard]] std::int64_t hidden_of(std::int64_t b) const {
    return ragged == nullptr || ragged->hidden.empty()
               ? 0
               : ragged->hidden[static_cast<std::size_t>(b)];
  }
  /// The place in its sequence of an entry's first row, where a cache knows it.
  [[nodiscard]] std::int64_t start_of(std::int64_t b) const {
    return ragged == nullptr || ragged->starts.empty()
               ? 0
               : ragged->starts[static_cast<std::size_t>(b)];
  }
  /// Query rows that share the keys of one (batch entry, KV head): row r is query r % queries of
  /// query head r / queries of the group.
  [[nodiscard]] std::int64_t rows_of(std::int64_t b) const { return group() * queries_of(b); }
  /// The most that any entry has.
  [[nodiscard]] std::int64_t rows() const { return group() * queries; }

  /// The place of a query row among those of all heads and batch entries.
  [[nodiscard]] std::int64_t row_number(std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (ragged == nullptr) return (b * heads + h) * queries + i;
    return h * ragged->all_queries + ragged->first_query[static_cast<std::size_t>(b)] + i;
  }
  [[nodiscard]] std::int64_t row_numbers() const {
    return heads * (ragged == nullptr ? batches * queries : ragged->all_queries);
  }
  [[nodiscard]] bool dense_mask() const { return keep.present || drop.present; }
};

}  // namespace heed
