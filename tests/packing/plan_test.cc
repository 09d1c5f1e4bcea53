// Packing says what does not fit before anything is written, explain() tells the truth about it, and
// sequences whose lengths differ a hundredfold keep all threads busy to the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "backward/support.h"
#include "heed/inspect.h"
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

/// Runs tasks in their order, and measures the work of each by the rows that it writes.
class Watching final : public heed::Executor {
 public:
  explicit Watching(std::function<double()> work) : work_(std::move(work)) {}
  [[nodiscard]] int workers() const override { return 8; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t n = 0; n < tasks; ++n) {
      task(context, n, 0);
      costs.push_back(work_());
    }
  }
  std::vector<double> costs;

 private:
  std::function<double()> work_;
};

/// The work of each task, in pairs of query rows and keys.
std::vector<double> costs_of(const Lengths& lengths) {
  Random random(3);
  const Packed<float> p = packed<float>(random, lengths, {1, 1, 1, 0, 0, 64, 4}, 0);
  Tensor<float> o({1, 1, p.call.dims().queries, 4});
  std::vector<bool> seen(static_cast<std::size_t>(o.shape[2]));
  const auto written = [&] {
    double pairs = 0;
    std::size_t s = 0;
    for (std::int64_t i = 0; i < o.shape[2]; ++i) {
      while (i >= p.query_offsets[s + 1]) ++s;
      const auto at = static_cast<std::size_t>(i);
      if (seen[at] || std::isnan(o.at(0, 0, i, 0))) continue;
      seen[at] = true;
      pairs += static_cast<double>(lengths.keys[s]);
    }
    return pairs;
  };
  Watching watching(written);
  heed::AttentionOptions options{.packing = p.packing()};
  heed::attention_forward(p.call.q.view(), p.call.k.view(), p.call.v.view(), {.output = o.out()},
                          options, {.executor = &watching});
  return watching.costs;
}

/// When the last of the workers ends, if each takes the next task when it is free.
double end_of(const std::vector<double>& costs, std::size_t workers) {
  std::vector<double> busy(workers);
  for (const double cost : costs) *std::min_element(busy.begin(), busy.end()) += cost;
  return *std::max_element(busy.begin(), busy.end());
}

double sum_of(const std::vector<double>& costs) {
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

// Two sequences of 3000 rows behind sixty of 30: no worker ends long after the mean.
TEST(packing, keeps_all_workers_busy_when_lengths_differ_a_hundredfold) {
  Lengths lengths{std::vector<std::int64_t>(60, 30), {}};
  lengths.queries.insert(lengths.queries.end(), {3000, 3000});
  lengths.keys = lengths.queries;
  const std::vector<double> costs = costs_of(lengths);
  EXPECT_EQ(sum_of(costs), 60.0 * 900 + 2 * 9e6);
  for (const std::size_t workers : {2U, 4U, 8U}) {
    EXPECT_LT(end_of(costs, workers), 1.1 * sum_of(costs) / static_cast<double>(workers))
        << workers;
  }
}

// One row each, which nobody can cut: the longest begins first, and so ends with the others.
TEST(packing, begins_with_the_longest_sequence) {
  Lengths lengths{std::vector<std::int64_t>(61, 1), std::vector<std::int64_t>(60, 300)};
  lengths.keys.push_back(20000);
  const std::vector<double> costs = costs_of(lengths);
  EXPECT_EQ(sum_of(costs), 60.0 * 300 + 20000);
  EXPECT_EQ(end_of(costs, 2), 20000);
}

}  // namespace
}  // namespace heed_test
