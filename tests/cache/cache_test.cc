// A cache under random operations holds what a plain model of it holds.
// Method: the model keeps pages in shared pointers; after each operation lengths, free pages and
// tables are compared, and what the pages hold by the bits of attention over it. Operations that
// must fail leave everything as it was.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "cached.h"
#include "forward/half.h"

namespace heed_test {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2;

/// What a cache is made of.
struct Kind {
  std::int64_t pages, page_keys;
  heed::DType dtype = heed::DType::f32;
  std::int64_t size = 8, value_size = 5;
};

/// A tensor's numbers in a type, to be read.
class Numbers {
 public:
  Numbers(const Tensor<float>& tensor, heed::DType dtype) : floats_(tensor) {
    if (dtype != heed::DType::f32) halves_.emplace(tensor, dtype);
  }
  [[nodiscard]] heed::ConstTensorView view() const {
    return halves_ ? halves_->view(4) : floats_.view();
  }

 private:
  Tensor<float> floats_;
  std::optional<Halves> halves_;
};

/// A result in a type, as floats.
template <typename Run>
Tensor<float> result_of(const Shape& shape, heed::DType dtype, const Run& run) {
  if (dtype == heed::DType::f32) {
    Tensor<float> o(shape);
    run(o.out());
    return o;
  }
  Halves o(shape, Layout::bhtd, dtype);
  run(o.out(4));
  return o.written("output");
}

/// Keys and values of one page, a row for each key: k of every head, then v of every head.
using Page = std::vector<std::vector<float>>;

struct Sequence {
  std::vector<std::shared_ptr<Page>> pages;  // null: given back
  std::int64_t length = 0, evicted = 0;
};

class Model {
 public:
  explicit Model(const Kind& kind)
      : pages_(kind.pages),
        page_keys_(kind.page_keys),
        row_size_(kKvHeads * (kind.size + kind.value_size)) {}

  std::map<heed::SequenceId, Sequence> sequences;

  [[nodiscard]] std::int64_t free_pages() const {
    std::set<const Page*> used;
    for (const auto& [id, sequence] : sequences)
      for (const auto& page : sequence.pages)
        if (page) used.insert(page.get());
    return pages_ - static_cast<std::int64_t>(used.size());
  }
  /// Appends each to its own sequence, all or none.
  bool append(const std::map<heed::SequenceId, Page>& rows) {
    const auto before = copied();
    for (const auto& [id, more] : rows) {
      Sequence& s = sequences[id];
      for (const auto& row : more) {
        const auto page = static_cast<std::size_t>(s.length / page_keys_);
        if (page == s.pages.size()) s.pages.push_back(std::make_shared<Page>());
        if (in_use(s.pages[page].get()) > 1) s.pages[page] = std::make_shared<Page>(*s.pages[page]);
        s.pages[page]->resize(static_cast<std::size_t>(s.length % page_keys_));
        s.pages[page]->push_back(row);
        ++s.length;
      }
    }
    if (free_pages() >= 0) return true;
    sequences = before;
    return false;
  }
  void truncate(heed::SequenceId id, std::int64_t keys) {
    Sequence& s = sequences[id];
    s.length = keys;
    s.pages.resize(static_cast<std::size_t>((keys + page_keys_ - 1) / page_keys_));
  }
  void evict(heed::SequenceId id, std::int64_t keys) {
    Sequence& s = sequences[id];
    s.evicted = std::max(s.evicted, keys);
    for (std::int64_t n = 0; n < s.evicted / page_keys_; ++n)
      s.pages[static_cast<std::size_t>(n)].reset();
  }
  /// Row j of a sequence; NaN where it is given back.
  [[nodiscard]] std::vector<float> row(const Sequence& s, std::int64_t j) const {
    const auto& page = s.pages[static_cast<std::size_t>(j / page_keys_)];
    if (!page) return std::vector<float>(static_cast<std::size_t>(row_size_), std::nanf(""));
    return (*page)[static_cast<std::size_t>(j % page_keys_)];
  }

 private:
  [[nodiscard]] std::int64_t in_use(const Page* page) const {
    std::int64_t count = 0;
    for (const auto& [id, sequence] : sequences)
      for (const auto& own : sequence.pages) count += own.get() == page;
    return count;
  }

  /// All sequences on pages of their own, shared as they are.
  [[nodiscard]] std::map<heed::SequenceId, Sequence> copied() const {
    std::map<const Page*, std::shared_ptr<Page>> copies;
    auto all = sequences;
    for (auto& [id, sequence] : all)
      for (auto& page : sequence.pages) {
        if (!page) continue;
        std::shared_ptr<Page>& copy = copies[page.get()];
        if (!copy) copy = std::make_shared<Page>(*page);
        page = copy;
      }
    return all;
  }

  std::int64_t pages_, page_keys_, row_size_;
};

class Pair {
 public:
  Pair(const Kind& kind, std::uint64_t seed)
      : kind_(kind),
        model_(kind),
        cache_({.kv_heads = kKvHeads,
                .head_size = kind.size,
                .value_size = kind.value_size,
                .dtype = kind.dtype,
                .pages = kind.pages,
                .page_keys = kind.page_keys}),
        random_(seed) {}

  void step() {
    const auto some = any();
    switch (random_.below(some ? 9 : 1)) {
      case 0:
        if (model_.sequences.size() < 6) model_.sequences[cache_.create()] = {};
        break;
      case 1:
        if (model_.sequences.size() < 6)
          model_.sequences[cache_.fork(*some)] = model_.sequences[*some];
        break;
      case 2:
        cache_.release(*some);
        model_.sequences.erase(*some);
        EXPECT_THROW(cache_.release(*some), heed::Error);
        break;
      case 3: {
        const Sequence& s = model_.sequences[*some];
        const std::int64_t keys = random_.between(s.evicted, s.length);
        cache_.truncate(*some, keys);
        model_.truncate(*some, keys);
        break;
      }
      case 4:
        if (random_.chance(0.5)) {
          const std::int64_t keys = random_.between(0, model_.sequences[*some].length);
          cache_.evict(*some, keys);
          model_.evict(*some, keys);
        }
        break;
      default:
        append();
    }
    expect_equal();
  }

  /// What all pages hold, by the bits of attention over it.
  void expect_same_attention() {
    std::vector<heed::SequenceId> ids;
    for (const auto& [id, sequence] : model_.sequences) ids.push_back(id);
    if (ids.empty()) return;
    const auto count = static_cast<std::int64_t>(ids.size());
    const Tensor<float> q = drawn({count, kHeads, 2, kind_.size}, Layout::bhtd);
    const Numbers queries(q, kind_.dtype);
    const Tensor<float> o = result_of(
        {count, kHeads, 2, kind_.value_size}, kind_.dtype,
        [&](auto to) { heed::attention_decode(queries.view(), cache_, ids, {.output = to}); });
    for (std::int64_t n = 0; n < count; ++n) {
      const Sequence& s = model_.sequences[ids[static_cast<std::size_t>(n)]];
      Tensor<float> k({1, kKvHeads, s.length, kind_.size});
      Tensor<float> v({1, kKvHeads, s.length, kind_.value_size});
      Tensor<std::uint8_t> keep({1, 1, 1, s.length});
      for (std::int64_t j = 0; j < s.length; ++j) {
        const std::vector<float> row = model_.row(s, j);
        keep.at(0, 0, 0, j) = j >= s.evicted;
        std::size_t at = 0;
        for (std::int64_t h = 0; h < kKvHeads; ++h)
          for (std::int64_t x = 0; x < kind_.size; ++x) k.at(0, h, j, x) = row[at++];
        for (std::int64_t h = 0; h < kKvHeads; ++h)
          for (std::int64_t x = 0; x < kind_.value_size; ++x) v.at(0, h, j, x) = row[at++];
      }
      heed::AttentionOptions options;
      if (s.evicted > 0) options.mask.keep = keep.view();
      const Numbers own_q(gathered(q, 0, {n}), kind_.dtype), own_k(k, kind_.dtype),
          own_v(v, kind_.dtype);
      const Tensor<float> alone =
          result_of({1, kHeads, 2, kind_.value_size}, kind_.dtype, [&](auto to) {
            heed::attention_forward(own_q.view(), own_k.view(), own_v.view(), {.output = to},
                                    options);
          });
      EXPECT_TRUE(same_bits(gathered(o, 0, {n}), alone)) << n << ", length " << s.length;
    }
  }

 private:
  /// Numbers that the type holds.
  Tensor<float> drawn(const Shape& shape, Layout layout) {
    Tensor<float> tensor(shape, layout);
    fill_normal(tensor, random_);
    return kind_.dtype == heed::DType::f32 ? tensor : nearest(tensor, kind_.dtype);
  }

  std::optional<heed::SequenceId> any() {
    if (model_.sequences.empty()) return std::nullopt;
    auto at = model_.sequences.begin();
    std::advance(at, random_.below(static_cast<std::int64_t>(model_.sequences.size())));
    return at->first;
  }

  /// Rows for some sequences, end to end or one batch entry each.
  void append() {
    std::vector<heed::SequenceId> ids;
    for (const auto& [id, sequence] : model_.sequences)
      if (random_.chance(0.4)) ids.push_back(id);
    const bool batch = random_.chance(0.5);
    const std::int64_t same = random_.between(0, 2 * kind_.page_keys);
    std::vector<std::int64_t> offsets{0};
    for (std::size_t n = 0; n < ids.size(); ++n)
      offsets.push_back(offsets.back() + (batch ? same : random_.between(0, kind_.page_keys + 3)));
    const auto count = static_cast<std::int64_t>(ids.size());
    const Tensor<float> k =
        drawn({batch ? count : 1, kKvHeads, batch ? same : offsets.back(), kind_.size},
              random_.pick({Layout::bhtd, Layout::bthd, Layout::strided_last}));
    const Tensor<float> v =
        drawn({k.shape[0], kKvHeads, k.shape[2], kind_.value_size}, Layout::padded_row);
    const Numbers keys(k, kind_.dtype), values(v, kind_.dtype);
    std::map<heed::SequenceId, Page> rows;
    for (std::size_t n = 0; n < ids.size(); ++n) {
      for (std::int64_t j = offsets[n]; j < offsets[n + 1]; ++j) {
        const std::int64_t b = batch ? static_cast<std::int64_t>(n) : 0,
                           i = batch ? j - offsets[n] : j;
        std::vector<float> row;
        for (std::int64_t h = 0; h < kKvHeads; ++h)
          for (std::int64_t x = 0; x < kind_.size; ++x) row.push_back(k.at(b, h, i, x));
        for (std::int64_t h = 0; h < kKvHeads; ++h)
          for (std::int64_t x = 0; x < kind_.value_size; ++x) row.push_back(v.at(b, h, i, x));
        rows[ids[n]].push_back(row);
      }
    }
    const bool fits = model_.append(rows);
    heed::ConstTensorView at =
        heed::view(static_cast<const std::int64_t*>(offsets.data()), {count + 1});
    if (batch) at = {};
    if (fits) {
      cache_.append(ids, keys.view(), values.view(), at);
      return;
    }
    ++refused;
    try {
      cache_.append(ids, keys.view(), values.view(), at);
      ADD_FAILURE() << "there were pages enough";
    } catch (const heed::Error& error) {
      EXPECT_EQ(error.kind(), heed::ErrorKind::memory) << error.what();
    }
  }

  void expect_equal() {
    EXPECT_EQ(cache_.free_pages(), model_.free_pages());
    EXPECT_EQ(cache_.sequences(), static_cast<std::int64_t>(model_.sequences.size()));
    std::map<std::int64_t, const Page*> page_of;
    for (const auto& [id, s] : model_.sequences) {
      EXPECT_EQ(cache_.length(id), s.length);
      EXPECT_EQ(cache_.evicted(id), s.evicted);
      const auto table = cache_.page_table(id);
      ASSERT_EQ(table.size(), s.pages.size());
      for (std::size_t n = 0; n < table.size(); ++n) {
        EXPECT_EQ(table[n] < 0, s.pages[n] == nullptr);
        if (table[n] < 0) continue;
        const auto [at, added] = page_of.emplace(table[n], s.pages[n].get());
        EXPECT_EQ(at->second, s.pages[n].get()) << "pages are shared that are not the same";
      }
    }
  }

  Kind kind_;
  Model model_;
  heed::KvCache cache_;
  Random random_;

 public:
  int refused = 0;
};

void expect_model(const Kind& kind, std::uint64_t seed) {
  Pair pair(kind, seed);
  for (auto drawn = draws(300); drawn; ++drawn) {
    const int n = *drawn;
    pair.step();
    if (n % 10 == 0) pair.expect_same_attention();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << n;
  }
  if (draws(300).count() >= 300) {
    EXPECT_GT(pair.refused, 0) << "no append ever lacked pages";
  }
}

TEST(kv_cache, holds_what_a_plain_model_holds) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    expect_model({14, 16}, seed);
    expect_model({9, 96}, seed);
    expect_model({12, 112}, seed);
  }
}

// Sizes of whole vectors too: few rows read such rows where they lie.
TEST(kv_cache, holds_what_a_plain_model_holds_in_16_bits) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    expect_model({14, 16, dtype}, 4);
    expect_model({9, 192, dtype, 32, 64}, 5);
    expect_model({12, 112, dtype, 16, 9}, 6);
  }
}

TEST(kv_cache, contiguous_holds_what_a_plain_model_holds_and_shows_it) {
  heed::KvCache cache(options_for<float>({1, 1, 2, 0, 0, 3, 2}, 2, 160));
  const auto a = cache.create();
  EXPECT_EQ(cache.keys(a).shape[2], 0);
  Call<float> call = plain_call<float>({1, 2, 2, 1, 130, 3, 2}, 1);
  cache.append(a, rows_of(call.k, 0, 0, 100), rows_of(call.v, 0, 0, 100));
  const void* const first = cache.keys(a).data;
  cache.append(a, rows_of(call.k, 0, 100, 130), rows_of(call.v, 0, 100, 130));
  EXPECT_EQ(cache.keys(a).data, first) << "a contiguous sequence has moved";
  const auto expect_rows = [](heed::ConstTensorView view, const Tensor<float>& rows) {
    ASSERT_EQ(view.shape, rows.shape);
    rows.each([&](auto b, auto h, auto i, auto x) {
      EXPECT_EQ(static_cast<const float*>(view.data)[h * view.stride[1] + i * view.stride[2] + x],
                rows.at(b, h, i, x));
    });
  };
  expect_rows(cache.keys(a), call.k);
  expect_rows(cache.values(a), call.v);
  const auto b = cache.fork(a);  // the same page until one of them writes
  EXPECT_EQ(cache.keys(b).data, first);
  cache.truncate(b, 90);
  cache.append(b, rows_of(call.k, 0, 0, 1), rows_of(call.v, 0, 0, 1));
  EXPECT_NE(cache.keys(b).data, first);
  expect_rows(cache.keys(a), call.k);
  EXPECT_EQ(cache.keys(b).shape[2], 91);
  EXPECT_EQ(cache.free_pages(), 0);
}

TEST(kv_cache, stores_sixteen_bits) {
  heed::KvCache cache({.kv_heads = 1, .head_size = 4, .dtype = heed::DType::bf16, .pages = 1});
  const std::vector<std::uint16_t> bits{1, 2, 3, 4, 0x7FC1, 0x8000, 7, 8};
  const auto a = cache.create();
  const auto rows = heed::view(bits.data(), heed::DType::bf16, {2, 4});
  cache.append(a, rows, rows);
  EXPECT_EQ(std::memcmp(cache.keys(a).data, bits.data(), 16), 0);
  EXPECT_EQ(std::memcmp(cache.values(a).data, bits.data(), 16), 0);
}

/// Heads and rows of no elements take no memory, and no time: a loop over these would take hours.
TEST(kv_cache, takes_any_number_of_rows_without_elements_at_once) {
  const std::int64_t many = std::int64_t{1} << 40U;
  heed::KvCache cache(
      {.kv_heads = many, .head_size = 0, .value_size = 0, .pages = 1, .page_keys = 16});
  const auto a = cache.create();
  const auto rows = heed::view(static_cast<const float*>(nullptr), {1, many, 16, 0});
  cache.append(a, rows, rows);
  EXPECT_EQ(cache.length(a), 16);
  EXPECT_EQ(cache.keys(a).shape[1], many);
}

}  // namespace
}  // namespace heed_test
