// F6: views and options of attention_forward and attention_backward, each tensor between unreadable
// pages. A sound call agrees with the oracle within its bounds. Of a call with one thing changed
// (a pointer, rank, size, stride, type or number) it is either refused, outputs as they were, or it
// has the same bits on the scalar path as on the best one.
#include <cmath>
#include <cstdlib>
#include <limits>

#include "forward/guarded.h"
#include "problem.h"

namespace {

using heed_fuzz::Bytes;
using heed_fuzz::expect;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// The elements that a view reaches, before and from its first one on; false if they are too many.
bool reach(const heed::ConstTensorView& view, std::int64_t& below, std::int64_t& above) {
  below = above = 0;
  if (view.rank < 0 || view.rank > heed::kMaxRank) return true;
  for (int a = 0; a < view.rank; ++a) {
    const auto axis = static_cast<std::size_t>(a);
    if (view.shape[axis] <= 0) return true;
  }
  for (int a = 0; a < view.rank; ++a) {
    const auto axis = static_cast<std::size_t>(a);
    const auto last = static_cast<__int128>(view.shape[axis] - 1) * view.stride[axis];
    if (last > 1 << 16 || last < -(1 << 16)) return false;
    (last < 0 ? below : above) += static_cast<std::int64_t>(last);
  }
  return true;
}

/// The views of a call, moved to guarded memory.
class Placed {
 public:
  explicit Placed(bool at_end) : at_end_(at_end) {}

  /// A copy of what the view shows; `view` then shows the copy.
  void copy(heed::ConstTensorView& view) {
    std::int64_t below = 0, above = 0;
    if (!view.present() || view.data == nullptr || !reach(view, below, above)) return;
    const auto size = static_cast<std::int64_t>(heed::size_of(view.dtype));
    const bool empty = std::ranges::any_of(view.shape.begin(), view.shape.begin() + view.rank,
                                           [](auto n) { return n == 0; });
    const auto bytes = empty ? 0 : static_cast<std::size_t>((above - below + 1) * size);
    memory_.emplace_back(bytes, at_end_);
    if (bytes > 0)
      std::memcpy(memory_.back().data(), static_cast<const std::byte*>(view.data) + below * size,
                  bytes);
    view.data = memory_.back().data() - below * size;
  }
  /// Memory for what the view shows, filled; for a view that does not show what it did. Where that is
  /// too much, none at all that may be touched.
  bool fill(heed::ConstTensorView& view, int with) {
    std::int64_t below = 0, above = 0;
    if (!reach(view, below, above)) {
      memory_.emplace_back(0, true);
      view.data = memory_.back().data() + 4096;
      return false;
    }
    const auto size = static_cast<std::int64_t>(heed::size_of(view.dtype));
    const auto bytes = static_cast<std::size_t>((above - below + 1) * size);
    memory_.emplace_back(bytes, at_end_);
    std::memset(memory_.back().data(), with, bytes);
    if (view.data != nullptr) view.data = memory_.back().data() - below * size;
    return true;
  }

 private:
  std::vector<heed_test::Guarded> memory_;
  bool at_end_;
};

/// What is changed of a view. Returns false if it stays as it was.
bool change(heed::ConstTensorView& view, Bytes& bytes) {
  const heed::ConstTensorView before = view;
  const auto axis = static_cast<std::size_t>(bytes.below(heed::kMaxRank));
  const std::int64_t size = view.shape[axis], stride = view.stride[axis];
  switch (bytes.below(5)) {
    case 0:
      view.data = nullptr;
      break;
    case 1:
      view.rank = static_cast<int>(bytes.pick<std::int64_t>({0, 1, 2, 3, 4, 5, -1, 1 << 30}));
      break;
    case 2:
      view.shape[axis] = bytes.pick<std::int64_t>({0, 1, size - 1, size + 1, 2 * size, -1, -size,
                                                   kMost, -kMost - 1, std::int64_t{1} << 62});
      break;
    case 3:
      view.stride[axis] =
          bytes.pick<std::int64_t>({0, 1, 2, -1, -stride, stride + 1, 2 * stride, size, kMost,
                                    -kMost - 1, std::int64_t{1} << 61, std::int64_t{1} << 32});
      break;
    default:
      view.dtype = static_cast<heed::DType>(bytes.below(13));
  }
  return view.data != before.data || view.rank != before.rank || view.shape != before.shape ||
         view.stride != before.stride || view.dtype != before.dtype;
}

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
heed::TensorView rows(heed_test::Tensor<T>& t, int rank) {  // without the last axis, of length 1
  heed::TensorView view = t.present() ? t.out(rank) : heed::TensorView{};
  if (t.present()) --view.rank;
  return view;
}

template <typename T>
heed::TensorView numbers(heed_test::Tensor<T>& t) {
  return t.present() ? heed::view(t.memory.data(), {t.count()}) : heed::TensorView{};
}

/// The same elements, bit for bit, and any NaN for a NaN.
template <typename T>
bool same(const std::byte* a, const std::byte* b, std::size_t size) {
  for (std::size_t at = 0; at < size; at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, a + at, sizeof(T));
    std::memcpy(&y, b + at, sizeof(T));
    if (!(std::isnan(x) && std::isnan(y)) && std::memcmp(a + at, b + at, sizeof(T)) != 0)
      return false;
  }
  return true;
}

/// All that run here; where HEED_MAX_ISA is set, as under valgrind, the one it means.
const std::vector<heed::Isa>& instruction_sets() {
  static const std::vector<heed::Isa> all = std::getenv("HEED_MAX_ISA") == nullptr
                                                ? heed_test::runnable_isas()
                                                : std::vector{heed::instruction_set()};
  return all;
}

/// Runs a call with something changed: refused, or the same bits on two paths.
template <typename T>
void run_changed(Arguments arguments, Bytes& bytes, bool at_end) {
  Placed placed(at_end);
  const auto views = arguments.views();
  for (auto* view : views) placed.copy(*view);
  bool changed = true;
  if (bytes.chance(64)) {
    change(arguments.options, arguments.execution, bytes);
  } else {
    auto& view =
        *views[static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(views.size())))];
    const auto shape = view.shape;
    changed = change(view, bytes);
    if (changed && !placed.fill(view, 1) && view.shape == shape) return;  // may be legal: far apart
  }
  if (!changed) return;
  struct Output {
    std::byte* from;
    std::size_t size;
    std::vector<std::byte> before, best;
  };
  std::vector<Output> outputs;
  for (const auto& view : arguments.outputs) {
    std::int64_t below = 0, above = 0;
    if (!view.present() || view.data == nullptr || !reach(view, below, above)) continue;
    const auto size = static_cast<std::int64_t>(heed::size_of(view.dtype));
    const bool empty = std::ranges::any_of(view.shape, [](auto n) { return n <= 0; });
    auto* from = static_cast<std::byte*>(const_cast<void*>(view.data)) + below * size;
    if (empty && view.rank > 0) continue;
    outputs.push_back({from, static_cast<std::size_t>((above - below + 1) * size), {}, {}});
    outputs.back().before.assign(from, from + outputs.back().size);
  }
  const auto& isas = instruction_sets();
  for (const heed::Isa isa : {isas.back(), isas.front()}) {
    heed::cap_instruction_set(isa);
    for (auto& o : outputs) std::ranges::copy(o.before, o.from);
    try {
      arguments.call();
    } catch (const heed::Error& error) {
      expect(error.kind() == heed::ErrorKind::argument, error.what());
      expect(std::string(error.what()).size() < 600, error.what());
      for (const auto& o : outputs)
        expect(std::equal(o.before.begin(), o.before.end(), o.from),
               std::string("written in spite of: ") + error.what());
      return;
    }
    for (auto& o : outputs) {
      if (o.best.empty()) {
        o.best.assign(o.from, o.from + o.size);
      } else {
        expect(same<T>(o.best.data(), o.from, o.size), "other bits on the scalar path");
      }
    }
  }
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
    // Back to where the comparison looks for them.
    const auto back = [](const heed::ConstTensorView& from, heed_test::Tensor<T>& to) {
      if (!to.present() || to.memory.empty() || to.count() == 0) return;
      std::int64_t below = 0, above = 0;
      reach(from, below, above);
      const auto size = static_cast<std::int64_t>(sizeof(T));
      auto* start = reinterpret_cast<std::byte*>(to.memory.data() + to.first) + below * size;
      std::memcpy(start, static_cast<const std::byte*>(from.data) + below * size,
                  static_cast<std::size_t>((above - below + 1) * size));
    };
    back(plain.outputs[0], r.o);
    back(plain.outputs[1], r.lse);
    back(plain.outputs[2], r.weights);
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
