// A cache of keys and values, as its users see it: every argument is checked before anything
// changes.
#include "heed/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "attention/lists.h"
#include "attention/ragged.h"
#include "attention/staging.h"
#include "cache/kv_storage.h"
#include "heed/error.h"

namespace heed {
namespace {

using detail::KvSequence;
using detail::KvStorage;

KvStorage& held(const std::unique_ptr<KvStorage>& storage, const char* function) {
  (void)detail::held(Checker(function), storage.get());
  return *storage;
}

/// Rows of one sequence in what is appended.
struct Rows {
  std::int64_t batch, first, count;
};

/// Checks k or v, and says how many batch entries and rows it has.
View4 check_rows(const Checker& check, const char* name, const ConstTensorView& view,
                 const KvCacheOptions& o, std::int64_t size, std::int64_t* batches,
                 std::int64_t* rows) {
  check.require(view.present(), name, " is absent; expected a view to read from");
  check.memory(name, view, true);
  check.require(view.dtype == o.dtype, name, " is ", view.dtype, "; expected ", o.dtype,
                ", the type of the cache");
  check.require(view.rank >= 2 && view.rank <= 4, name, " has rank ", view.rank,
                "; expected 2 [n, D], 3 [S, n, D] or 4 [S, Hk, n, D]");
  Sizes sizes{1, 1, 1, 1};
  for (int axis = 0; axis < view.rank; ++axis) {
    sizes[canonical_axis(view.rank, axis)] = view.shape[static_cast<std::size_t>(axis)];
  }
  check.require(sizes[1] == o.kv_heads, name, " has ", sizes[1], " heads; expected ", o.kv_heads);
  check.require(sizes[3] == size, "last axis of ", name, " is ", sizes[3], "; expected ", size);
  *batches = sizes[0];
  *rows = sizes[2];
  return Checker::canonical(view, view.rank);
}

/// Elements of any type, as they are.
void copy_row(const std::byte* from, std::int64_t stride, std::int64_t size, std::size_t element,
              std::byte* to) {
  if (stride == 1) {
    if (size > 0) std::memcpy(to, from, static_cast<std::size_t>(size) * element);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(element);
  for (std::int64_t x = 0; x < size; ++x) {
    std::memcpy(to + x * bytes, from + x * stride * bytes, element);
  }
}

void write(const KvStorage& storage, const KvSequence& sequence, const View4& from,
           const detail::PageMemory& to, const Rows& rows) {
  if (to.size() == 0) return;  // no memory bounds heads and rows then
  const KvCacheOptions& o = storage.options();
  const std::int64_t begin = sequence.length - rows.count;
  for (std::int64_t head = 0; head < o.kv_heads; ++head) {
    for (std::int64_t n = 0; n < rows.count; ++n) {
      const std::int64_t key = begin + n;
      const std::int64_t page = sequence.table[static_cast<std::size_t>(key / o.page_keys)];
      copy_row(from.at(rows.batch, head, rows.first + n), from.stride[3], to.size(),
               size_of(o.dtype), to.row(page, head, key % o.page_keys));
    }
  }
}

ConstTensorView one_page(const char* function, const KvStorage& storage, SequenceId id,
                         const detail::PageMemory& memory) {
  const Checker check(function);
  const KvSequence& sequence = storage.find(check, id);
  const auto pages = static_cast<std::int64_t>(sequence.table.size());
  check.require(pages <= 1, "sequence ", static_cast<std::int64_t>(id), " lies in ", pages,
                " pages; expected one (a view needs page_keys of at least the sequence's length)");
  check.require(pages == 0 || sequence.table[0] >= 0, "sequence ", static_cast<std::int64_t>(id),
                " has given back its page: all its keys are evicted");
  const KvCacheOptions& o = storage.options();
  const std::int64_t size = memory.size();
  return {memory.row(pages == 0 ? 0 : sequence.table[0], 0, 0),
          o.dtype,
          4,
          {1, o.kv_heads, sequence.length, size},
          {o.kv_heads * o.page_keys * size, o.page_keys * size, size, 1}};
}

/// KvCache::append.
void append_all(KvStorage* storage, std::span<const SequenceId> sequences, const ConstTensorView& k,
                const ConstTensorView& v, const ConstTensorView& key_offsets) {
  const Checker check("KvCache::append");
  const KvCacheOptions& o = storage->options();
  std::int64_t batches = 0, count = 0, v_batches = 0, v_count = 0;
  const View4 keys = check_rows(check, "k", k, o, o.head_size, &batches, &count);
  const View4 values = check_rows(check, "v", v, o, storage->value_size(), &v_batches, &v_count);
  check.require(batches == v_batches, "batch size of v is ", v_batches, ", of k ", batches,
                "; they must be equal");
  check.require(count == v_count, "number of keys of v is ", v_count, ", of k ", count,
                "; they must be equal");
  const auto expected = static_cast<std::int64_t>(sequences.size());
  if (key_offsets.present()) {
    check.require(batches == 1, "key_offsets is given, and the batch size is ", batches,
                  "; expected 1: sequences lie end to end in one batch entry");
    batches = count_sequences(check, "key_offsets", key_offsets);
  }
  check.require(batches == expected, "number of sequences is ", expected, ", ",
                key_offsets.present() ? "of those in key_offsets" : "batch size of k", " ", batches,
                "; they must be equal");
  std::vector<Rows> rows;
  if (key_offsets.present()) {
    std::vector<std::int64_t> first, lengths;
    read_offsets(check, "key_offsets", key_offsets, count, &first, &lengths);
    for (std::size_t s = 0; s < lengths.size(); ++s) rows.push_back({0, first[s], lengths[s]});
  } else {
    for (std::int64_t s = 0; s < batches; ++s) rows.push_back({s, 0, count});
  }
  std::vector<KvSequence*> found;
  std::vector<std::int64_t> counts;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    found.push_back(&storage->find(check, sequences[s]));
    counts.push_back(rows[s].count);
  }
  std::vector<SequenceId> names(sequences.begin(), sequences.end());
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check.require(twice == names.end(), "sequence ",
                twice == names.end() ? 0 : static_cast<std::int64_t>(*twice),
                " is there twice; expected different ones");
  const std::int64_t needed = storage->pages_needed(found, counts);
  if (needed > storage->free_pages()) {
    throw Error(ErrorKind::memory, std::string(check.function()) + ": number of free pages is " +
                                       std::to_string(storage->free_pages()) + " of " +
                                       std::to_string(o.pages) + "; expected at least " +
                                       std::to_string(needed));
  }
  for (std::size_t s = 0; s < found.size(); ++s) {
    const std::int64_t length = found[s]->length + rows[s].count;
    const auto pages = static_cast<std::size_t>((length + o.page_keys - 1) / o.page_keys);
    std::vector<std::int64_t>& table =
        found[s]->table;  // which grows as push_back would let it grow
    if (pages > table.capacity()) table.reserve(std::max(pages, 2 * table.capacity()));
  }
  for (std::size_t s = 0; s < found.size(); ++s) {  // from here on nothing throws
    storage->extend(found[s], rows[s].count);
    write(*storage, *found[s], keys, storage->k(), rows[s]);
    write(*storage, *found[s], values, storage->v(), rows[s]);
  }
}

}  // namespace

KvCache::KvCache(const KvCacheOptions& options)
    : storage_(with_lists("KvCache", [&] { return std::make_unique<KvStorage>(options); })) {}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;
KvCache::~KvCache() = default;

SequenceId KvCache::create() {
  KvStorage& storage = held(storage_, "KvCache::create");
  return with_lists("KvCache::create", [&] { return storage.add({}); });
}

SequenceId KvCache::fork(SequenceId sequence) {
  const char* const function = "KvCache::fork";
  KvStorage& storage = held(storage_, function);
  const KvSequence& from = storage.find(Checker(function), sequence);
  const SequenceId id = with_lists(function, [&] { return storage.add(from); });
  storage.share(storage.find(Checker(function), id));
  return id;
}

void KvCache::release(SequenceId sequence) {
  KvStorage& storage = held(storage_, "KvCache::release");
  (void)storage.find(Checker("KvCache::release"), sequence);
  storage.erase(sequence);
}

void KvCache::append(std::span<const SequenceId> sequences, const ConstTensorView& k,
                     const ConstTensorView& v, const ConstTensorView& key_offsets) {
  KvStorage& storage = held(storage_, "KvCache::append");
  with_lists("KvCache::append", [&] { append_all(&storage, sequences, k, v, key_offsets); });
}

void KvCache::append(SequenceId sequence, const ConstTensorView& k, const ConstTensorView& v) {
  append({&sequence, 1}, k, v);
}

void KvCache::truncate(SequenceId sequence, std::int64_t keys) {
  const Checker check("KvCache::truncate");
  KvStorage& storage = held(storage_, check.function());
  KvSequence& found = storage.find(check, sequence);
  check.require(keys >= found.evicted && keys <= found.length, "keys is ", keys, "; expected ",
                found.evicted, " (evicted) .. ", found.length, " (the length)");
  storage.truncate(&found, keys);
}

void KvCache::evict(SequenceId sequence, std::int64_t keys) {
  const Checker check("KvCache::evict");
  KvStorage& storage = held(storage_, check.function());
  KvSequence& found = storage.find(check, sequence);
  check.require(keys >= 0 && keys <= found.length, "keys is ", keys, "; expected 0 .. ",
                found.length, ", the length");
  storage.evict(&found, keys);
}

std::int64_t KvCache::length(SequenceId sequence) const {
  const char* const function = "KvCache::length";
  return held(storage_, function).find(Checker(function), sequence).length;
}

std::int64_t KvCache::evicted(SequenceId sequence) const {
  const char* const function = "KvCache::evicted";
  return held(storage_, function).find(Checker(function), sequence).evicted;
}

std::span<const std::int64_t> KvCache::page_table(SequenceId sequence) const {
  const char* const function = "KvCache::page_table";
  return held(storage_, function).find(Checker(function), sequence).table;
}

ConstTensorView KvCache::keys(SequenceId sequence) const {
  const KvStorage& storage = held(storage_, "KvCache::keys");
  return one_page("KvCache::keys", storage, sequence, storage.k());
}

ConstTensorView KvCache::values(SequenceId sequence) const {
  const KvStorage& storage = held(storage_, "KvCache::values");
  return one_page("KvCache::values", storage, sequence, storage.v());
}

std::int64_t KvCache::free_pages() const {
  return held(storage_, "KvCache::free_pages").free_pages();
}
std::int64_t KvCache::sequences() const { return held(storage_, "KvCache::sequences").sequences(); }
const KvCacheOptions& KvCache::options() const {
  return held(storage_, "KvCache::options").options();
}

}  // namespace heed
