// Pages of keys and values: who has which, how often each is shared, and their memory.
#include "cache/kv_storage.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace heed::detail {
namespace {

constexpr std::align_val_t kAlignment{64};
/// Pages begin and end at whole vectors of keys.
constexpr std::int64_t kPageUnit = 16;

/// Names of one cache; after 2^27 caches numbers begin again.
constexpr std::int64_t kNames = std::int64_t{1} << 36;
constexpr std::int64_t kCaches = std::int64_t{1} << 27;

/// 0, which SequenceId{} is, is no name.
std::int64_t first_name() {
  static std::atomic<std::int64_t> caches{0};
  return caches.fetch_add(1, std::memory_order_relaxed) % kCaches * kNames + 1;
}

const KvCacheOptions& checked(const KvCacheOptions& o) {
  const Checker check("KvCache");
  check.require(o.kv_heads >= 1, "kv_heads is ", o.kv_heads, "; expected 1 or more");
  check.require(o.head_size >= 0, "head_size is ", o.head_size, "; expected 0 or more");
  check.require(o.value_size.value_or(0) >= 0, "value_size is ", o.value_size.value_or(0),
                "; expected 0 or more");
  check.require(is_floating(o.dtype), "dtype is ", o.dtype, "; expected a floating type");
  check.require(o.pages >= 0, "pages is ", o.pages, "; expected 0 or more");
  check.require(o.page_keys >= kPageUnit && o.page_keys % kPageUnit == 0, "page_keys is ",
                o.page_keys, "; expected ", kPageUnit, " or a multiple of it");
  return o;
}

}  // namespace

void PageMemory::Free::operator()(std::byte* data) const { ::operator delete(data, kAlignment); }

PageMemory::PageMemory(const Checker& check, const char* rows, const KvCacheOptions& options,
                       std::int64_t size)
    : heads_(options.kv_heads),
      page_keys_(options.page_keys),
      size_(size),
      element_(static_cast<std::int64_t>(size_of(options.dtype))) {
  // As if there were a page and rows had elements, so that numbers of keys fit, too.
  bool overflow = false;
  std::int64_t most = 1;
  for (const std::int64_t factor : {options.pages, heads_, page_keys_, size_, element_}) {
    overflow |= __builtin_mul_overflow(most, std::max<std::int64_t>(factor, 1), &most);
  }
  check.require(!overflow, "pages is ", options.pages, ", page_keys ", page_keys_, ", kv_heads ",
                heads_, ", elements of a row ", size_, "; the cache must fit 63 bits of bytes");
  bytes_ = options.pages * heads_ * page_keys_ * size_ * element_;
  // Not cleared: pages that nobody has used yet need no memory of the machine.
  void* const data = ::operator new(static_cast<std::size_t>(std::max<std::int64_t>(bytes_, 1)),
                                    kAlignment, std::nothrow);
  if (data == nullptr) {
    throw Error(ErrorKind::memory, std::string(check.function()) + ": no memory for pages of " +
                                       rows + ": " + std::to_string(bytes_) + " bytes");
  }
  data_.reset(static_cast<std::byte*>(data));
}

void PageMemory::copy(std::int64_t from, std::int64_t to, std::int64_t keys) const {
  const auto bytes = static_cast<std::size_t>(keys * size_ * element_);
  for (std::int64_t head = 0; bytes > 0 && head < heads_; ++head) {
    std::memcpy(row(to, head, 0), row(from, head, 0), bytes);
  }
}

KvStorage::KvStorage(const KvCacheOptions& options)
    : options_(checked(options)),
      k_(Checker("KvCache"), "keys", options, options.head_size),
      v_(Checker("KvCache"), "values", options, options.value_size.value_or(options.head_size)),
      references_(static_cast<std::size_t>(options.pages)),
      first_(first_name()),
      next_(first_) {
  for (std::int64_t page = options.pages; page-- > 0;) free_.push_back(page);
}

const KvSequence& KvStorage::find(const Checker& check, SequenceId id) const {
  const auto at = sequences_.find(id);
  const auto name = static_cast<std::int64_t>(id);
  if (at == sequences_.end()) {
    check.require(name < first_ || name >= next_, "sequence ", name, " was released");
    check.require(false, "sequence ", name, " is none of this cache");
  }
  return at->second;
}

KvSequence& KvStorage::find(const Checker& check, SequenceId id) {
  return const_cast<KvSequence&>(std::as_const(*this).find(check, id));
}

SequenceId KvStorage::add(KvSequence sequence) {
  const auto id = static_cast<SequenceId>(next_);
  sequences_.emplace(id, std::move(sequence));
  ++next_;
  return id;
}

void KvStorage::share(const KvSequence& sequence) {
  for (const std::int64_t page : sequence.table) {
    if (page >= 0) ++references_[static_cast<std::size_t>(page)];
  }
}

void KvStorage::erase(SequenceId id) {
  const auto at = sequences_.find(id);
  for (const std::int64_t page : at->second.table) give_back(page);
  sequences_.erase(at);
}

std::int64_t KvStorage::take() {
  const std::int64_t page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void KvStorage::give_back(std::int64_t page) {
  if (page < 0 || --references_[static_cast<std::size_t>(page)] > 0) return;
  free_.push_back(page);  // room was made for all pages at the beginning
}

std::int64_t KvStorage::pages_needed(std::span<KvSequence* const> sequences,
                                     std::span<const std::int64_t> more) const {
  std::int64_t needed = 0;
  std::vector<std::int64_t> written;  // pages that lie in the way
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::int64_t fit = room(*sequences[s]);
    if (fit > 0 && more[s] > 0) written.push_back(sequences[s]->table.back());
    if (more[s] > fit) needed += (more[s] - fit + options_.page_keys - 1) / options_.page_keys;
  }
  std::sort(written.begin(), written.end());
  for (std::size_t n = 0; n < written.size();) {
    const std::int64_t page = written[n];
    std::int64_t users = 0;
    for (; n < written.size() && written[n] == page; ++n) ++users;
    needed += std::min(users, references_[static_cast<std::size_t>(page)] - 1);
  }
  return needed;
}

void KvStorage::extend(KvSequence* sequence, std::int64_t more) {
  if (more == 0) return;
  if (const std::int64_t fit = room(*sequence); fit > 0) {
    std::int64_t& last =
        sequence->table.back();  // not given back: it has keys that are not evicted,
    if (references_[static_cast<std::size_t>(last)] > 1) {  // or room for keys
      const std::int64_t own = take();
      k_.copy(last, own, options_.page_keys - fit);
      v_.copy(last, own, options_.page_keys - fit);
      give_back(last);
      last = own;
    }
  }
  sequence->length += more;
  while (room(*sequence) < 0) sequence->table.push_back(take());
}

void KvStorage::truncate(KvSequence* sequence, std::int64_t keys) {
  sequence->length = keys;
  while (!sequence->table.empty() &&
         (static_cast<std::int64_t>(sequence->table.size()) - 1) * options_.page_keys >= keys) {
    give_back(sequence->table.back());
    sequence->table.pop_back();
  }
}

void KvStorage::evict(KvSequence* sequence, std::int64_t keys) {
  const std::int64_t before_keys = sequence->evicted;
  sequence->evicted = std::max(sequence->evicted, keys);
  const auto before = static_cast<std::size_t>(before_keys / options_.page_keys);
  const auto pages = static_cast<std::size_t>(sequence->evicted / options_.page_keys);
  for (std::size_t n = before; n < std::min(pages, sequence->table.size()); ++n) {
    give_back(sequence->table[n]);
    sequence->table[n] = -1;
  }
}

}  // namespace heed::detail
