// Pages of keys and values: who has which, how often each is shared, and their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "attention/checker.h"
#include "heed/kv_cache.h"

namespace heed::detail {

/// The memory of all pages of keys, or of values: [page][head][key][size].
class PageMemory {
 public:
  PageMemory(const Checker& check, const char* rows, const KvCacheOptions& options,
             std::int64_t size);

  /// Row `key` of a page.
  [[nodiscard]] std::byte* row(std::int64_t page, std::int64_t head, std::int64_t key) const {
    const std::int64_t at = ((page * heads_ + head) * page_keys_ + key) * size_;
    return data_.get() + at * element_;
  }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t page_elements() const { return heads_ * page_keys_ * size_; }
  [[nodiscard]] ConstTensorView bytes() const { return {data_.get(), DType::u8, 1, {bytes_}, {1}}; }

  /// The first `keys` rows of every head of a page to another one.
  void copy(std::int64_t from, std::int64_t to, std::int64_t keys) const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };

  std::int64_t heads_, page_keys_, size_, element_, bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

/// One sequence: `length` keys in the pages of the table, the first `evicted` of them hidden.
struct KvSequence {
  std::vector<std::int64_t> table;  ///< -1: given back
  std::int64_t length = 0;
  std::int64_t evicted = 0;
};

class KvStorage {
 public:
  explicit KvStorage(const KvCacheOptions& options);

  [[nodiscard]] const KvCacheOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t value_size() const { return v_.size(); }
  [[nodiscard]] const PageMemory& k() const { return k_; }
  [[nodiscard]] const PageMemory& v() const { return v_; }
  [[nodiscard]] std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  [[nodiscard]] std::int64_t sequences() const {
    return static_cast<std::int64_t>(sequences_.size());
  }

  /// The sequence of this name, or an error that `check` throws.
  [[nodiscard]] const KvSequence& find(const Checker& check, SequenceId id) const;
  [[nodiscard]] KvSequence& find(const Checker& check, SequenceId id);

  SequenceId add(KvSequence sequence);
  void share(const KvSequence& sequence);
  void erase(SequenceId id);

  /// Pages that more[s] keys of each of these different sequences take: new ones, and copies of
  /// last pages that are shared. Where all who share one get keys, the last of them may write to
  /// it.
  [[nodiscard]] std::int64_t pages_needed(std::span<KvSequence* const> sequences,
                                          std::span<const std::int64_t> more) const;
  /// Makes room for them; there must be as many free pages, and room in the table.
  void extend(KvSequence* sequence, std::int64_t more);
  void truncate(KvSequence* sequence, std::int64_t keys);
  void evict(KvSequence* sequence, std::int64_t keys);

 private:
  /// Keys that fit behind those of a sequence, without another page.
  [[nodiscard]] std::int64_t room(const KvSequence& sequence) const {
    return static_cast<std::int64_t>(sequence.table.size()) * options_.page_keys - sequence.length;
  }
  [[nodiscard]] std::int64_t take();
  void give_back(std::int64_t page);

  KvCacheOptions options_;
  PageMemory k_, v_;
  std::vector<std::int64_t> references_;  ///< of each page: sequences that have it
  std::vector<std::int64_t> free_;        ///< the next one last
  std::map<SequenceId, KvSequence> sequences_;
  std::int64_t first_;  ///< name of the first sequence
  std::int64_t next_;   ///< of the next one
};

/// The storage of a cache that was not moved from.
inline const KvStorage& held(const Checker& check, const KvStorage* storage) {
  check.require(storage != nullptr, "this cache was moved from; it holds nothing");
  return *storage;
}

}  // namespace heed::detail
