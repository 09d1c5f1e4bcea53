// Attention against a cache: a forward call whose keys and values are pages.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "attention/check.h"
#include "attention/forward.h"
#include "attention/lists.h"
#include "cache/kv_storage.h"
#include "heed/kv_cache.h"
#include "runtime/float_environment.h"

namespace heed {
namespace {

using detail::KvSequence;
using detail::KvStorage;
using detail::PageMemory;

struct Cached {
  std::shared_ptr<const Ragged> ragged;
  ConstTensorView k, v;  ///< what the pages hold, as tensors of the longest sequence's size
};

/// Keys or values as a tensor of q's rank.
ConstTensorView tensor_of(const KvStorage& storage, const PageMemory& memory, int rank,
                          std::int64_t batches, std::int64_t keys) {
  const KvCacheOptions& o = storage.options();
  const std::int64_t size = memory.size();
  const std::array<std::int64_t, 4> shape{batches, o.kv_heads, keys, size};
  const std::array<std::int64_t, 4> stride{0, o.page_keys * size, size, 1};
  ConstTensorView view{memory.bytes().data, o.dtype, rank, {}, {}};
  for (int axis = 0; axis < rank; ++axis) {
    const std::size_t at = canonical_axis(rank, axis);
    view.shape[static_cast<std::size_t>(axis)] = shape[at];
    view.stride[static_cast<std::size_t>(axis)] = stride[at];
  }
  return view;
}

/// The sequences as batch entries.
Cached find_sequences(const Checker& check, const ConstTensorView& q, const KvCache& cache,
                      std::span<const SequenceId> sequences, const AttentionOptions& options) {
  const KvStorage& storage = detail::held(check, cache.storage());
  const KvCacheOptions& o = storage.options();
  check.require(q.present(), "q is absent; expected a view to read from");
  check.require(q.rank >= 2 && q.rank <= 4, "q has rank ", q.rank,
                "; expected 2 [T, D], 3 [S, T, D] or 4 [S, H, T, D]");
  check.require(q.rank == 4 || o.kv_heads == 1, "q has rank ", q.rank, ", and the cache ",
                o.kv_heads, " heads; expected rank 4 [S, H, T, D]");
  check.require(q.dtype == o.dtype, "q is ", q.dtype, "; expected ", o.dtype,
                ", the type of the cache");
  const std::int64_t size = q.shape[static_cast<std::size_t>(q.rank - 1)];
  check.require(size == o.head_size, "head size of q is ", size, "; expected ", o.head_size,
                ", that of the cache");
  check.require(!options.packing.key_offsets.present(),
                "packing.key_offsets is given; expected none: lengths of keys are the cache's");
  const auto count = static_cast<std::int64_t>(sequences.size());
  check.memory("q", q, false);  // sizes that can be computed with
  const std::int64_t rows = q.shape[static_cast<std::size_t>(q.rank - 2)];
  const std::int64_t batches = q.rank == 2 ? 1 : q.shape[0];
  auto ragged = std::make_shared<Ragged>();
  ragged->all_queries = rows;
  if (options.packing.query_offsets.present()) {
    check.require(batches == 1, "packing is given, and the batch size is ", batches,
                  "; expected 1: sequences lie end to end in one batch entry");
    const ConstTensorView& offsets = options.packing.query_offsets;
    const std::int64_t packed = count_sequences(check, "packing.query_offsets", offsets);
    check.require(packed == count, "packing.query_offsets has rows for ", packed,
                  " sequences; expected ", count);
    read_offsets(check, "packing.query_offsets", offsets, rows, &ragged->first_query,
                 &ragged->queries);
  } else {
    check.require(batches == count, "batch size of q is ", batches, "; expected ", count,
                  ", one entry for each sequence");
    ragged->queries.assign(sequences.size(), rows);
  }
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const KvSequence& sequence = storage.find(check, sequences[s]);
    ragged->keys.push_back(sequence.length);
    ragged->hidden.push_back(sequence.evicted);
    ragged->tables.push_back(sequence.table.data());
    ragged->starts.push_back(sequence.length - ragged->queries[s]);
  }
  const auto pages = [&](const PageMemory& memory) {
    return Pages{o.page_keys, memory.page_elements(), ragged->tables.data()};
  };
  ragged->k_pages = pages(storage.k());
  ragged->v_pages = pages(storage.v());
  const std::int64_t longest = Ragged::largest(ragged->keys);
  Cached cached{ragged, tensor_of(storage, storage.k(), q.rank, batches, longest),
                tensor_of(storage, storage.v(), q.rank, batches, longest)};
  return cached;
}

/// Checks everything but outputs.
Problem check_decode(const Checker& check, const ConstTensorView& q, const KvCache& cache,
                     std::span<const SequenceId> sequences, AttentionOptions options, Reads reads) {
  const Cached cached = with_lists(
      check.function(), [&] { return find_sequences(check, q, cache, sequences, options); });
  if (!options.mask.query_start.present()) {
    const auto count = static_cast<std::int64_t>(sequences.size());
    options.mask.query_start = view(std::as_const(cached.ragged->starts).data(), {count});
  }
  return check_inputs(check, q, cached.k, cached.v, options, reads, cached.ragged);
}

}  // namespace

void attention_decode(const ConstTensorView& q, const KvCache& cache,
                      std::span<const SequenceId> sequences, const ForwardOutputs& outputs,
                      const AttentionOptions& options, const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check("attention_decode");
  Problem p = check_decode(check, q, cache, sequences, options, Reads::elements);
  const KvStorage& storage = detail::held(check, cache.storage());
  const NamedView read[] = {
      {"q", q}, {"the cache", storage.k().bytes()}, {"the cache", storage.v().bytes()}};
  check_outputs(check, &p, outputs, q.rank, read);
  place_entries(&p);
  run_forward(p, execution);
}

Explanation explain(const ConstTensorView& q, const KvCache& cache,
                    std::span<const SequenceId> sequences, const AttentionOptions& options,
                    const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  Problem p = check_decode(Checker("explain"), q, cache, sequences, options, Reads::sizes);
  place_entries(&p);
  return explain_forward(std::move(p), execution);
}

}  // namespace heed
