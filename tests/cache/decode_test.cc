// Attention against a cache has the bits of prefill: token by token, in chunks, with speculative
// tails, in ragged batches, on pages of any size, for any number of threads.
// Method: one causal call over the whole sequence, and its rows once more from caches.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "cached.h"
#include "forward/end_to_end.h"
#include "forward/seen.h"
#include "heed/merge.h"
#include "sanitized.h"

namespace heed_test {
namespace {

/// Page sizes that hold blocks of 96 keys, cut them, and hold everything.
constexpr std::int64_t kPageSizes[] = {16, 48, 96, 112, 192, 1600};

template <typename T>
void append(heed::KvCache& cache, heed::SequenceId id, const Call<T>& call, std::int64_t b,
            std::int64_t begin, std::int64_t end) {
  cache.append(id, rows_of(call.k, b, begin, end), rows_of(call.v, b, begin, end));
}

/// A causal call in which query i stands at key i.
template <typename T>
Call<T> text(const Dims& d, std::uint64_t seed) {
  Call<T> call = plain_call<T>(d, seed);
  call.causal = true;
  return call;
}

template <typename T>
void expect_prefill(Call<T> call, std::int64_t page_keys, std::uint64_t seed) {
  const Result<T> whole = run(call);
  const Dims d = call.dims();
  heed::KvCache cache(options_for<T>(d, (d.keys + page_keys - 1) / page_keys, page_keys));
  const auto id = cache.create();
  Result<T> all{Tensor<T>(whole.o.shape), Tensor<T>(whole.lse.shape), {}};
  Random random(seed);
  const Told<T> told(call);
  for (std::int64_t at = 0; at < d.keys;) {
    const std::int64_t rows = std::min(
        d.keys - at, random.pick<std::int64_t>({1, 1, 1, 2, 5, 16, random.between(20, 300)}));
    append(cache, id, call, 0, at, at + rows);
    heed::attention_decode(
        rows_of(call.q, 0, at, at + rows), cache, {&id, 1},
        {.output = rows_to(all.o, 0, at, at + rows), .lse = rows_to(all.lse, 0, at, at + rows, 3)},
        told.options, {.executor = nullptr, .threads = static_cast<int>(random.between(1, 3))});
    at += rows;
  }
  EXPECT_TRUE(same_bits(all, whole)) << "pages of " << page_keys << ": " << describe(call);
}

TEST(decode, has_the_bits_of_prefill_on_pages_of_any_size) {
  for (const heed::Isa isa : isas_for_races(runnable_isas())) {
    const Forced forced(isa);
    for (const std::int64_t page_keys : kPageSizes) {
      expect_prefill(text<float>({1, 3, 1, 200, 200, 5, 7}, 2), page_keys, 2);
      if (isa != runnable_isas().back() && page_keys != 48) continue;
      expect_prefill(text<float>({1, 4, 2, 900, 900, 16, 16}, 1), page_keys, 1);
    }
  }
  for (const std::int64_t page_keys : kPageSizes) {
    expect_prefill(text<double>({1, 2, 1, 200, 200, 8, 8}, 3), page_keys, 3);
  }
}

TEST(decode, drops_the_weights_that_prefill_drops) {
  Call<float> call = text<float>({1, 4, 2, 300, 300, 16, 16}, 4);
  call.dropout = {.p = 0.3, .seed = 8};
  expect_prefill(call, 48, 4);
  call.dropout.first_query = 1000, call.dropout.first_key = 13, call.dropout.first_batch = 3;
  expect_prefill(call, 112, 5);
}

/// Asked for, the other order has the same bits on pages that hold blocks, cut them, or hold
/// everything.
TEST(decode, key_by_key_has_the_same_bits_with_and_without_a_cache) {
  const heed::Execution execution{.decode_order = heed::DecodeOrder::key_by_key};
  const Call<float> call = plain_call<float>({1, 3, 3, 1, 900, 64, 32}, 7);
  const Result<float> whole = run(call, {}, execution);
  EXPECT_FALSE(same_bits(whole, run(call)));
  for (const std::int64_t page_keys : kPageSizes) {
    heed::KvCache cache(
        options_for<float>(call.dims(), (900 + page_keys - 1) / page_keys, page_keys));
    const auto id = cache.create();
    append(cache, id, call, 0, 0, 900);
    Result<float> got{Tensor<float>(whole.o.shape), Tensor<float>(whole.lse.shape), {}};
    heed::attention_decode(rows_of(call.q, 0, 0, 1), cache, {&id, 1},
                           {.output = rows_to(got.o, 0, 0, 1), .lse = rows_to(got.lse, 0, 0, 1, 3)},
                           {}, execution);
    EXPECT_TRUE(same_bits(got, whole)) << "pages of " << page_keys;
    EXPECT_NE(heed::explain(rows_of(call.q, 0, 0, 1), cache, {&id, 1}, {}, execution)
                  .path.find(", key by key"),
              std::string::npos);
  }
}

TEST(decode, has_the_bits_of_prefill_with_every_option) {
  Call<float> call = text<float>({1, 4, 2, 330, 330, 16, 16}, 4);
  const auto with = [&](auto change) {
    Call<float> one = call;
    change(one);
    expect_prefill(one, 96, 5);
    expect_prefill(one, 48, 6);
  };
  with([](Call<float>& c) { c.scale = {0.5, 0.25, 1, 2}; });
  with([](Call<float>& c) { c.normalize_qk = true; });
  with([](Call<float>& c) { c.softcap = 3; });
  with([](Call<float>& c) { c.alibi = {0.5, 0.25, 0.125, 1}; });
  with([](Call<float>& c) { c.left = 70; });
  with([](Call<float>& c) { c.sinks = {1, 2, 3, 4}; });
  with([](Call<float>& c) {
    c.v.at(0, 0, 100, 3) = std::nanf("");
    c.left = 50;
  });
}

// Sequences of different lengths with different numbers of rows, in one call and one by one.
TEST(decode, of_a_ragged_batch_has_the_bits_of_one_by_one) {
  constexpr std::int64_t kLengths[] = {1, 40, 96, 97, 500, 1700, 0},
                         kRows[] = {1, 16, 2, 1, 7, 3, 1};
  constexpr std::size_t kCount = std::size(kLengths);
  for (const std::int64_t page_keys : kPageSizes) {
    const Dims d{1, 4, 2, 0, 0, 16, 12};
    heed::KvCache cache(options_for<float>(d, 7 * (1700 / page_keys + 1), page_keys));
    std::vector<heed::SequenceId> ids;
    std::vector<Call<float>> calls;
    std::vector<std::int64_t> offsets{2};
    for (std::size_t s = 0; s < kCount; ++s) {
      calls.push_back(text<float>({1, 4, 2, kRows[s], kLengths[s], 16, 12}, s + 1));
      calls[s].query_start = {kLengths[s] - kRows[s]};
      calls[s].dropout = {.p = 0.3,
                          .seed = 5,
                          .first_query = std::max<std::int64_t>(kLengths[s] - kRows[s], 0),
                          .first_batch = static_cast<std::int64_t>(s)};
      ids.push_back(cache.create());
      append(cache, ids[s], calls[s], 0, 0, kLengths[s]);
      offsets.push_back(offsets.back() + kRows[s]);
    }
    Tensor<float> q({1, 4, offsets.back() + 1, 16});
    Result<float> all{
        Tensor<float>({1, 4, q.shape[2], 12}), Tensor<float>({1, 4, q.shape[2], 1}), {}};
    for (std::size_t s = 0; s < kCount; ++s) {
      calls[s].q.each([&](auto b, auto h, auto i, auto x) {
        q.at(0, h, offsets[s] + i, x) = calls[s].q.at(b, h, i, x);
      });
    }
    heed::AttentionOptions options{.mask = {.causal = true}};
    options.packing.query_offsets = heed::view(static_cast<const std::int64_t*>(offsets.data()),
                                               {static_cast<std::int64_t>(offsets.size())});
    for (const int threads : {1, 2, 3, 4, 7, 8, 16, 64}) {
      const double p = threads % 2 == 0 ? 0.3 : 0;
      for (Call<float>& call : calls) call.dropout.p = p;
      options.dropout = {.p = p, .seed = 5};
      heed::attention_decode(q.view(), cache, ids,
                             {.output = all.o.out(), .lse = rows_to(all.lse, 0, 0, q.shape[2], 3)},
                             options, {.executor = nullptr, .threads = threads});
      for (std::size_t s = 0; s < kCount; ++s) {
        EXPECT_TRUE(same_bits(gathered(all, 2, range(offsets[s], offsets[s + 1])), run(calls[s])))
            << "pages of " << page_keys << ", sequence " << s << ", " << threads << " threads";
      }
      for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, offsets.back()}) {
        EXPECT_TRUE(std::isnan(all.o.at(0, 0, row, 0))) << "a row of no sequence was written";
      }
    }
  }
}

TEST(decode, of_a_batch_takes_lse_weights_statistics_and_masks_up_to_the_longest) {
  const Dims d{3, 2, 1, 2, 150, 8, 8};
  Call<float> call = plain_call<float>(d, 8);
  call.key_lengths = {150, 20, 97};
  call.query_start = {148, 18, 95};
  call.causal = true;
  call.bias = Tensor<double>({3, 1, 2, 150});
  call.bias.each([&](auto b, auto h, auto i, auto j) {
    call.bias.at(b, h, i, j) = static_cast<double>((3 * b + 5 * i + 7 * j) % 9) / 8;
  });
  const Result<float> padded = run(call, {.lse = true, .weights = true});
  const Seen<float> counted(call);
  heed::KvCache cache(options_for<float>(d, 20, 48));
  std::vector<heed::SequenceId> ids;
  for (std::int64_t s = 0; s < 3; ++s) {
    ids.push_back(cache.create());
    append(cache, ids.back(), call, s, 0, call.key_lengths[static_cast<std::size_t>(s)]);
  }
  Result<float> all{Tensor<float>(padded.o.shape), Tensor<float>(padded.lse.shape),
                    Tensor<float>(padded.weights.shape)};
  const auto rows_out = [](Tensor<float>& t) {
    heed::TensorView view = t.out();
    --view.rank;
    return view;
  };
  call.key_lengths = call.query_start = {};
  const Told<float> told(call);
  Seen<float> got(d);
  const heed::RowStatistics statistics = got.out();
  heed::attention_decode(call.q.view(), cache, ids,
                         {.output = all.o.out(),
                          .lse = rows_out(all.lse),
                          .weights = all.weights.out(),
                          .statistics = &statistics},
                         told.options);
  EXPECT_TRUE(same_bits(all, padded));
  EXPECT_TRUE(same_bits(got, counted));
}

/// Three cached sequences of two rows each, with what `change` adds, once as a batch and once with
/// the rows end to end, against a call on padded tensors.
template <typename Change>
void expect_padded_call(const Change& change) {
  const Dims d{3, 2, 1, 2, 150, 8, 8};
  const std::vector<std::int64_t> cached{150, 20, 97};
  Call<float> call = plain_call<float>(d, 8);
  call.key_lengths = cached;
  call.query_start = {148, 18, 95};
  heed::KvCache cache(options_for<float>(d, 20, 48));
  std::vector<heed::SequenceId> ids;
  for (std::int64_t s = 0; s < 3; ++s) {
    ids.push_back(cache.create());
    append(cache, ids.back(), call, s, 0, cached[static_cast<std::size_t>(s)]);
  }
  change(call);
  const Result<float> padded = run(call);
  if (call.key_lengths == cached) call.key_lengths = {};
  call.query_start = {};
  Tensor<float> o(padded.o.shape), lse(padded.lse.shape);
  const Told<float> told(call);
  heed::attention_decode(call.q.view(), cache, ids,
                         {.output = o.out(), .lse = without_last_axis(lse.out())}, told.options);
  EXPECT_TRUE(same_bits(o, padded.o)) << describe(call);
  EXPECT_TRUE(same_bits(lse, padded.lse)) << describe(call);

  Call<float> rows = call;
  rows.q = end_to_end(call.q);
  for (auto* mask : {&rows.keep, &rows.drop})
    if (mask->present()) *mask = end_to_end(*mask);
  if (rows.bias.present()) rows.bias = end_to_end(rows.bias);
  const Told<float> told_rows(rows);
  heed::AttentionOptions options = told_rows.options;
  const std::int64_t offsets[] = {0, 2, 4, 6};
  options.packing.query_offsets = heed::view(&offsets[0], {4});
  Tensor<float> all(rows.q.shape);
  heed::attention_decode(rows.q.view(), cache, ids, {.output = all.out()}, options);
  EXPECT_TRUE(same_bits(all, end_to_end(padded.o))) << describe(call);
}

TEST(decode, of_a_batch_and_of_rows_end_to_end_takes_all_that_a_padded_call_does) {
  Random random(9);
  const auto mask = [&] {
    Tensor<std::uint8_t> drawn({3, 2, 2, 150});
    drawn.each([&](auto b, auto h, auto i, auto j) { drawn.at(b, h, i, j) = random.chance(0.5); });
    return drawn;
  };
  expect_padded_call([&](Call<float>& c) { c.keep = mask(); });
  expect_padded_call([&](Call<float>& c) { c.drop = mask(); });
  expect_padded_call([&](Call<float>& c) {
    c.bias = Tensor<double>({3, 2, 2, 150});
    c.bias.each([&](auto b, auto h, auto i, auto j) {
      c.bias.at(b, h, i, j) = static_cast<double>(random.between(-64, 64)) / 64;
    });
  });
  expect_padded_call([](Call<float>& c) { c.left = 30, c.right = 0; });
  expect_padded_call([](Call<float>& c) { c.key_lengths = {120, 20, 3}; });
  expect_padded_call([](Call<float>& c) { c.query_lengths = {2, 1, 0}; });
  expect_padded_call([](Call<float>& c) { c.mod = Mod::tilt; });  // sees entry, head, row and key
}

// A draft of some tokens is checked at once, the first of them are kept, and decoding goes on.
TEST(decode, goes_on_after_a_rejected_draft) {
  const Call<float> call = text<float>({1, 4, 2, 300, 300, 16, 16}, 9);
  const Call<float> wrong = text<float>({1, 4, 2, 300, 300, 16, 16}, 10);
  const Result<float> whole = run(call);
  heed::KvCache cache(options_for<float>(call.dims(), 8, 48));
  const auto id = cache.create();
  Random random(3);
  append(cache, id, call, 0, 0, 100);
  for (std::int64_t at = 100; at + 16 < 300;) {
    const std::int64_t tail = random.between(2, 16), good = random.between(1, tail);
    append(cache, id, call, 0, at, at + good);
    append(cache, id, wrong, 0, at + good, at + tail);
    Tensor<float> o({1, 4, tail, 16});
    heed::attention_decode(rows_of(call.q, 0, at, at + tail), cache, {&id, 1}, {.output = o.out()},
                           {.mask = {.causal = true}});
    EXPECT_TRUE(
        same_bits(gathered(o, 2, range(0, good)), gathered(whole.o, 2, range(at, at + good))));
    cache.truncate(id, at + good);
    at += good;
  }
}

TEST(decode, of_a_sliding_window_needs_no_evicted_page) {
  constexpr std::int64_t kWindow = 100;
  Call<float> call = text<float>({1, 2, 1, 1000, 1000, 8, 8}, 11);
  call.left = kWindow - 1;
  const Result<float> whole = run(call);
  heed::KvCache cache(options_for<float>(call.dims(), 9, 16));  // far fewer than 1000 keys take
  const auto id = cache.create();
  Tensor<float> o(whole.o.shape);
  const Told<float> told(call);
  for (std::int64_t at = 0; at < 1000; at += 20) {
    cache.evict(id, std::max<std::int64_t>(0, at - kWindow + 1));
    append(cache, id, call, 0, at, at + 20);
    heed::attention_decode(rows_of(call.q, 0, at, at + 20), cache, {&id, 1},
                           {.output = rows_to(o, 0, at, at + 20)}, told.options);
  }
  EXPECT_TRUE(same_bits(o, whole.o));
  // Evicted keys are hidden where no window hides them, and where their page is still there.
  Call<float> last = with_queries(call, {999}, true);
  last.left = std::nullopt;
  last.keep = Tensor<std::uint8_t>({1, 1, 1, 1000});
  for (std::int64_t j = 0; j < 1000; ++j) last.keep.at(0, 0, 0, j) = j >= 905;
  cache.evict(id, 905);
  Tensor<float> one({1, 2, 1, 8});
  heed::attention_decode(last.q.view(), cache, {&id, 1}, {.output = one.out()});
  EXPECT_TRUE(same_bits(one, run(last).o));
}

// Pages are never gathered: scratch does not grow with the keys, and is that of a plain call where
// each block lies in one page.
// A prefix that sequences share, attended to once for all of them: with merge() the bits of the
// parts as dense tensors. (merge_test holds merged parts against the whole.)
TEST(decode, of_a_shared_prefix_merges_with_that_of_own_keys) {
  constexpr std::int64_t kPrefix = 200, kOwn = 30, kSequences = 3;
  const Call<float> call = plain_call<float>({kSequences, 4, 2, 1, kPrefix + kOwn, 16, 16}, 1);
  heed::KvCache cache(options_for<float>(call.dims(), 8, 96));
  const auto prefix = cache.create();
  cache.append(prefix, rows_of(call.k, 0, 0, kPrefix), rows_of(call.v, 0, 0, kPrefix));
  std::vector<heed::SequenceId> own;
  for (std::int64_t s = 0; s < kSequences; ++s) {
    own.push_back(cache.create());
    cache.append(own.back(), rows_of(call.k, s, kPrefix, kPrefix + kOwn),
                 rows_of(call.v, s, kPrefix, kPrefix + kOwn));
  }
  const Shape shape{kSequences, 4, 1, 16};
  const auto part = [&](const auto& attend) {
    Result<float> result;
    result.o = Tensor<float>(shape);
    result.lse = Tensor<float>({kSequences, 4, 1, 1});
    attend(result);
    return result;
  };
  const auto to = [](Result<float>& result, std::int64_t s, std::int64_t count) {
    heed::ForwardOutputs outputs{.output = result.o.out(), .lse = result.lse.out()};
    outputs.lse.rank = 3;
    for (heed::TensorView* view : {&outputs.output, &outputs.lse}) {
      view->data = static_cast<float*>(view->data) + s * view->stride[0];
      view->shape[0] = count;
    }
    return outputs;
  };
  const auto shared = part([&](auto& result) {
    for (std::int64_t s = 0; s < kSequences; ++s) {
      heed::attention_decode(rows_of(call.q, s, 0, 1), cache, {&prefix, 1}, to(result, s, 1));
    }
  });
  const auto rest = part([&](auto& result) {
    heed::attention_decode(call.q.view(), cache, own, to(result, 0, kSequences));
  });
  const auto dense = [&](std::int64_t begin, std::int64_t end, bool same) {
    return part([&](auto& result) {
      for (std::int64_t s = 0; s < kSequences; ++s) {
        heed::attention_forward(rows_of(call.q, s, 0, 1), rows_of(call.k, same ? 0 : s, begin, end),
                                rows_of(call.v, same ? 0 : s, begin, end), to(result, s, 1));
      }
    });
  };
  const auto merged = [&](Result<float> a, Result<float> b) {
    return part([&](auto& result) {
      const auto of = [&](Result<float>& r) {
        const heed::ForwardOutputs views = to(r, 0, kSequences);
        return heed::AttentionPart{views.output, views.lse};
      };
      const heed::AttentionPart parts[] = {of(a), of(b)};
      const heed::ForwardOutputs all = to(result, 0, kSequences);
      heed::merge(parts, {.output = all.output, .lse = all.lse});
    });
  };
  const Result<float> got = merged(shared, rest),
                      want = merged(dense(0, kPrefix, true), dense(kPrefix, kPrefix + kOwn, false));
  EXPECT_TRUE(same_bits(got.o, want.o));
  EXPECT_TRUE(same_bits(got.lse, want.lse));
}

TEST(decode, of_one_cache_may_run_on_many_threads_at_once) {
  const Call<float> call = plain_call<float>({1, 4, 2, 1, 300, 16, 16}, 1);
  heed::KvCache cache(options_for<float>(call.dims(), 4, 96));
  const auto id = cache.create();
  cache.append(id, call.k.view(), call.v.view());
  Tensor<float> alone({1, 4, 1, 16});
  heed::attention_decode(call.q.view(), cache, {&id, 1}, {.output = alone.out()});
  EXPECT_TRUE(same_bits(alone, run(call).o));
  std::vector<Tensor<float>> outputs(8, Tensor<float>({1, 4, 1, 16}));
  std::vector<std::thread> threads;
  for (Tensor<float>& o : outputs) {
    threads.emplace_back([&cache, &call, &o, id] {
      for (int n = 0; n < 20; ++n) {
        heed::attention_decode(call.q.view(), cache, {&id, 1}, {.output = o.out()});
        EXPECT_EQ(cache.length(id), 300);
        EXPECT_EQ(cache.page_table(id).size(), 4U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor<float>& o : outputs) EXPECT_TRUE(same_bits(o, alone));
}

TEST(decode, takes_no_scratch_for_pages_and_explains_itself) {
  const Dims d{1, 8, 2, 0, 0, 64, 64};
  const auto explained = [&](std::int64_t page_keys, std::int64_t length) {
    heed::KvCache cache(options_for<float>(d, length / page_keys + 1, page_keys));
    const auto id = cache.create();
    const std::vector<float> zeros(static_cast<std::size_t>(length * 2 * 64));
    const auto rows = heed::view(zeros.data(), {1, 2, length, 64});
    cache.append(id, rows, rows);
    return heed::explain(heed::view(static_cast<const float*>(nullptr), {1, 8, 1, 64}), cache,
                         {&id, 1}, {}, {.executor = nullptr, .threads = 1});
  };
  const auto plain = [&](std::int64_t length) {
    const auto rows = heed::view(static_cast<const float*>(nullptr), {1, 2, length, 64});
    return heed::explain(heed::view(static_cast<const float*>(nullptr), {1, 8, 1, 64}), rows, rows,
                         {}, {.executor = nullptr, .threads = 1});
  };
  EXPECT_EQ(explained(96, 20000).scratch_bytes, plain(20000).scratch_bytes);
  EXPECT_EQ(explained(192, 20000).scratch_bytes, plain(20000).scratch_bytes);
  EXPECT_EQ(explained(16, 20000).scratch_bytes, explained(16, 2000).scratch_bytes);
  EXPECT_LE(explained(16, 20000).scratch_bytes,
            plain(20000).scratch_bytes + std::int64_t{96} * 64 * 8);
  EXPECT_EQ(explained(96, 20000).tiles_computed, plain(20000).tiles_computed);
  EXPECT_EQ(explained(96, 20000).tasks, plain(20000).tasks);
  EXPECT_EQ(explained(96, 20000).path, plain(20000).path);
  EXPECT_EQ(explained(16, 20000).path, plain(20000).path + ", pages copied block by block");
}

}  // namespace
}  // namespace heed_test
