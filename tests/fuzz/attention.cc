// F6: views and options of attention_forward and attention_backward, each tensor between unreadable
// pages. A sound call agrees with the oracle within its bounds. Of a call with one thing changed
// (a pointer, rank, size, stride, type or number) it is either refused, outputs as they were, or it
// has the same bits on the scalar path as on the best one.
#include <limits>

#include "changed.h"

namespace {

using heed_fuzz::Bytes;
using heed_fuzz::copy_back;
using heed_fuzz::expect;
using heed_fuzz::instruction_sets;
using heed_fuzz::Placed;
using heed_fuzz::rows;
using heed_fuzz::run_changed;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

void change(heed::AttentionOptions& options, heed::Execution& execution, Bytes& bytes) {
  const double number =
      bytes.pick({0.0, -1.0, 1.0, 1e300, 1e-300, std::numeric_limits<double>::infinity(),
                  std::numeric_limits<double>::quiet_NaN()});
  const std::int64_t count = bytes.pick<std::int64_t>({-1, 0, 1, 7, kMost, -kMost - 1});
  switch (bytes.below(9)) {
    case 0:
      options.scale = number;
      break;
    case 1:
      options.softcap = number;
      break;
    case 2:
      options.dropout = {.p = number, .seed = 1};
      break;
    case 3:
      options.dropout = {.p = 0.5, .seed = {}};
      break;
    case 4:
      options.mask.window.left = count;
      break;
    case 5:
      options.mask.window.right = count;
      break;
    case 6:
      options.mask.query_start = count;
      break;
    case 7:
      (bytes.chance(128) ? options.mask.key_lengths : options.mask.query_lengths) = count;
      break;
    default:
      execution.threads = static_cast<int>(bytes.pick<std::int64_t>({-1, 2, 4096, 4097, 1 << 30}));
  }
}

/// A call's arguments and results, as bare views.
struct Arguments {
  heed::ConstTensorView q, k, v;
  std::vector<heed::ConstTensorView> outputs;  // what is written, in the order of its struct
  heed::ConstTensorView forward_output{}, lse{}, d_output{};
  heed::AttentionOptions options;
  heed::Execution execution{};
  bool backward = false;

  /// Every view that is given.
  std::vector<heed::ConstTensorView*> views() {
    std::vector<heed::ConstTensorView*> all{&q, &k, &v, &forward_output, &lse, &d_output};
    for (auto& view : outputs) all.push_back(&view);
    auto& m = options.mask;
    for (auto* view :
         {&options.scale.each, &options.alibi, &options.bias, &options.sinks, &m.query_start.each,
          &m.key_lengths.each, &m.query_lengths.each, &m.keep, &m.drop})
      all.push_back(view);
    std::erase_if(all, [](const auto* view) { return !view->present(); });
    return all;
  }

  void change(Bytes& bytes) { ::change(options, execution, bytes); }

  void call() {
    std::vector<heed::TensorView> to;
    for (const auto& view : outputs)
      to.push_back({const_cast<void*>(view.data), view.dtype, view.rank, view.shape, view.stride});
    if (backward) {
      heed::attention_backward({q, k, v, forward_output, lse, d_output},
                               {to[0], to[1], to[2], to[3], to[4], to[5], to[6], to[7]}, options,
                               execution);
    } else {
      heed::attention_forward(q, k, v, {to[0], to[1], to[2]}, options, execution);
    }
  }
};

template <typename T>
heed::TensorView numbers(heed_test::Tensor<T>& t) {
  return t.present() ? heed::view(t.memory.data(), {t.count()}) : heed::TensorView{};
}

template <typename T>
void attempt(Bytes& bytes) {
  const bool backward = bytes.chance(96), changed = bytes.chance(160), at_end = bytes.chance(128);
  const auto& isas = instruction_sets();
  const auto isa =
      isas[static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(isas.size())))];
  const heed_test::Case c = heed_fuzz::decode_case(bytes);
  const heed_test::Call<T> s = heed_test::make<T>(c);
  const heed_test::Dims d = s.dims();
  const heed_test::Told<T> told(s);
  heed::cap_instruction_set(isa);

  heed_test::Result<T> r;
  r.o = heed_test::Tensor<T>({d.batch, d.heads, d.queries, d.value_size}, c.output);
  r.lse = heed_test::Tensor<T>({d.batch, d.heads, d.queries, 1}, c.output);
  if (!backward) r.weights = heed_test::Tensor<T>({d.batch, d.heads, d.queries, d.keys}, c.output);
  Arguments a{.q = s.q.view(s.rank),
              .k = s.k.view(s.rank),
              .v = s.v.view(s.rank),
              .outputs = {r.o.out(s.rank), rows(r.lse, s.rank),
                          backward ? heed::TensorView{} : r.weights.out(s.rank)},
              .options = told.options};
  if (!backward && changed) return run_changed<T>(a, bytes, at_end);

  {
    Placed placed(at_end);
    Arguments plain = a;
    for (auto* view : plain.views()) placed.copy(*view);
    plain.call();
    copy_back(plain.outputs[0], r.o);
    copy_back(plain.outputs[1], r.lse);
    copy_back(plain.outputs[2], r.weights);
  }
  if (!backward) {
    const auto answer = oracle::attention(heed_test::problem_of(s), true);
    const auto good = heed_test::within_bounds(r, answer);
    expect(good, std::string(good.message()) + ": " + heed_test::describe(s));
    return;
  }
  const auto g = heed_test::draw_d_output(s, c.seed ^ 77, c.output);
  if (changed) {
    heed_test::Gradients<T> to;
    to.dq = heed_test::Tensor<T>(s.q.shape, c.output);
    to.dk = heed_test::Tensor<T>(s.k.shape, c.output);
    to.dv = heed_test::Tensor<T>(s.v.shape, c.output);
    to.dscale = heed_test::Tensor<T>({1, 1, 1, d.heads});
    if (!s.alibi.empty()) to.dalibi = to.dscale;
    if (!s.sinks.empty()) to.dsinks = to.dscale;
    to.ds_norms = heed_test::Tensor<T>({d.batch, d.heads, d.queries, 1}, c.output);
    a.backward = true;
    a.forward_output = r.o.view(s.rank);
    a.lse = rows(r.lse, s.rank);
    a.d_output = g.view(s.rank);
    a.outputs = {to.dq.out(s.rank),  to.dk.out(s.rank),        to.dv.out(s.rank),
                 numbers(to.dscale), numbers(to.dalibi),       heed::TensorView{},
                 numbers(to.dsinks), rows(to.ds_norms, s.rank)};
    return run_changed<T>(a, bytes, at_end);
  }
  if (!heed_fuzz::gradients_are_bounded(c)) return;
  const auto gradients = heed_test::run_backward(s, r, g, {.layout = c.output});
  const auto good = heed_test::within_bounds(s, gradients, heed_test::true_gradients(s, g));
  expect(good, std::string(good.message()) + ": " + heed_test::describe(s));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);  // a failed EXPECT of the tests' support is a finding
  Bytes bytes(data, size);
  bytes.chance(64) ? attempt<double>(bytes) : attempt<float>(bytes);
  return 0;
}
