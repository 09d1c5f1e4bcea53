// A call whose tensors lie in ordinary memory, and the same one whose tensors lie each between
// unreadable pages, or have heads further apart than 32 bits count: all give the same bytes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "forward/cases.h"
#include "forward/guarded.h"
#include "forward/half.h"
#include "forward/seen.h"
#include "sanitized.h"

namespace heed_test {

/// The stack that every call must do with (A27). Where the system gives no thread so little, as on
/// Arm, its least.
inline std::size_t small_stack() {
  return std::max<std::size_t>(64 << 10, static_cast<std::size_t>(sysconf(_SC_THREAD_STACK_MIN)));
}

/// The type of lse, weights and statistics.
inline heed::DType wide(heed::DType dtype) {
  return dtype == heed::DType::f64 ? dtype : heed::DType::f32;
}

/// How results lie in memory; inputs bring their layouts along.
enum class Results {
  dense,
  laid_out,  // in one of the layouts that can be written, each of them in turn
};

/// Where the tensors of a call lie.
class Memory {
 public:
  /// Ordinary memory.
  Memory() = default;
  /// For each tensor memory that ends at an unreadable page, or begins right after one, or holds
  /// heads far apart.
  template <typename Copies>
  explicit Memory(Copies copies, Results lie = Results::dense)
      : copies_(std::move(copies)), lie_(lie) {}

  heed::ConstTensorView input(const heed::ConstTensorView& view) { return elsewhere(view); }
  /// The numbers in a type of 16 bits, rounded to it, or as they are.
  template <typename T>
  heed::ConstTensorView input(const Tensor<T>& tensor, heed::DType dtype) {
    if constexpr (std::is_same_v<T, float>) {
      if (dtype == heed::DType::f16 || dtype == heed::DType::bf16)
        return input(halves_.emplace_back(nearest(tensor, dtype), dtype).view(4));
    }
    return input(tensor.view());
  }
  heed::AttentionOptions options(const heed::AttentionOptions& options) {
    return placed(options, [this](const heed::ConstTensorView& view) { return input(view); });
  }
  /// A tensor to write, all of it 0xFF at first.
  heed::TensorView result(heed::DType dtype, std::initializer_list<std::int64_t> shape) {
    Shape four{1, 1, 1, 1};
    std::copy(shape.begin(), shape.end(), four.begin());
    const Placement lies = place(four, layout_of_next(four));
    auto& bytes = bytes_.emplace_back(static_cast<std::size_t>(lies.span) * heed::size_of(dtype),
                                      std::byte{0xFF});
    heed::TensorView view = heed::view(bytes.data(), dtype, shape);
    for (std::size_t a = 0; a < shape.size(); ++a) view.stride[a] = lies.stride[a];
    if (!bytes.empty())
      view.data = bytes.data() + static_cast<std::size_t>(lies.first) * heed::size_of(dtype);
    results_.push_back(elsewhere(view));
    return results_.back();
  }

  /// Result by result, in the order in which they were asked for.
  [[nodiscard]] testing::AssertionResult same_results(const Memory& other) const {
    if (results_.size() != other.results_.size()) return testing::AssertionFailure() << "not alike";
    for (std::size_t n = 0; n < results_.size(); ++n) {
      bool same = true;
      const std::size_t size = heed::size_of(results_[n].dtype);
      each_element(results_[n], other.results_[n], [&](const std::byte* a, const std::byte* b) {
        same = same && std::memcmp(a, b, size) == 0;
      });
      if (!same) return testing::AssertionFailure() << "result " << n << " is another one";
    }
    return testing::AssertionSuccess();
  }

 private:
  template <typename View>
  View elsewhere(const View& view) {
    if (auto* const copies = std::get_if<GuardedCopies>(&copies_)) return copies->of(view);
    if (auto* const copies = std::get_if<FarCopies>(&copies_)) return copies->of(view);
    return view;
  }

  /// Of the layouts that can be written, by how many results there are and how long they are.
  [[nodiscard]] Layout layout_of_next(const Shape& shape) const {
    if (lie_ == Results::dense) return Layout::bhtd;
    std::int64_t turn = static_cast<std::int64_t>(results_.size());
    for (const std::int64_t n : shape) turn += n;
    Layout layout = static_cast<Layout>(turn % kLayouts);
    while (!writable(layout))
      layout = static_cast<Layout>((static_cast<int>(layout) + 1) % kLayouts);
    return layout;
  }

  std::variant<std::monostate, GuardedCopies, FarCopies> copies_;
  Results lie_ = Results::dense;
  std::deque<Halves> halves_;
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<heed::TensorView> results_;
};

enum class Elsewhere {
  between_guards,   // unreadable pages, at either end
  heads_far_apart,  // in tests of their own: an emulator has no memory for it
};

/// act(memory) in ordinary memory, then elsewhere.
template <typename Act>
testing::AssertionResult same_elsewhere(Elsewhere where, const Act& act) {
  Memory plain;
  act(plain);
  const auto same = [&](Memory memory) {
    act(memory);
    return memory.same_results(plain);
  };
  if (where == Elsewhere::between_guards) {
    for (const Results lie : {Results::dense, Results::laid_out})
      for (const bool at_end : {false, true})
        if (auto good = same(Memory(GuardedCopies(at_end), lie)); !good)
          return good << ", guarded" << (lie == Results::dense ? "" : ", laid out");
    return testing::AssertionSuccess();
  }
  constexpr std::int64_t kFar = std::int64_t{1} << 31;
  for (const std::int64_t stride : {kFar + 1, 2 * kFar, 1 - kFar})
    if (auto good = same(Memory(FarCopies(stride))); !good) return good << ", heads far apart";
  return testing::AssertionSuccess();
}

/// Statistic n of kStatistics; all of them for an n beyond.
inline heed::RowStatistics some_statistics(Memory& memory, heed::DType dtype, const Dims& d,
                                           std::size_t n = std::size(kStatistics)) {
  heed::RowStatistics statistics;
  for (std::size_t i = 0; i < std::size(kStatistics); ++i) {
    if (n < std::size(kStatistics) && i != n) continue;
    const auto which = kStatistics[i];
    const bool counts = which == &heed::RowStatistics::max_weight_key ||
                        which == &heed::RowStatistics::visible_keys;
    statistics.*which =
        memory.result(counts ? heed::DType::i64 : wide(dtype), {d.batch, d.heads, d.queries});
  }
  return statistics;
}

/// The call with a number for each head, and for each batch entry, wherever there may be one. There
/// are lists in it from two heads and batch entries on.
template <typename T>
Call<T> with_lists(Call<T> s, bool narrow) {
  const Dims d = s.dims();
  s.narrow = narrow;
  s.scale = s.alibi = s.sinks = {};
  s.query_start = s.key_lengths = s.query_lengths = {};
  for (std::int64_t h = 0; h < d.heads; ++h) {
    const auto n = static_cast<double>(h);
    s.scale.push_back(0.25 + n / 8);
    s.alibi.push_back(0.5 + n / 4);
    s.sinks.push_back(n / 2 - 1);
  }
  for (std::int64_t b = 0; b < d.batch; ++b) {
    s.query_start.push_back(d.keys / 2 + b);
    s.key_lengths.push_back(d.keys - b % (d.keys + 1));
    s.query_lengths.push_back(d.queries - b % (d.queries + 1));
  }
  return s;
}

/// Every third case in layouts of its own, each of them in turn.
inline Case in_turn(Case c, std::size_t n) {
  if (n % 3 != 2) return c;
  const auto next = [&](std::size_t m) { return static_cast<Layout>((n / 3 + m) % kLayouts); };
  c.q = next(0), c.k = next(4), c.v = next(8);
  c.output = writable(next(2)) ? next(2) : Layout::reversed;
  return c;
}

/// f(call), of numbers T, on each instruction set that calls of the type can have: sizes that fill
/// no vector and such as do, lengths around a block of 96 keys and a split of 768, the maskings
/// that read tensors, layouts, and lists.
template <typename T, typename F>
void each_odd_call_of(heed::DType dtype, const F& f) {
  constexpr Masking kMasks[] = {Masking::none,          Masking::keep_half,  Masking::bias_masking,
                                Masking::causal_at_end, Masking::everything, Masking::key_lengths,
                                Masking::normalized};
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    std::size_t cases = 0;
    for (const std::int64_t size : {1, 3, 8, 16, 17, 64})
      for (const auto& [queries, keys] :
           {std::pair{1, 1}, std::pair{1, 97}, std::pair{3, 5}, std::pair{17, 97},
            std::pair{65, 33}, std::pair{2, 770}}) {
        const std::size_t n = cases++;
        // Each fifth has every size, length and masking; the release build takes all.
        if (sanitized() && n % 5 != 0) continue;
        Case c;
        c.dims = {
            2, 2, 1 + static_cast<std::int64_t>(n % 2), queries, keys, size, size == 8 ? 7 : size};
        c.masking = kMasks[n % std::size(kMasks)];
        c.seed = 171 + n;
        const auto s = make<T>(in_turn(c, n));
        SCOPED_TRACE(std::string(heed::name_of(isa)) + ", " + std::string(heed::name_of(dtype)) +
                     ", " + describe(s));
        f(s);
        if (n % 2 == 1) f(with_lists(s, n % 4 == 1));
      }
  }
}

/// The same with the numbers that the type is made from: a type of 16 bits is float32 rounded.
template <typename F>
void each_odd_call(heed::DType dtype, const F& f) {
  if (dtype == heed::DType::f64) {
    each_odd_call_of<double>(dtype, f);
  } else {
    each_odd_call_of<float>(dtype, f);
  }
}

inline constexpr heed::DType kFloating[] = {heed::DType::f32, heed::DType::f64, heed::DType::f16,
                                            heed::DType::bf16};

}  // namespace heed_test
