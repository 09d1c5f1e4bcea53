// What a cache and attention against it refuse, and that nothing has changed then.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "cached.h"
#include "forward/failing_allocation.h"

namespace heed_test {
namespace {

constexpr Dims kDims{1, 4, 2, 3, 40, 6, 5};

/// More of something than there is memory for a list of, in a view that takes none of it. A list
/// that is made all the same ends at its `kListEnds`th allocation, of some megabytes.
constexpr std::int64_t kMany = std::int64_t{1} << 40;
constexpr long kListEnds = 20;

heed::ConstTensorView entries_without_keys(std::int64_t size) {
  return {nullptr, heed::DType::f32, 4, {kMany, kDims.kv_heads, 0, size}, {}};
}

struct Good {
  Call<float> call = plain_call<float>(kDims, 1);
  heed::KvCache cache{options_for<float>(kDims, 4, 16)};
  heed::SequenceId a = cache.create(), b = cache.create(), released = cache.create();
  Tensor<float> o{{2, 4, 3, 5}};
  std::vector<std::int64_t> offsets{0, 1, 3};

  Good() {
    append(a, 20);
    append(b, 5);
    cache.release(released);
    Random random(5);
    fill_normal(q, random);  // of what is not NaN the output is none either
  }
  void append(heed::SequenceId id, std::int64_t keys) {
    cache.append(id, rows_of(call.k, 0, 0, keys), rows_of(call.v, 0, 0, keys));
  }
  /// Offsets that are one number in memory, of sequences without rows.
  [[nodiscard]] heed::ConstTensorView same_offset() const {
    return {offsets.data(), heed::DType::i64, 1, {kMany}, {0}};
  }
  /// One call with two sequences.
  std::vector<heed::SequenceId> ids{a, b};
  Tensor<float> q{{2, 4, 3, 6}};
  heed::AttentionOptions options;
  void decode() { heed::attention_decode(q.view(), cache, ids, {.output = o.out()}, options); }
};

struct Case {
  const char* message;
  std::function<void(Good&)> act;
};

/// The message with the names of this cache's sequences.
std::string named(std::string message, const Good& g) {
  const std::pair<const char*, heed::SequenceId> names[] = {
      {"#released", g.released}, {"#a", g.a}, {"#b", g.b}};
  for (const auto& [word, id] : names) {
    const std::size_t at = message.find(word);
    if (at == std::string::npos) continue;
    message.replace(at, std::strlen(word), std::to_string(static_cast<std::int64_t>(id)));
  }
  return message;
}

TEST(kv_cache, has_no_view_of_a_page_that_it_gave_back) {
  Good g;
  g.append(g.b, 11);  // the page is full
  g.cache.evict(g.b, 16);
  try {
    (void)g.cache.keys(g.b);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const heed::Error& error) {
    EXPECT_EQ(
        error.what(),
        named("KvCache::keys: sequence #b has given back its page: all its keys are evicted", g));
  }
}

TEST(kv_cache, no_sequence_has_the_name_that_nobody_gave) {
  heed::KvCache cache({.kv_heads = 1, .head_size = 8, .pages = 2});
  EXPECT_NE(cache.create(), heed::SequenceId{});
  EXPECT_THROW((void)cache.length(heed::SequenceId{}), heed::Error);
}

TEST(kv_cache, says_what_it_refuses_and_stays_as_it_was) {
  const auto none = static_cast<heed::SequenceId>(-77);
  const Case cases[] = {
      {"KvCache::append: sequence -77 is none of this cache", [&](Good& g) { g.append(none, 1); }},
      {"KvCache::append: sequence #released was released",
       [](Good& g) { g.append(g.released, 1); }},
      {"KvCache::release: sequence #released was released",
       [](Good& g) { g.cache.release(g.released); }},
      {"KvCache::fork: sequence #released was released",
       [](Good& g) { (void)g.cache.fork(g.released); }},
      {"KvCache::truncate: sequence -77 is none of this cache",
       [&](Good& g) { g.cache.truncate(none, 0); }},
      {"KvCache::evict: sequence -77 is none of this cache",
       [&](Good& g) { g.cache.evict(none, 0); }},
      {"KvCache::length: sequence #released was released",
       [](Good& g) { (void)g.cache.length(g.released); }},
      {"KvCache::append: number of free pages is 1 of 4; expected at least 2",
       [](Good& g) { g.append(g.b, 30); }},
      {"KvCache::append: sequence #a is there twice; expected different ones",
       [](Good& g) {
         g.ids = {g.a, g.a};
         g.cache.append(g.ids, g.call.k.view(), g.call.v.view(),
                        heed::view(static_cast<const std::int64_t*>(g.offsets.data()), {3}));
       }},
      {"KvCache::append: number of sequences is 2, batch size of k 1; they must be equal",
       [](Good& g) { g.cache.append(g.ids, g.call.k.view(), g.call.v.view()); }},
      {"KvCache::append: number of sequences is 1, batch size of k 1099511627776; they must be "
       "equal",
       [](Good& g) {
         g.ids = {g.a};
         failing = kListEnds;
         g.cache.append(g.ids, entries_without_keys(6), entries_without_keys(5));
       }},
      {"KvCache::append: number of sequences is 2, of those in key_offsets 1099511627775; they "
       "must be equal",
       [](Good& g) {
         failing = kListEnds;
         g.cache.append(g.ids, g.call.k.view(), g.call.v.view(), g.same_offset());
       }},
      {"KvCache::append: key_offsets[1] is 1, the offset before 2; offsets must not descend",
       [](Good& g) {
         g.offsets = {2, 1, 3};
         g.cache.append(g.ids, g.call.k.view(), g.call.v.view(),
                        heed::view(static_cast<const std::int64_t*>(g.offsets.data()), {3}));
       }},
      {"KvCache::append: k has 1 heads; expected 2",
       [](Good& g) {
         const auto rows = heed::view(g.call.k.memory.data(), {3, 6});
         g.cache.append(g.a, rows, rows);
       }},
      {"KvCache::append: last axis of v is 6; expected 5",
       [](Good& g) { g.cache.append(g.a, g.call.k.view(), g.call.k.view()); }},
      {"KvCache::append: number of keys of v is 2, of k 3; they must be equal",
       [](Good& g) {
         g.cache.append(g.a, rows_of(g.call.k, 0, 0, 3), rows_of(g.call.v, 0, 0, 2));
       }},
      {"KvCache::append: k is float64; expected float32, the type of the cache",
       [](Good& g) {
         const Call<double> wide = plain_call<double>(kDims, 1);
         g.cache.append(g.a, wide.k.view(), wide.v.view());
       }},
      {"KvCache::append: v is absent; expected a view to read from",
       [](Good& g) { g.cache.append(g.a, g.call.k.view(), {}); }},
      {"KvCache::append: k has rank 1; expected 2 [n, D], 3 [S, n, D] or 4 [S, Hk, n, D]",
       [](Good& g) {
         const float* const row = g.call.k.memory.data();
         g.cache.append(g.a, heed::view(row, {6}), heed::view(row, {5}));
       }},
      {"KvCache::truncate: keys is 21; expected 0 (evicted) .. 20 (the length)",
       [](Good& g) { g.cache.truncate(g.a, 21); }},
      {"KvCache::evict: keys is -1; expected 0 .. 20, the length",
       [](Good& g) { g.cache.evict(g.a, -1); }},
      {"KvCache::keys: sequence #a lies in 2 pages; expected one (a view needs page_keys of at "
       "least "
       "the sequence's length)",
       [](Good& g) { (void)g.cache.keys(g.a); }},
      {"attention_decode: sequence #released was released",
       [](Good& g) {
         g.ids = {g.a, g.released};
         g.decode();
       }},
      {"attention_decode: batch size of q is 2; expected 1, one entry for each sequence",
       [](Good& g) {
         g.ids = {g.a};
         g.decode();
       }},
      {"attention_decode: packing.key_offsets is given; expected none: lengths of keys are the "
       "cache's",
       [](Good& g) {
         g.options.packing.key_offsets =
             heed::view(static_cast<const std::int64_t*>(g.offsets.data()), {3});
         g.decode();
       }},
      {"attention_decode: packing is given, and the batch size is 2; expected 1: sequences lie end "
       "to end in one batch entry",
       [](Good& g) {
         g.options.packing.query_offsets =
             heed::view(static_cast<const std::int64_t*>(g.offsets.data()), {3});
         g.decode();
       }},
      {"attention_decode: packing.query_offsets has rows for 1 sequences; expected 2",
       [](Good& g) {
         g.q = Tensor<float>({1, 4, 3, 6});
         g.offsets = {0, 3};
         g.options.packing.query_offsets =
             heed::view(static_cast<const std::int64_t*>(g.offsets.data()), {2});
         g.decode();
       }},
      {"attention_decode: packing.query_offsets has rows for 1099511627775 sequences; expected 2",
       [](Good& g) {
         g.q = Tensor<float>({1, 4, 3, 6});
         g.options.packing.query_offsets = g.same_offset();
         failing = kListEnds;
         g.decode();
       }},
      {"attention_decode: head size of q is 7; expected 6, that of the cache",
       [](Good& g) {
         g.q = Tensor<float>({2, 4, 3, 7});
         g.decode();
       }},
      {"attention_decode: number of heads of q is 3, of the cache 2; the first must be a multiple "
       "of the "
       "second",
       [](Good& g) {
         g.q = Tensor<float>({2, 3, 3, 6});
         g.decode();
       }},
      {"attention_decode: output has shape [2, 4, 3, 5]; expected [2, 4, 2, 5]",
       [](Good& g) {
         g.q = Tensor<float>({2, 4, 2, 6});
         g.decode();
       }},
      {"attention_decode: q has rank 3, and the cache 2 heads; expected rank 4 [S, H, T, D]",
       [](Good& g) {
         heed::attention_decode(heed::view(g.q.memory.data(), {2, 3, 6}), g.cache, g.ids,
                                {.output = g.o.out()});
       }},
      {"attention_decode: q has rank 1; expected 2 [T, D], 3 [S, T, D] or 4 [S, H, T, D]",
       [](Good& g) {
         heed::attention_decode(heed::view(g.q.memory.data(), {6}), g.cache, g.ids,
                                {.output = g.o.out()});
       }},
      {"attention_decode: q has rank 5; expected 2 [T, D], 3 [S, T, D] or 4 [S, H, T, D]",
       [](Good& g) {
         heed::ConstTensorView deep = g.q.view();
         deep.rank = 5;
         heed::attention_decode(deep, g.cache, g.ids, {.output = g.o.out()});
       }},
      {"attention_decode: q has shape [2, 4, -9223372036854775808, 6]; sizes must not be negative",
       [](Good& g) {
         heed::ConstTensorView wrong = g.q.view();
         wrong.shape[2] = std::numeric_limits<std::int64_t>::min();
         heed::attention_decode(wrong, g.cache, g.ids, {.output = g.o.out()});
       }},
      {"attention_decode: mask.key_lengths[1] is 6; expected 0 .. 5",
       [](Good& g) {
         g.offsets = {1, 6};
         g.options.mask.key_lengths =
             heed::view(static_cast<const std::int64_t*>(g.offsets.data()), {2});
         g.decode();
       }},
  };
  for (const Case& c : cases) {
    Good good;
    try {
      c.act(good);
      ADD_FAILURE() << "nothing was thrown; expected " << c.message;
    } catch (const heed::Error& error) {
      failing = 0;
      EXPECT_EQ(error.what(), named(c.message, good));
    }
    EXPECT_EQ(good.cache.free_pages(), 1) << c.message;
    EXPECT_EQ(good.cache.sequences(), 2) << c.message;
    EXPECT_EQ(good.cache.length(good.a), 20) << c.message;
    EXPECT_EQ(good.cache.length(good.b), 5) << c.message;
    for (const std::byte byte : std::as_bytes(std::span(good.o.memory)))
      ASSERT_EQ(byte, std::byte{0xFF}) << c.message << ": output was written";
  }
}

// Each layer of a model has a cache, and their sequences are easily mistaken for each other.
TEST(kv_cache, knows_a_sequence_of_another_cache) {
  Good one, other;
  EXPECT_NE(one.a, other.a);
  const std::string message =
      "KvCache::length: sequence " + std::to_string(static_cast<std::int64_t>(other.a));
  try {
    (void)one.cache.length(other.a);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const heed::Error& error) {
    EXPECT_EQ(error.what(), message + " is none of this cache");
  }
  one.ids = {one.a, other.b};
  EXPECT_THROW(one.decode(), heed::Error);
  EXPECT_THROW(one.append(other.a, 1), heed::Error);
}

TEST(kv_cache, that_was_moved_from_says_so_and_can_be_assigned_to) {
  Good good;
  heed::KvCache taken = std::move(good.cache);
  EXPECT_EQ(taken.length(good.a), 20);
  const heed::KvCache& empty = good.cache;  // NOLINT(bugprone-use-after-move): what is tested
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"KvCache::create", [&] { (void)good.cache.create(); }},
      {"KvCache::fork", [&] { (void)good.cache.fork(good.a); }},
      {"KvCache::release", [&] { good.cache.release(good.a); }},
      {"KvCache::append", [&] { good.append(good.a, 1); }},
      {"KvCache::truncate", [&] { good.cache.truncate(good.a, 1); }},
      {"KvCache::evict", [&] { good.cache.evict(good.a, 1); }},
      {"KvCache::length", [&] { (void)empty.length(good.a); }},
      {"KvCache::evicted", [&] { (void)empty.evicted(good.a); }},
      {"KvCache::page_table", [&] { (void)empty.page_table(good.a); }},
      {"KvCache::keys", [&] { (void)empty.keys(good.a); }},
      {"KvCache::values", [&] { (void)empty.values(good.a); }},
      {"KvCache::free_pages", [&] { (void)empty.free_pages(); }},
      {"KvCache::sequences", [&] { (void)empty.sequences(); }},
      {"KvCache::options", [&] { (void)empty.options(); }},
      {"attention_decode", [&] { good.decode(); }},
      {"explain", [&] { (void)heed::explain(good.q.view(), empty, good.ids); }},
  };
  for (const auto& [function, call] : calls) {
    try {
      call();
      ADD_FAILURE() << function << ": nothing was thrown";
    } catch (const heed::Error& error) {
      EXPECT_EQ(error.what(),
                std::string(function) + ": this cache was moved from; it holds nothing");
    }
  }
  good.cache = std::move(taken);
  EXPECT_EQ(good.cache.length(good.a), 20);
}

TEST(decode, writes_to_memory_of_its_own) {
  heed::KvCache cache(options_for<float>({1, 2, 2, 0, 0, 5, 5}, 1, 16));
  const Call<float> call = plain_call<float>({1, 2, 2, 1, 3, 5, 5}, 1);
  const auto id = cache.create();
  cache.append(id, call.k.view(), call.v.view());
  heed::TensorView own =
      heed::view(const_cast<void*>(cache.values(id).data), heed::DType::f32, {1, 2, 1, 5});
  try {
    heed::attention_decode(call.q.view(), cache, {&id, 1}, {.output = own});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const heed::Error& error) {
    EXPECT_STREQ(
        error.what(),
        "attention_decode: output overlaps the cache in memory; expected memory of its own");
  }
}

// The n-th allocation fails, for every n: an error of kind memory, and the cache as it was.
TEST(kv_cache, without_memory_is_an_error_and_stays_as_it_was) {
  const Call<float> call = plain_call<float>({1, 2, 2, 3, 40, 6, 5}, 1);
  const auto k = call.k.view(), v = call.v.view(), q = call.q.view();
  const std::vector<std::int64_t> offsets{0, 1, 3}, key_offsets{0, 20, 40};
  Tensor<float> o({1, 2, 3, 5});
  heed::attention_forward(q, k, v, {.output = o.out()});  // threads and CPU are found once
  int failures = 0;
  const auto failing_at = [&](long n, const auto& act) {
    failing = n;
    try {
      act();
    } catch (const heed::Error& error) {
      failing = 0;
      ++failures;
      EXPECT_EQ(error.kind(), heed::ErrorKind::memory) << error.what();
    } catch (const std::bad_alloc&) {
      failing = 0;
      ADD_FAILURE() << "std::bad_alloc, which is no heed::Error";
    }
    return failing.exchange(0) == 0;
  };
  const heed::KvCacheOptions options = options_for<float>({1, 2, 2, 0, 0, 6, 5}, 8, 16);
  for (long n = 1; n < 100 && failing_at(n, [&] { const heed::KvCache cache(options); }); ++n) {
  }
  for (long n = 1; n < 100; ++n) {
    heed::KvCache cache(options);
    const auto id = cache.create();
    cache.append(id, k, v);
    bool reached = failing_at(n, [&] { (void)cache.create(); });
    EXPECT_EQ(cache.sequences(), reached ? 1 : 2) << n;
    const std::int64_t before = cache.sequences();
    const bool unforked = failing_at(n, [&] { (void)cache.fork(id); });
    EXPECT_EQ(cache.sequences(), before + (unforked ? 0 : 1)) << n;
    EXPECT_EQ(cache.free_pages(), 5) << n;
    const bool short_of = failing_at(n, [&] { cache.append(id, k, v); });
    EXPECT_EQ(cache.length(id), short_of ? 40 : 80) << n;
    EXPECT_EQ(cache.free_pages(), short_of ? 5 : unforked ? 3 : 2) << n;
    reached |= unforked || short_of;
    const std::vector<heed::SequenceId> ids{id, id};
    heed::AttentionOptions packed;
    packed.packing.query_offsets = heed::view(offsets.data(), {3});
    reached |=
        failing_at(n, [&] { heed::attention_decode(q, cache, ids, {.output = o.out()}, packed); });
    packed.packing.key_offsets = heed::view(key_offsets.data(), {3});
    reached |=
        failing_at(n, [&] { heed::attention_forward(q, k, v, {.output = o.out()}, packed); });
    if (!reached) break;
  }
  EXPECT_GT(failures, 10);
}

TEST(kv_cache, says_which_size_it_cannot_have) {
  const auto message = [](heed::KvCacheOptions options) -> std::string {
    try {
      const heed::KvCache cache(options);
    } catch (const heed::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const heed::KvCacheOptions good{.kv_heads = 2, .head_size = 4, .pages = 1};
  const auto with = [&](auto change) {
    heed::KvCacheOptions options = good;
    change(options);
    return message(options);
  };
  EXPECT_EQ(message(good), "nothing was thrown");
  EXPECT_EQ(with([](auto& o) { o.kv_heads = 0; }), "KvCache: kv_heads is 0; expected 1 or more");
  EXPECT_EQ(with([](auto& o) { o.head_size = -1; }),
            "KvCache: head_size is -1; expected 0 or more");
  EXPECT_EQ(with([](auto& o) { o.value_size = -1; }),
            "KvCache: value_size is -1; expected 0 or more");
  EXPECT_EQ(with([](auto& o) { o.dtype = heed::DType::i32; }),
            "KvCache: dtype is int32; expected a floating type");
  EXPECT_EQ(with([](auto& o) { o.pages = -1; }), "KvCache: pages is -1; expected 0 or more");
  EXPECT_EQ(with([](auto& o) { o.page_keys = 40; }),
            "KvCache: page_keys is 40; expected 16 or a multiple of it");
  EXPECT_EQ(
      with([](auto& o) { o.pages = std::int64_t{1} << 55; }),
      "KvCache: pages is 36028797018963968, page_keys 192, kv_heads 2, elements of a row 4; the "
      "cache must fit 63 bits of bytes");
  EXPECT_EQ(with([](auto& o) { o.value_size = std::int64_t{1} << 60; }),
            "KvCache: pages is 1, page_keys 192, kv_heads 2, elements of a row "
            "1152921504606846976; the cache must fit 63 bits of bytes");
  // Numbers of keys fit even where no page or no element needs memory.
  EXPECT_EQ(
      with([](auto& o) {
        o.pages = 0;
        o.page_keys = (std::int64_t{1} << 62) + 16;
      }),
      "KvCache: pages is 0, page_keys 4611686018427387920, kv_heads 2, elements of a row 4; the "
      "cache must fit 63 bits of bytes");
  EXPECT_EQ(
      with([](auto& o) {
        o.head_size = 0;
        o.pages = 3;
        o.page_keys = std::int64_t{1} << 60;
      }),
      "KvCache: pages is 3, page_keys 1152921504606846976, kv_heads 2, elements of a row 0; the "
      "cache must fit 63 bits of bytes");
}

}  // namespace
}  // namespace heed_test
