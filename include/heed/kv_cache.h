// Keys and values of sequences that grow, in pages that sequences may share, and attention against
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "heed/attention.h"
#include "heed/export.h"

namespace heed {

/// A sequence of a cache: the cache's number in the process, times 2^36, and the sequence's number
/// there, from 1. Names are not used again, until after 2^27 caches: that of a released sequence is
/// an error, and so are one of another cache and SequenceId{}, which is none of any.
enum class SequenceId : std::int64_t {};

/// What a cache holds. All memory is taken at once: pages * kv_heads * page_keys * (D + Dv)
/// elements.
///
///     paged       .pages = 512                                pages of 192 keys, each read where
///                                                             it lies: two blocks of the fold, one
///                                                             for bfloat16 by dot products
///     contiguous  .pages = sequences, .page_keys = capacity   each sequence lies in one page
struct KvCacheOptions {
  std::int64_t kv_heads;                     ///< Hk
  std::int64_t head_size;                    ///< D
  std::optional<std::int64_t> value_size{};  ///< Dv; absent: D
  DType dtype = DType::f32;                  ///< any floating type
  std::int64_t pages;                        ///< that all sequences together can have
  std::int64_t page_keys = 192;  ///< keys of a page, a multiple of 16; of 192: read in place
};

namespace detail {
class KvStorage;
}

/// Keys and values of any number of sequences. Key j of a sequence lies in row j % page_keys of
/// page table[j / page_keys]; a page is [Hk][page_keys][D], and another [Hk][page_keys][Dv].
///
/// Sequences that were forked share their pages, until one of them writes to a page that it shares
/// and gets a copy of it (copy on write). Pages that nobody has any more can be had by others.
///
/// Every function throws heed::Error, and leaves the cache as it was, if a sequence is none of this
/// cache, was released, or an argument does not fit; where pages do not suffice, with
/// ErrorKind::memory. Functions that are const may run at once; others not beside any other. A
/// cache that was moved from holds nothing, and every function but assignment says so.
class HEED_API KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();

  /// A sequence without keys.
  [[nodiscard]] SequenceId create();
  /// A sequence with the same keys, in the same pages.
  [[nodiscard]] SequenceId fork(SequenceId sequence);
  /// Ends the sequence.
  void release(SequenceId sequence);

  /// Puts keys and values behind those of each sequence: k [S, Hk, n, D], v [S, Hk, n, Dv], of the
  /// cache's type and any strides. With key_offsets [S + 1] (int32 or int64) the sequences lie end
  /// to end, k [1, Hk, n, D], as in Packing. Rank 3 [S, n, D] and 2 [n, D] have one head. All
  /// sequences or none get their keys; no sequence may stand there twice.
  void append(std::span<const SequenceId> sequences, const ConstTensorView& k,
              const ConstTensorView& v, const ConstTensorView& key_offsets = {});
  /// The same for one sequence.
  void append(SequenceId sequence, const ConstTensorView& k, const ConstTensorView& v);

  /// Keeps the first `keys` keys, from evicted() to length(): takes back those of a rejected draft.
  void truncate(SequenceId sequence, std::int64_t keys);

  /// Nobody sees the first `keys` keys any more, as if a mask hid them; full pages of them go back,
  /// one with room stays for the next keys. Positions stay: later keys count from key 0 as before.
  void evict(SequenceId sequence, std::int64_t keys);

  /// Keys of the sequence, evicted ones included.
  [[nodiscard]] std::int64_t length(SequenceId sequence) const;
  [[nodiscard]] std::int64_t evicted(SequenceId sequence) const;
  /// Its pages; -1 where a page was full and all its keys are evicted. Valid until the next call
  /// that changes the cache or fails to.
  [[nodiscard]] std::span<const std::int64_t> page_table(SequenceId sequence) const;

  /// Its keys [1, Hk, length, D] and values [1, Hk, length, Dv], where they lie in one page.
  /// Evicted ones are there too. Valid until the next call that changes the cache.
  [[nodiscard]] ConstTensorView keys(SequenceId sequence) const;
  [[nodiscard]] ConstTensorView values(SequenceId sequence) const;

  [[nodiscard]] std::int64_t free_pages() const;
  [[nodiscard]] std::int64_t sequences() const;  ///< that are not released
  [[nodiscard]] const KvCacheOptions& options() const;

  /// For heed itself; null in a cache that was moved from.
  [[nodiscard]] const detail::KvStorage* storage() const { return storage_.get(); }

 private:
  std::unique_ptr<detail::KvStorage> storage_;
};

/// Attention of the last rows of sequences against all keys that the cache has of them: decoding
/// (one row), speculative tails (some), chunked prefill (many). Append the rows' own k and v first.
///
///     q [S, H, Tq, D]    row i of sequence s is its row length_s - Tq + i
///
/// Sequences may have any lengths. With options.packing.query_offsets they have numbers of rows of
/// their own too, and lie end to end: q [1, H, Tq, D]. Otherwise as attention_forward, with S as
/// the batch and the longest sequence as Tk: `mask.causal` is not the default, and column j of a
/// bias, keep or drop is key j of the row's own sequence, packed or not. mask.key_lengths are 0 ..
/// length_s, each sequence's own. Evicted keys are masked.
///
/// Positions begin at length_s - Tq where `mask.query_start` is absent. They may be negative: of
/// rows before key 0, as there are without append, causal ones see nothing. inspect_weights,
/// attention_backward and attention_jvp begin at 0 and know nothing of evicted keys: to ask them
/// about a decode call, write both into their mask.
///
/// Each sequence has the bits of attention_forward on its rows and keys, whatever the pages are:
/// those of prefill, unless `decode_order` says otherwise (under dropout with its place in
/// `sequences` as first_batch). Pages are read where they lie; a block of 96 keys (192 where
/// bfloat16 has dot products of its own) that lies in several is copied block by block.
HEED_API void attention_decode(const ConstTensorView& q, const KvCache& cache,
                               std::span<const SequenceId> sequences, const ForwardOutputs& outputs,
                               const AttentionOptions& options = {},
                               const Execution& execution = {});

/// What attention_decode would do.
[[nodiscard]] HEED_API Explanation explain(const ConstTensorView& q, const KvCache& cache,
                                           std::span<const SequenceId> sequences,
                                           const AttentionOptions& options = {},
                                           const Execution& execution = {});

}  // namespace heed
