// Batch entries with numbers of rows of their own: what packing says, and where their rows lie.
#pragma once

#include <memory>
#include <vector>

#include "attention/checker.h"
#include "attention/problem.h"

namespace heed {

/// How many sequences have their offsets in a view, of which no element is read: to be compared
/// with what is known before lists are made, since no memory bounds a view whose stride is 0.
[[nodiscard]] std::int64_t count_sequences(const Checker& check, const char* name,
                                           const ConstTensorView& offsets);

/// Offsets of sequences within `rows` rows, once counted: where each begins, and how many it has.
void read_offsets(const Checker& check, const char* name, const ConstTensorView& offsets,
                  std::int64_t rows, std::vector<std::int64_t>* first,
                  std::vector<std::int64_t>* counts);

/// The sequences of options.packing; null where there is none. `p`: sizes of the tensors.
[[nodiscard]] std::shared_ptr<const Ragged> check_packing(const Checker& check, const Problem& p,
                                                          const Packing& packing);

/// From a problem of tensors to one of its batch entries: the last step of a check, when all views
/// of `p` are those of whole tensors.
void place_entries(Problem* p);

/// The same for views beside the problem: rows that belong to queries, to keys, and to pairs of
/// them.
void place_queries(const Problem& p, View4* view);
void place_keys(const Problem& p, View4* view);
void place_pairs(const Problem& p, View4* view);

}  // namespace heed
