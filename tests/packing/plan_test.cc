// Packing says what does not fit before anything is written, explain() tells the truth about it,
// and sequences whose lengths differ a hundredfold keep all threads busy to the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "backward/support.h"
#include "forward/failing_allocation.h"
#include "heed/inspect.h"
#include "heed/kv_cache.h"
#include "packing/packed.h"

namespace heed_test {
namespace {

struct Good {
  std::vector<float> numbers = std::vector<float>(4096, 1.0F), out = std::vector<float>(4096, 7.0F);
  std::vector<std::int64_t> queries{0, 3, 3, 6}, keys{1, 2, 5, 8}, three{1, 2, 3};
  std::int64_t batch = 1;
  heed::AttentionOptions options;
  bool weights = false;

  Good() { pack(4, 4); }
  void pack(std::int64_t n, std::int64_t m) {
    options.packing = {heed::view(queries.data(), {n}), heed::view(keys.data(), {m})};
  }
  [[nodiscard]] heed::ConstTensorView in(std::initializer_list<std::int64_t> shape) const {
    return heed::view(static_cast<const float*>(numbers.data()), shape);
  }
  void forward() {
    heed::ForwardOutputs outputs{.output = heed::view(out.data(), {batch, 2, 6, 4})};
    if (weights) outputs.weights = heed::view(out.data() + 1000, {batch, 2, 6, 8});
    heed::attention_forward(in({batch, 2, 6, 4}), in({batch, 2, 8, 4}), in({batch, 2, 8, 4}),
                            outputs, options);
  }
};

TEST(packing, says_what_does_not_fit_before_it_writes) {
  struct Case {
    const char* message;
    std::function<void(Good&)> change;
  };
  const std::vector<double> wide(4);
  const Case cases[] = {
      {"packing.key_offsets is absent; expected both offsets of packing or none",
       [](Good& g) { g.options.packing.key_offsets = {}; }},
      {"packing.query_offsets is absent; expected both offsets of packing or none",
       [](Good& g) { g.options.packing.query_offsets = {}; }},
      {"packing.query_offsets is float64; expected int32 or int64",
       [&](Good& g) { g.options.packing.query_offsets = heed::view(wide.data(), {4}); }},
      {"packing.query_offsets has shape [2, 2]; expected [S + 1], where each sequence begins and "
       "where the last ends",
       [](Good& g) {
         g.options.packing.query_offsets = heed::view(g.queries.data(), {2, 2});
       }},
      {"packing.key_offsets has shape [0]; expected [S + 1], where each sequence begins and where "
       "the last ends",
       [](Good& g) { g.pack(4, 0); }},
      {"packing.query_offsets[0] is -1; expected 0 or more", [](Good& g) { g.queries[0] = -1; }},
      {"packing.query_offsets[2] is 2, the offset before 3; offsets must not descend",
       [](Good& g) { g.queries[2] = 2; }},
      {"packing.key_offsets[3] is 9; expected at most 8, the number of rows",
       [](Good& g) { g.keys[3] = 9; }},
      {"packing.key_offsets has shape [3], packing.query_offsets [4]; they must be equal",
       [](Good& g) { g.pack(4, 3); }},
      {"packing.key_offsets has shape [1099511627776], packing.query_offsets [4]; they must be "
       "equal",
       [](Good& g) {  // one number in memory; a list for them would end with some megabytes
         g.options.packing.key_offsets.shape[0] = std::int64_t{1} << 40;
         g.options.packing.key_offsets.stride[0] = 0;
         failing = 30;
       }},
      {"packing is given, and the batch size is 2; expected 1: sequences lie end to end in one "
       "batch entry",
       [](Good& g) { g.batch = 2; }},
      {"weights is given together with packing; expected one of the two (weights of a sequence "
       "come from a call on its rows alone)",
       [](Good& g) { g.weights = true; }},
      {"mask.key_lengths[1] is 4; expected 0 .. 3",
       [](Good& g) {
         g.three = {1, 4, 3};
         g.options.mask.key_lengths = heed::view(g.three.data(), {3});
       }},
      {"mask.key_lengths is 2; expected 0 .. 1", [](Good& g) { g.options.mask.key_lengths = 2; }},
      {"mask.query_lengths[1] is 1; expected 0 .. 0",
       [](Good& g) {
         g.options.mask.query_lengths = heed::view(g.three.data(), {3}), g.three[1] = 1;
       }},
      {"mask.query_start has shape [2]; expected [3], one for each batch entry",
       [](Good& g) { g.options.mask.query_start = heed::view(g.three.data(), {2}); }},
      {"output overlaps packing.key_offsets in memory; expected memory of its own",
       [](Good& g) {
         auto* at = reinterpret_cast<std::int64_t*>(g.out.data());
         std::fill_n(at, 4, 0);
         g.options.packing.key_offsets = heed::view(static_cast<const std::int64_t*>(at), {4});
       }},
  };
  for (const Case& c : cases) {
    Good good;
    c.change(good);
    const std::vector<float> before = good.out;
    try {
      good.forward();
      ADD_FAILURE() << "nothing was thrown; expected " << c.message;
    } catch (const heed::Error& error) {
      failing = 0;
      EXPECT_EQ(error.what(), "attention_forward: " + std::string(c.message));
    }
    EXPECT_EQ(good.out, before) << c.message;
  }
  Good good;
  good.forward();
}

TEST(packing, is_refused_where_weights_are_looked_at_again) {
  Good good;
  std::vector<float> lse(12), sums(16, 7.0F);
  try {
    heed::inspect_weights({.q = good.in({1, 2, 6, 4}),
                           .k = good.in({1, 2, 8, 4}),
                           .lse = heed::view(lse.data(), {1, 2, 6})},
                          {.column_sums = heed::view(sums.data(), {1, 2, 8})}, good.options);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const heed::Error& error) {
    EXPECT_STREQ(
        error.what(),
        "inspect_weights: options.packing is given; expected calls on each sequence's rows "
        "alone");
  }
}

// Tasks are counted, however little memory stands behind them.
TEST(packing, of_more_sequences_times_heads_than_can_be_counted_is_refused) {
  const std::vector<std::int64_t> zeros(65);
  const auto offsets = heed::view(zeros.data(), {65});
  const auto tasks = [&](std::int64_t heads) {
    const auto empty = heed::view(static_cast<const float*>(nullptr), {1, heads, 0, 1});
    return heed::explain(empty, empty, empty, {.packing = {offsets, offsets}}).tasks;
  };
  // The largest power of two that passes: 64 sequences times 2^56 are 2^62.
  constexpr std::int64_t kMost = std::int64_t{1} << 56;
  EXPECT_EQ(tasks(kMost), 0);
  const auto refused = [](const auto& call, const char* message) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const heed::Error& error) {
      EXPECT_STREQ(error.what(), message);
    }
  };
  refused(
      [&] { tasks(2 * kMost); },
      "explain: number of sequences is 64, of heads of k 144115188075855872; their product must "
      "fit 63 bits");
  heed::KvCache cache(
      {.kv_heads = kMost, .head_size = 1, .dtype = heed::DType::bf16, .pages = 0, .page_keys = 16});
  std::vector<heed::SequenceId> sequences;
  for (int s = 0; s < 128; ++s) sequences.push_back(cache.create());
  const std::vector<std::int64_t> no_rows(129);
  const heed::AttentionOptions packed{.packing = {heed::view(no_rows.data(), {129}), {}}};
  const auto q = heed::view(static_cast<const void*>(nullptr), heed::DType::bf16, {1, kMost, 0, 1});
  refused([&] { static_cast<void>(heed::explain(q, cache, sequences, packed)); },
          "explain: number of sequences is 128, of heads of the cache 72057594037927936; their "
          "product must fit 63 bits");
}

// What explain counts is what calls on each sequence count together.
TEST(packing, is_explained_as_its_sequences_are) {
  const std::vector<std::int64_t> q_offsets{2, 302, 302, 312, 700},
      k_offsets{0, 300, 350, 1400, 2000};
  const auto view = [](std::int64_t heads, std::int64_t rows) {  // data may be null
    return heed::view(static_cast<const void*>(nullptr), heed::DType::f32, {1, heads, rows, 64});
  };
  heed::AttentionOptions options{
      .mask = {.causal = true},
      .packing = {heed::view(q_offsets.data(), {5}), heed::view(k_offsets.data(), {5})}};
  const auto all = heed::explain(view(4, 800), view(2, 2000), view(2, 2000), options,
                                 {.executor = nullptr, .threads = 1});
  std::int64_t computed = 0, skipped = 0, tasks = 0;
  for (std::size_t s = 0; s < 4; ++s) {
    const std::int64_t queries = q_offsets[s + 1] - q_offsets[s],
                       keys = k_offsets[s + 1] - k_offsets[s];
    const auto one = heed::explain(view(4, queries), view(2, keys), view(2, keys),
                                   {.mask = {.causal = true}}, {.executor = nullptr, .threads = 1});
    computed += one.tiles_computed;
    skipped += one.tiles_skipped;
    tasks += one.tasks;
  }
  EXPECT_EQ(all.tiles_computed, computed);
  EXPECT_EQ(all.tiles_skipped, skipped);
  EXPECT_EQ(all.tasks, tasks);
  EXPECT_GT(skipped, 0);
}

/// The work of each task of each run, in pairs of query rows and keys whose scores were computed: a
/// score_mod sees the tiles, of which those that a mask hides altogether are none.
class Watching final : public heed::Executor {
 public:
  [[nodiscard]] int workers() const override { return 8; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    runs.emplace_back();
    for (std::int64_t n = 0; n < tasks; ++n) {
      pairs_ = 0;
      task(context, n, 0);
      runs.back().push_back(pairs_);
    }
  }
  [[nodiscard]] heed::ScoreMod counting() const {
    return {.f32 =
                [](const heed::ScoreTile& tile, const void* context) {
                  static_cast<const Watching*>(context)->pairs_ += tile.queries * tile.keys;
                },
            .context = this,
            .derivative_f32 =
                [](const heed::ScoreTile& tile, const void*) {
                  for (int i = 0; i < tile.queries; ++i)
                    for (int j = 0; j < tile.keys; ++j)
                      tile.scores[i * tile.query_stride + j * tile.key_stride] = 1;
                }};
  }
  std::vector<std::vector<double>> runs;

 private:
  mutable double pairs_ = 0;
};

using Runs = std::vector<std::vector<double>>;

/// The runs of a forward or a backward pass.
Runs runs_of(const Lengths& lengths, bool causal, bool backward) {
  Random random(3);
  const Packed<float> p = packed<float>(random, lengths, {1, 1, 1, 0, 0, 64, 4}, 0);
  const Dims d = p.call.dims();
  Tensor<float> o({1, 1, d.queries, 4}), lse({1, 1, d.queries, 1});
  heed::TensorView rows = lse.out();
  --rows.rank;
  Watching watching;
  const heed::AttentionOptions options{
      .score_mod = watching.counting(), .mask = {.causal = causal}, .packing = p.packing()};
  heed::attention_forward(p.call.q.view(), p.call.k.view(), p.call.v.view(),
                          {.output = o.out(), .lse = rows}, options, {.executor = &watching});
  if (!backward) return watching.runs;
  watching.runs.clear();
  Tensor<float> dq(p.call.q.shape), dk(p.call.k.shape), dv(p.call.v.shape);
  heed::attention_backward({.q = p.call.q.view(),
                            .k = p.call.k.view(),
                            .v = p.call.v.view(),
                            .output = o.view(),
                            .lse = rows,
                            .d_output = o.view()},
                           {.dq = dq.out(), .dk = dk.out(), .dv = dv.out()}, options,
                           {.executor = &watching});
  return watching.runs;
}

/// When the last of the workers ends, if each takes the next task when it is free.
double end_of(const std::vector<double>& costs, std::size_t workers) {
  std::vector<double> busy(workers);
  for (const double cost : costs) *std::min_element(busy.begin(), busy.end()) += cost;
  return *std::max_element(busy.begin(), busy.end());
}

/// One run begins when the one before has ended.
double end_of(const Runs& runs, std::size_t workers) {
  double end = 0;
  for (const auto& costs : runs) end += end_of(costs, workers);
  return end;
}

double sum_of(const Runs& runs) {
  double sum = 0;
  for (const auto& costs : runs) sum = std::accumulate(costs.begin(), costs.end(), sum);
  return sum;
}

/// Two sequences of 3000 rows behind sixty of 30.
Lengths uneven() {
  Lengths lengths{std::vector<std::int64_t>(60, 30), {}};
  lengths.queries.insert(lengths.queries.end(), {3000, 3000});
  lengths.keys = lengths.queries;
  return lengths;
}

/// No worker ends long after the mean, or after the largest task, which is one worker's.
void expect_busy(const Runs& runs, double largest_share) {
  double largest = 0;
  for (const auto& costs : runs)
    for (const double cost : costs) largest = std::max(largest, cost);
  EXPECT_LE(largest, largest_share * sum_of(runs));
  for (const std::size_t workers : {2U, 4U, 8U}) {
    const double mean = sum_of(runs) / static_cast<double>(workers);
    EXPECT_LT(end_of(runs, workers), 1.1 * std::max(mean, largest)) << workers;
  }
}

TEST(packing, keeps_all_workers_busy_when_lengths_differ_a_hundredfold) {
  const Runs runs = runs_of(uneven(), false, false);
  EXPECT_EQ(sum_of(runs), 60.0 * 900 + 2 * 9e6);
  expect_busy(runs, 0.022);
}

// Half of the work is hidden, and rows differ by what they see.
TEST(packing, keeps_all_workers_busy_under_a_causal_mask) {
  const Runs runs = runs_of(uneven(), true, false);
  EXPECT_LT(sum_of(runs), 0.6 * 2 * 9e6);
  expect_busy(runs, 0.041);
}

// A task is a chunk of 768 keys, with all rows that see it: an eighth of two times 3000 keys and,
// under a causal mask, more of the work for the first chunk.
TEST(packing, keeps_all_workers_busy_in_the_backward_pass) {
  const Runs runs = runs_of(uneven(), false, true);
  EXPECT_EQ(sum_of(runs), 60.0 * 900 + 2 * 9e6);
  expect_busy(runs, 0.13);
  expect_busy(runs_of(uneven(), true, true), 0.23);
}

// One row each, and one of them with sixty times the keys: its splits are tasks, a few each.
TEST(packing, keeps_all_workers_busy_when_one_row_has_most_of_the_keys) {
  Lengths lengths{std::vector<std::int64_t>(61, 1), std::vector<std::int64_t>(60, 300)};
  lengths.keys.push_back(20000);
  const Runs runs = runs_of(lengths, false, false);
  EXPECT_EQ(sum_of(runs), 60.0 * 300 + 20000);
  expect_busy(runs, 0.085);
}

// A tile of rows within a split of keys, which nobody can cut: the longest begins first, and so
// ends with the others.
TEST(packing, begins_with_the_longest_sequence) {
  Lengths lengths{std::vector<std::int64_t>(60, 1), std::vector<std::int64_t>(60, 700)};
  lengths.queries.push_back(60);
  lengths.keys.push_back(700);
  const Runs runs = runs_of(lengths, false, false);
  EXPECT_EQ(sum_of(runs), 120.0 * 700);
  EXPECT_EQ(end_of(runs, 2), 60.0 * 700);
}

}  // namespace
}  // namespace heed_test
