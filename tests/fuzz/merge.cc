// F9: merging. Keys are cut into any parts, empty ones too, attended apart and put together in any
// grouping: within the bounds of docs/numerics.md, "Merging parts", of one call over all of them.
// Each single merge, of such parts or of any numbers at all, is held against the same sums in long
// double; empty parts, other instruction sets and any number of threads change no bit. Of a merge
// with one thing changed it is either refused, outputs as they were, or it has the same bits on two
// paths.
#include "heed/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "changed.h"
#include "forward/draws.h"
#include "forward/half.h"
#include "merging.h"

namespace {

using heed_fuzz::Bytes;
using heed_fuzz::check_numbers;
using heed_fuzz::expect;
using heed_fuzz::instruction_sets;
using heed_fuzz::kInf;
using heed_fuzz::Known;
using heed_fuzz::kRoundoff;
using heed_fuzz::Real;
using heed_fuzz::Row;
using heed_test::Layout;
using heed_test::Random;
using heed_test::Result;
using heed_test::Tensor;

template <typename T>
struct Piece {
  Result<T> made;
  std::vector<Known> lse, o;  // in the order of Tensor::each
};

/// How the parts of a merge are passed.
struct Way {
  int rank = 4;
  bool at_end = false;
  int threads = 0;
  Layout output = Layout::bhtd;
};

template <typename T>
Result<T> merged(const std::vector<Result<T>>& parts, const Way& way) {
  heed_fuzz::Placed placed(way.at_end);
  std::vector<heed::AttentionPart> views;
  for (const Result<T>& part : parts) {
    Tensor<T> lse = part.lse;
    views.push_back({part.o.view(way.rank), heed_fuzz::rows(lse, way.rank)});
    views.back().lse.data = part.lse.view().data;
    placed.copy(views.back().output);
    placed.copy(views.back().lse);
  }
  Result<T> all;
  all.o = Tensor<T>(parts[0].o.shape, way.output);
  all.lse = Tensor<T>(parts[0].lse.shape, way.output);
  heed::ConstTensorView o = all.o.out(way.rank), lse = heed_fuzz::rows(all.lse, way.rank);
  placed.copy(o);
  placed.copy(lse);
  const auto to = [](const heed::ConstTensorView& view) {
    return heed::TensorView{const_cast<void*>(view.data), view.dtype, view.rank, view.shape,
                            view.stride};
  };
  heed::merge(views, {.output = to(o), .lse = to(lse)},
              {.executor = nullptr, .threads = way.threads});
  heed_fuzz::copy_back(o, all.o);
  heed_fuzz::copy_back(lse, all.lse);
  return all;
}

/// Merges, and holds against long double what came of it; bits against other ways to the same.
template <typename T>
Result<T> checked(std::vector<Result<T>> parts, Bytes& bytes, Way way) {
  const Result<T> result = merged(parts, way);
  check_numbers(parts, result);
  way.at_end = !way.at_end;
  way.threads = bytes.pick({1, 2, 5});
  way.output = Layout::bhtd;
  const heed::Isa isa = heed::instruction_set();
  if (bytes.chance(64)) heed::cap_instruction_set(instruction_sets().front());
  for (std::int64_t empty = bytes.below(3); empty > 0; --empty) {
    Result<T> nothing;  // its output is NaN and must not be looked at
    nothing.o = Tensor<T>(result.o.shape);
    nothing.lse = Tensor<T>(result.lse.shape);
    std::ranges::fill(nothing.lse.memory, -std::numeric_limits<T>::infinity());
    parts.insert(parts.begin() + bytes.below(static_cast<std::int64_t>(parts.size()) + 1), nothing);
  }
  const auto same = heed_test::same_bits(merged(parts, way), result);
  expect(same, std::string("other bits: ") + same.message());
  heed::cap_instruction_set(isa);
  return result;
}

/// Any of the parts, not the last: a grouping draws those next to each other.
template <typename T>
Piece<T> join(const std::vector<Piece<T>>& pieces, Bytes& bytes, const Way& way) {
  std::vector<Result<T>> parts;
  for (const auto& piece : pieces) parts.push_back(piece.made);
  Piece<T> whole{.made = checked(parts, bytes, way), .lse = {}, .o = {}};
  const std::size_t rows = pieces[0].lse.size();
  const std::size_t columns = rows == 0 ? 0 : pieces[0].o.size() / rows;
  for (std::size_t at = 0; at < rows; ++at) {
    std::vector<Known> lse;
    for (const auto& piece : pieces) lse.push_back(piece.lse[at]);
    // Bounds are of first order: they say nothing of weights that may be off by a large factor.
    const bool known =
        std::ranges::all_of(lse, [](const Known& x) { return x.value < kInf && x.bound < 0.01L; });
    const Row<T> row(lse);
    whole.lse.push_back(known ? row.lse() : Known{0, kInf});
    for (std::size_t x = 0; x < columns; ++x) {
      std::vector<Known> column;
      for (const auto& piece : pieces) column.push_back(piece.o[at * columns + x]);
      const bool finite = std::ranges::all_of(
          column, [](const Known& k) { return std::isfinite(k.value) && k.bound < kInf; });
      whole.o.push_back(known && finite ? row.output(column) : Known{0, kInf});
    }
  }
  return whole;
}

std::vector<Known> known(const oracle::Truth& truth) {
  std::vector<Known> all(truth.value.size());
  for (std::size_t n = 0; n < all.size(); ++n)
    all[n] = {std::isfinite(truth.value[n]) ? static_cast<Real>(truth.value[n]) + truth.low[n]
                                            : static_cast<Real>(truth.value[n]),
              std::isnan(truth.value[n]) ? kInf : static_cast<Real>(truth.bound[n])};
  return all;
}

template <typename T>
void check_whole(const char* what, const Tensor<T>& got, const std::vector<Known>& bounds,
                 const oracle::Truth& truth, const std::string& call) {
  std::size_t n = 0;
  got.each([&](auto b, auto h, auto i, auto x) {
    const T value = got.at(b, h, i, x);
    const Real want = static_cast<Real>(truth.value[n]) + truth.low[n], bound = bounds[n].bound;
    if (std::isnan(truth.value[n]) && std::isfinite(truth.bound[n])) {
      expect(std::isnan(value), std::string(what) + " should be NaN: " + call);
    } else if (std::isfinite(truth.value[n]) && bound < kInf) {
      expect(std::fabs(value - want) <= bound,
             std::string(what) + " is off by " + std::to_string(value - want) + ": " + call);
    } else if (std::isinf(truth.value[n])) {
      expect(std::isfinite(truth.bound[n]) ? value == truth.value[n] : !std::isfinite(value),
             std::string(what) + " should be infinite: " + call);
    }
    ++n;
  });
}

/// The problem with all that is about places of keys in a mask of its own, so that keys can be cut.
template <typename T>
heed_test::Call<T> without_places(heed_test::Call<T> s) {
  const oracle::Problem<T> problem = problem_of(s);  // which points into s
  const heed_test::Dims d = s.dims();
  Tensor<std::uint8_t> keep({d.batch, d.heads, d.queries, d.keys});
  keep.each([&](auto b, auto h, auto i, auto j) {
    keep.at(b, h, i, j) = oracle::allowed(problem, b, h, i, j);
  });
  s.keep = d.keys > 0 ? keep : Tensor<std::uint8_t>();
  s.mask_dtype = heed::DType::boolean;
  s.drop = {};
  s.causal = false;
  s.query_start = {};
  s.left = s.right = {};
  s.key_lengths = {};
  s.rank = 4;
  s.fewer_axes = false;
  return s;
}

template <typename T>
heed_test::Call<T> drawn_call(Bytes& bytes, int& rank) {
  heed_test::Case c = heed_fuzz::decode_case(bytes);
  c.dropout = 0;
  c.dims.queries %= 24;
  c.dims.value_size %= 40;
  heed_test::Call<T> s = heed_test::make<T>(c);
  s.alibi = {};  // two functions of a key's place
  s.mod = heed_test::Mod::none;
  rank = s.rank;
  return s;
}

template <typename T>
void merge_parts(Bytes& bytes, Way way) {
  const heed_test::Call<T> call = drawn_call<T>(bytes, way.rank);
  const std::string words = heed_test::describe(call);
  const heed_test::Call<T> whole = without_places(call);
  const heed_test::Ask ask{.ones = true};
  const auto same = heed_test::same_bits(heed_test::run(whole, ask), heed_test::run(call, ask));
  expect(same, std::string("the same mask told otherwise: ") + same.message() + words);

  const std::int64_t keys = call.dims().keys, count = 1 + bytes.below(6);
  const std::int64_t with_sink = bytes.below(count);
  std::vector<std::int64_t> cuts{0, keys};
  while (static_cast<std::int64_t>(cuts.size()) <= count) cuts.push_back(bytes.below(keys + 1));
  std::ranges::sort(cuts);
  std::vector<Piece<T>> pieces;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto at = static_cast<std::size_t>(n);
    heed_test::Call<T> part = with_keys(whole, heed_test::range(cuts[at], cuts[at + 1]));
    if (n != with_sink) part.sinks = {};
    if (cuts[at] == cuts[at + 1]) {
      part.keep = {};
      part.bias = {};
    }
    const auto truth = oracle::attention(heed_test::problem_of(part), false);
    Result<T> made = heed_test::run(part, {.output = way.output, .ones = true});
    if (part.dims().keys == 0 && part.sinks.empty()) {
      made.o.each([&](auto... place) {
        const T x = made.o.at(place...);
        expect(x == 0 && !std::signbit(x), "output of no keys: " + words);
      });
      made.lse.each([&](auto... place) {
        expect(made.lse.at(place...) == -std::numeric_limits<T>::infinity(), "lse of no keys");
      });
    }
    pieces.push_back({std::move(made), known(truth.lse), known(truth.o)});
    std::swap(pieces.back(), pieces[static_cast<std::size_t>(bytes.below(n + 1))]);
  }
  do {  // pieces that lie side by side become one, until there is one
    const auto left = static_cast<std::int64_t>(pieces.size());
    const std::int64_t some = std::min<std::int64_t>(left, 2 + bytes.below(4));
    const auto first = pieces.begin() + bytes.below(left - some + 1);
    Piece<T> one = join(std::vector<Piece<T>>(first, first + some), bytes, way);
    *first = std::move(one);
    pieces.erase(first + 1, first + some);
  } while (pieces.size() > 1);
  const auto truth = oracle::attention(heed_test::problem_of(call), false);
  check_whole("lse", pieces[0].made.lse, pieces[0].lse, truth.lse, words);
  check_whole("output", pieces[0].made.o, pieces[0].o, truth.o, words);
}

/// Numbers of any kind, `hostile` of 256 of them as hard as can be.
template <typename T>
T drawn_number(Random& random, double size, int hostile) {
  using Limits = std::numeric_limits<T>;
  if (!random.chance(hostile / 256.0)) return static_cast<T>(size * random.normal());
  return random.pick({Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::max(),
                      Limits::lowest(), Limits::min(), Limits::denorm_min(), T{0}, -T{0}});
}

template <typename T>
std::vector<Result<T>> drawn_parts(Bytes& bytes, const Way& way) {
  Random random(bytes.byte());
  heed_test::Shape shape{1, 1, bytes.below(12), bytes.below(20)};
  if (bytes.chance(32)) shape[2] = bytes.below(150);
  if (way.rank > 2) shape[0] = bytes.below(4);
  if (way.rank > 3) shape[1] = bytes.below(4);
  std::vector<Result<T>> parts;
  const double far = bytes.pick({1.0, 30.0, 500.0, 1e30}), size = bytes.pick({1.0, 1e30, 1e-38});
  const int hard = bytes.pick({0, 0, 8, 128});
  for (std::int64_t n = bytes.chance(16) ? bytes.below(40) : bytes.below(6); n >= 0; --n) {
    const int empty = bytes.pick({0, 0, 64, 256});
    Result<T> part{Tensor<T>(shape, way.output), {}, {}};
    shape[3] = 1;
    part.lse = Tensor<T>(shape, way.output);
    shape[3] = part.o.shape[3];
    part.o.each([&](auto... at) { part.o.at(at...) = drawn_number<T>(random, size, hard); });
    part.lse.each([&](auto... at) {
      part.lse.at(at...) = random.chance(empty / 256.0) ? -std::numeric_limits<T>::infinity()
                                                        : drawn_number<T>(random, far, hard);
    });
    parts.push_back(std::move(part));
  }
  return parts;
}

/// Outputs of 16 bits: widened, merged, rounded once.
void merge_halves(Bytes& bytes, const Way& way) {
  const auto dtype = bytes.pick({heed::DType::f16, heed::DType::bf16});
  std::vector<Result<float>> parts = drawn_parts<float>(bytes, way);
  std::vector<heed_test::Halves> halves;
  for (Result<float>& part : parts) {
    part.o.each([&](auto... at) {  // one with all bits set could not be told from one never written
      if (std::isnan(part.o.at(at...))) part.o.at(at...) = 1;
    });
    part.o = heed_test::nearest(part.o, dtype);
    halves.emplace_back(part.o, dtype, bytes.byte() % 2);
  }
  std::vector<heed::AttentionPart> views;
  for (std::size_t n = 0; n < parts.size(); ++n)
    views.push_back({halves[n].view(way.rank), heed_fuzz::rows(parts[n].lse, way.rank)});
  heed_test::Halves o(parts[0].o.shape, way.output, dtype);
  Tensor<float> lse(parts[0].lse.shape, way.output);
  heed::merge(views, {.output = o.out(way.rank), .lse = heed_fuzz::rows(lse, way.rank)});
  const Result<float> wide = checked(parts, bytes, way);
  auto same = heed_test::same_bits(o.written("output"), heed_test::nearest(wide.o, dtype));
  expect(same, std::string("not rounded once: ") + same.message());
  same = heed_test::same_bits(lse, wide.lse);
  expect(same, std::string("other lse than of float32: ") + same.message());
}

/// A merge as bare views; parts may be taken away, or one output put on top of another.
struct Arguments {
  std::vector<heed::ConstTensorView> parts;    // output and lse of each
  std::vector<heed::ConstTensorView> outputs;  // output, lse
  heed::Execution execution{};
  bool impossible = false;  // after a change that may not be taken

  std::vector<heed::ConstTensorView*> views() {
    std::vector<heed::ConstTensorView*> all;
    for (auto& view : parts) all.push_back(&view);
    for (auto& view : outputs) all.push_back(&view);
    std::erase_if(all, [](const auto* view) { return !view->present(); });
    return all;
  }

  void change(Bytes& bytes) {
    auto& part =
        parts[static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(parts.size())))];
    switch (bytes.below(6)) {
      case 0:
        parts.clear();
        impossible = true;
        break;
      case 1:
        part = {};
        impossible = true;
        break;
      case 2:
        outputs[static_cast<std::size_t>(bytes.below(2))] = {};
        impossible = !outputs[0].present();
        break;
      case 3:
        impossible = output_is_there();
        if (impossible) part.data = outputs[0].data;
        break;
      case 4:
        impossible = output_is_there();
        if (impossible) outputs[1].data = outputs[0].data;
        break;
      default:
        execution.threads =
            static_cast<int>(bytes.pick<std::int64_t>({-1, 2, 4096, 4097, 1 << 30}));
    }
  }

  /// What lies on top of nothing does not overlap it, and has no memory there.
  [[nodiscard]] bool output_is_there() const {
    const auto& view = outputs[0];
    return std::all_of(view.shape.begin(), view.shape.begin() + view.rank,
                       [](auto n) { return n > 0; });
  }

  void call() const {
    std::vector<heed::AttentionPart> in;
    for (std::size_t n = 0; n < parts.size(); n += 2) in.push_back({parts[n], parts[n + 1]});
    const auto to = [](const heed::ConstTensorView& view) {
      return heed::TensorView{const_cast<void*>(view.data), view.dtype, view.rank, view.shape,
                              view.stride};
    };
    heed::merge(in, {.output = to(outputs[0]), .lse = to(outputs[1])}, execution);
  }
};

template <typename T>
void merge_changed(Bytes& bytes, const Way& way) {
  std::vector<Result<T>> parts = drawn_parts<T>(bytes, way);
  Arguments arguments;
  for (Result<T>& part : parts) {
    arguments.parts.push_back(part.o.view(way.rank));
    arguments.parts.push_back(heed_fuzz::rows(part.lse, way.rank));
  }
  Result<T> to{Tensor<T>(parts[0].o.shape, way.output), {}, {}};
  to.lse = Tensor<T>(parts[0].lse.shape, way.output);
  arguments.outputs = {to.o.out(way.rank), heed_fuzz::rows(to.lse, way.rank)};
  heed_fuzz::run_changed(arguments, bytes, way.at_end);
}

template <typename T>
void attempt(Bytes& bytes) {
  const auto isas = instruction_sets();
  heed::cap_instruction_set(
      isas[static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(isas.size())))]);
  Way way{.rank = static_cast<int>(4 - bytes.below(3)), .at_end = bytes.chance(128)};
  way.output = static_cast<Layout>(bytes.below(heed_test::kLayouts));
  if (!heed_test::writable(way.output)) way.output = Layout::bhtd;
  switch (bytes.below(6)) {
    case 0:
      return merge_changed<T>(bytes, way);
    case 1:
      checked(drawn_parts<T>(bytes, way), bytes, way);
      return;
    case 2:
      return merge_halves(bytes, way);
    default:
      merge_parts<T>(bytes, way);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);  // a failed EXPECT of the tests' support is a finding
  Bytes bytes(data, size);
  bytes.chance(64) ? attempt<double>(bytes) : attempt<float>(bytes);
  return 0;
}
