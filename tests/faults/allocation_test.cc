// Memory that cannot be had, in what is built around attention: merging, caches, packed sequences,
// looking at weights, modules; and what merging and decoding ask for at all.
// Method: this program's operator new and aligned_alloc fail at the n-th call, for every n until
// the call succeeds. Required: heed::Error of kind memory, and everything as it was.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "forward/failing_allocation.h"
#include "forward/support.h"
#include "heed/backward.h"
#include "heed/inspect.h"
#include "heed/jvp.h"
#include "heed/kv_cache.h"
#include "heed/merge.h"
#include "heed/modules.h"

namespace heed_test {
namespace {

using Numbers = std::vector<float>;

template <typename Act>
void fail_each(const char* name, const Act& act, const std::function<bool()>& untouched) {
  int failures = 0;
  bool succeeded = false;
  for (long n = 1; n < 400 && !succeeded; ++n) {
    std::string message;
    heed::ErrorKind kind = heed::ErrorKind::memory;
    failing = n;
    try {
      act();
      message = "";
    } catch (const heed::Error& error) {
      failing = 0;
      kind = error.kind();
      message = error.what();
    } catch (const std::exception& error) {
      failing = 0;
      message = error.what();
      ADD_FAILURE() << name << ", allocation " << n << ": " << message
                    << ", which is no heed::Error";
    }
    const bool reached = failing.exchange(0) <= 0;
    if (message.empty()) {
      succeeded = !reached;  // else one that could be done without
      continue;
    }
    ++failures;
    EXPECT_EQ(kind, heed::ErrorKind::memory) << name << ": " << message;
    const bool says_how_much = message.find(" bytes") != std::string::npos;
    const bool little = message.ends_with(": no memory for lists of sequences and parts");
    EXPECT_TRUE(says_how_much || little) << name << ": " << message;
    EXPECT_TRUE(untouched()) << name << ": written in spite of: " << message;
  }
  EXPECT_TRUE(succeeded) << name;
  EXPECT_GT(failures, 0) << name << " allocates nothing: take it off this list";
}

/// On a thread of its own, since scratch that calls before were given stays with their thread.
template <typename Act>
void every_allocation_fails_once(const char* name, const Act& act,
                                 const std::function<bool()>& untouched) {
  std::thread([&] { fail_each(name, act, untouched); }).join();
}

bool all_are(const Numbers& numbers, float x) {
  return std::ranges::all_of(numbers, [x](float y) { return y == x; });
}

heed::Execution fresh() { return {.executor = nullptr, .threads = 1}; }

TEST(allocation_faults, of_linear_leave_result_and_gradients) {
  std::int64_t rows = 40;
  const Numbers x(std::size_t{400} * 300, 0.5F), dy(std::size_t{400} * 200, 0.25F);
  Numbers y(std::size_t{400} * 200, 7), dx(std::size_t{400} * 300, 7);
  every_allocation_fails_once(
      "a Linear", [] { const heed::Linear linear({.inputs = 300, .outputs = 200, .bias = true}); },
      [] { return true; });
  heed::Linear linear({.inputs = 300, .outputs = 200, .bias = true});
  every_allocation_fails_once(
      "forward",
      [&] {
        heed::detail::ViewOf<float> to = heed::view(y.data(), {++rows, 200});
        heed::Linear wider({.inputs = 300, .outputs = 200});
        linear.forward(heed::view(x.data(), {rows, 300}), to, fresh());
      },
      [&] { return all_are(y, 7); });
  const auto gradients = [&] {
    Numbers all(linear.weight_gradient().begin(), linear.weight_gradient().end());
    all.insert(all.end(), linear.bias_gradient().begin(), linear.bias_gradient().end());
    return all;
  };
  every_allocation_fails_once(
      "backward",
      [&] {
        ++rows;
        linear.backward(heed::view(x.data(), {rows, 300}), heed::view(dy.data(), {rows, 200}),
                        heed::view(dx.data(), {rows, 300}), fresh());
      },
      [&] { return all_are(dx, 7) && all_are(gradients(), 0); });
}

TEST(allocation_faults, of_multi_head_attention_leave_result_and_gradients) {
  heed::MultiHeadAttention attention({.d_model = 64, .heads = 4});
  const Numbers x(std::size_t{2} * 300 * 64, 0.5F);
  Numbers y(std::size_t{2} * 300 * 64, 7), dx(std::size_t{2} * 300 * 64, 7);
  std::int64_t rows = 20;
  heed::SavedAttention saved;
  const auto input = [&] { return heed::view(x.data(), {2, rows, 64}); };
  every_allocation_fails_once(
      "forward",
      [&] {
        ++rows;
        heed::SavedAttention anew;
        attention.forward({.x = input()},
                          {.output = heed::view(y.data(), {2, rows, 64}), .saved = &anew}, {},
                          fresh());
        saved = std::move(anew);
      },
      [&] { return all_are(y, 7); });
  const auto gradients = [&] {
    Numbers all;
    for (const heed::Parameter& p : attention.parameters())
      all.insert(all.end(), p.gradient.begin(), p.gradient.end());
    return all;
  };
  every_allocation_fails_once(
      "backward",
      [&] {
        attention.backward({.x = input()}, saved, heed::view(x.data(), {2, rows, 64}),
                           {.dx = heed::view(dx.data(), {2, rows, 64})}, {}, fresh());
      },
      [] { return true; });  // some of the gradients may be there: heed/modules.h says so
  EXPECT_FALSE(all_are(gradients(), 0));
}

TEST(allocation_faults, of_looking_at_weights_leave_the_results) {
  const auto s = plain_call<float>({1, 2, 1, 200, 900, 16, 16}, 3);
  const auto r = run(s);
  heed::ConstTensorView lse = r.lse.view();
  --lse.rank;
  Numbers sums(std::size_t{2} * 900, 7), map(std::size_t{2} * 8 * 8, 7),
      top(std::size_t{2} * 200 * 3, 7), row(std::size_t{2} * 900, 7);
  const std::int64_t chosen = 100;
  every_allocation_fails_once(
      "inspect_weights",
      [&] {
        heed::inspect_weights({s.q.view(), s.k.view(), lse},
                              {.rows = heed::view(&chosen, {1}),
                               .row_weights = heed::view(row.data(), {1, 2, 1, 900}),
                               .top_weights = heed::view(top.data(), {1, 2, 200, 3}),
                               .column_sums = heed::view(sums.data(), {1, 2, 900}),
                               .mean_map = heed::view(map.data(), {1, 2, 8, 8})},
                              {}, fresh());
      },
      [&] { return all_are(sums, 7) && all_are(map, 7) && all_are(top, 7) && all_are(row, 7); });
  const auto numbers = heed::view(s.q.memory.data(), {1, 2, 200});
  every_allocation_fails_once(
      "summarize", [&] { (void)heed::summarize(numbers); }, [] { return true; });
  every_allocation_fails_once(
      "saturation", [&] { (void)heed::saturation(numbers); }, [] { return true; });
}

heed::ConstTensorView rows_of(const Tensor<float>& t) {
  heed::ConstTensorView view = t.view();
  --view.rank;
  return view;
}

/// So many parts of the same rows, and where they are merged.
struct Parts {
  std::vector<Result<float>> results;
  std::vector<heed::AttentionPart> parts;
  Tensor<float> o;

  Parts(int count, std::int64_t queries, std::int64_t size) {
    for (int n = 0; n < count; ++n)
      results.push_back(run(plain_call<float>({1, 2, 1, queries, 5, 4, size}, 81)));
    for (const Result<float>& r : results) parts.push_back({r.o.view(), rows_of(r.lse)});
    o = Tensor<float>(results[0].o.shape);
    o.memory.assign(o.memory.size(), 7);
  }
};

TEST(allocation_faults, of_merging_leave_the_result) {
  Parts p(5, 100, 16);
  every_allocation_fails_once(
      "merge", [&] { heed::merge(p.parts, {.output = p.o.out()}, fresh()); },
      [&] { return all_are(p.o.memory, 7); });
}

/// Two sequences of 70 and 40 keys, of which the second one shares the pages of the first.
struct Sequences {
  Call<float> s = plain_call<float>({2, 4, 2, 3, 40, 16, 16}, 82);
  heed::KvCache cache{{.kv_heads = 2, .head_size = 16, .pages = 12, .page_keys = 32}};
  std::vector<heed::SequenceId> ids;

  Sequences() {
    heed::ConstTensorView k = s.k.view(), v = s.v.view();
    k.shape[0] = v.shape[0] = 1;
    ids.push_back(cache.create());
    cache.append(ids[0], k, v);
    ids.push_back(cache.fork(ids[0]));
    k.shape[2] = v.shape[2] = 30;
    cache.append(ids[0], k, v);
  }
};

TEST(allocation_faults, of_putting_keys_into_a_cache_leave_all_its_sequences) {
  std::optional<Sequences> there;  // anew each time: what a failed call reserved would stay
  const std::int64_t free = Sequences().cache.free_pages();
  every_allocation_fails_once(
      "append to two sequences",
      [&] {
        const long n = failing.exchange(0);
        there.emplace();
        failing = n;
        there->cache.append(there->ids, there->s.k.view(), there->s.v.view());
      },
      [&] {
        return there->cache.length(there->ids[0]) == 70 &&
               there->cache.length(there->ids[1]) == 40 && there->cache.free_pages() == free &&
               there->cache.page_table(there->ids[0])[0] ==
                   there->cache.page_table(there->ids[1])[0];
      });
}

TEST(allocation_faults, of_making_a_cache_make_none) {
  every_allocation_fails_once(
      "KvCache",
      [] { heed::KvCache cache({.kv_heads = 2, .head_size = 16, .pages = 12, .page_keys = 32}); },
      [] { return true; });
  std::string message;
  for (long n = 1; n < 20 && message.empty(); ++n) {
    failing = n;
    try {
      heed::KvCache cache({.kv_heads = 2, .head_size = 16, .pages = 12, .page_keys = 32});
    } catch (const heed::Error& error) {
      if (std::string(error.what()).find("pages") != std::string::npos) message = error.what();
    }
    failing = 0;
  }
  EXPECT_EQ(message, "KvCache: no memory for pages of keys: 49152 bytes");
}

TEST(allocation_faults, of_decoding_leave_the_outputs) {
  Sequences there;
  Numbers o(std::size_t{2} * 4 * 3 * 16, 7), lse(std::size_t{2} * 4 * 3, 7);
  every_allocation_fails_once(
      "attention_decode",
      [&] {
        heed::attention_decode(there.s.q.view(), there.cache, there.ids,
                               {.output = heed::view(o.data(), {2, 4, 3, 16}),
                                .lse = heed::view(lse.data(), {2, 4, 3})},
                               {}, fresh());
      },
      [&] { return all_are(o, 7) && all_are(lse, 7); });
}

TEST(allocation_faults, of_packed_sequences_leave_outputs_gradients_and_derivatives) {
  const auto s = plain_call<float>({1, 2, 1, 90, 140, 16, 16}, 83);
  const std::int64_t queries[] = {0, 20, 90}, keys[] = {0, 100, 140};
  heed::AttentionOptions packed;
  packed.packing.query_offsets = heed::view(&queries[0], {3});
  packed.packing.key_offsets = heed::view(&keys[0], {3});
  Numbers o(std::size_t{90} * 2 * 16, 7), to(std::size_t{90} * 2 * 16, 7),
      dk(std::size_t{140} * 16, 7);
  Tensor<float> lse({1, 2, 90, 1});
  heed::TensorView lse_out = lse.out();
  --lse_out.rank;
  const heed::TensorView output = heed::view(o.data(), {1, 2, 90, 16});
  const auto forward = [&] {
    heed::attention_forward(s.q.view(), s.k.view(), s.v.view(), {.output = output, .lse = lse_out},
                            packed, fresh());
  };
  every_allocation_fails_once("attention_forward", forward, [&] { return all_are(o, 7); });
  forward();
  const heed::TensorView moved = heed::view(to.data(), {1, 2, 90, 16});
  // A sort does without a buffer that it cannot have: a call that succeeds nevertheless has
  // written.
  every_allocation_fails_once(
      "attention_backward",
      [&] {
        std::fill(to.begin(), to.end(), 7.0F);
        std::fill(dk.begin(), dk.end(), 7.0F);
        heed::attention_backward({s.q.view(), s.k.view(), s.v.view(), output, lse_out, s.q.view()},
                                 {.dq = moved, .dk = heed::view(dk.data(), {1, 1, 140, 16})},
                                 packed, fresh());
      },
      [&] { return all_are(to, 7) && all_are(dk, 7); });
  every_allocation_fails_once(
      "attention_jvp",
      [&] {
        std::fill(to.begin(), to.end(), 7.0F);
        heed::attention_jvp({s.q.view(), s.k.view(), s.v.view(), output, lse_out},
                            {.q = s.q.view()}, {.output = moved}, packed, fresh());
      },
      [&] { return all_are(to, 7); });
}

/// Allocations of the third of equal calls: scratch is kept by then. The largest is in `largest`.
template <typename Act>
long allocations_once_known(const Act& act) {
  act();
  act();
  const long before = allocations;
  largest = 0;
  act();
  return allocations - before;
}

// By design merging lists its parts and their names in each call, and decoding its sequences, their
// lengths and tables: small memory, and as many allocations for any number of rows, keys and pages.
// The kernels ask for none, or the number would grow with the blocks that they compute.
TEST(allocations_once_a_size_is_known, of_merging_are_lists_of_its_parts) {
  const auto count = [](int parts, std::int64_t queries, std::int64_t size) {
    Parts p(parts, queries, size);
    return allocations_once_known(
        [&] { heed::merge(p.parts, {.output = p.o.out()}, {.executor = nullptr, .threads = 2}); });
  };
  const long few = count(4, 3, 16);
  EXPECT_EQ(count(4, 5000, 64), few);
  EXPECT_LE(largest, std::size_t{4} << 10);
  EXPECT_LE(few, 40);
}

TEST(allocations_once_a_size_is_known, of_decoding_are_lists_of_its_sequences) {
  const auto count = [](std::int64_t keys, std::int64_t queries, std::int64_t page_keys) {
    const auto s = plain_call<float>({3, 4, 2, queries, keys, 64, 64}, 84);
    heed::KvCache cache({.kv_heads = 2,
                         .head_size = 64,
                         .pages = 3 * (keys / page_keys + 1),
                         .page_keys = page_keys});
    std::vector<heed::SequenceId> ids;
    for (int n = 0; n < 3; ++n) ids.push_back(cache.create());
    cache.append(ids, s.k.view(), s.v.view());
    Tensor<float> o({3, 4, queries, 64});
    return allocations_once_known([&] {
      heed::attention_decode(s.q.view(), cache, ids, {.output = o.out()}, {},
                             {.executor = nullptr, .threads = 2});
    });
  };
  const long few = count(10, 1, 192);
  for (const std::int64_t page_keys : {16, 96, 192}) {
    EXPECT_EQ(count(2000, 1, page_keys), few) << page_keys;
    EXPECT_LE(largest, std::size_t{1} << 10);
    EXPECT_EQ(count(2000, 70, page_keys), few) << page_keys;
    EXPECT_LE(largest, std::size_t{1} << 10);
  }
  EXPECT_LE(few, 20);
}

}  // namespace
}  // namespace heed_test
