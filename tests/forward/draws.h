// Random problems and the transformations that properties are about.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "forward/half.h"
#include "forward/shrink.h"
#include "forward/support.h"
#include "sanitized.h"

namespace heed_test {

inline const std::vector<Masking>& every_masking() {
  static const std::vector<Masking> all = [] {
    std::vector<Masking> m;
    for (int n = 0; n < kMaskings; ++n) m.push_back(static_cast<Masking>(n));
    return m;
  }();
  return all;
}

/// Maskings that know no positions, so that rows and keys may change places.
inline const std::vector<Masking>& placeless() {
  static const std::vector<Masking> all{
      Masking::none,        Masking::keep_half,    Masking::keep_empty_rows, Masking::drop_half,
      Masking::bias_finite, Masking::bias_masking, Masking::sinks,           Masking::normalized};
  return all;
}

/// What the bits of one thread are compared with (P17). For memory and races a few threads and many
/// do: other numbers share the same work out in other ways.
inline std::span<const int> thread_counts() {
  static constexpr int kAll[] = {2, 3, 4, 5, 7, 8, 16, 32, 64};
  static constexpr int kFew[] = {2, 64};
  if (sanitized()) return kFew;
  return kAll;
}

/// The most rows, keys and elements of a head that a drawn problem has: lowered to find out what
/// fails.
inline std::int64_t& largest_draw() {
  static std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return most;
}

/// The type of the problems that are drawn, where their numbers are floats: set by for_draws.
inline heed::DType& drawn_dtype() {
  static heed::DType dtype = heed::DType::f32;
  return dtype;
}

/// A small finite problem; one in eight reaches over a split of keys.
template <typename T>
Call<T> random_call(Random& random, const std::vector<Masking>& maskings = every_masking()) {
  Case c;
  c.seed = random.bits() >> 1;
  c.dims.batch = random.between(1, 2);
  c.dims.kv_heads = random.between(1, 2);
  c.dims.heads = c.dims.kv_heads * random.between(1, 3);
  c.dims.queries = random.between(1, 40);
  c.dims.keys = random.chance(0.125) ? random.between(700, 900) : random.between(1, 130);
  c.dims.size = random.between(1, 40);
  c.dims.value_size = random.between(1, 40);
  c.masking =
      maskings[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(maskings.size())))];
  c.values = random.pick({Values::normal, Values::normal, Values::sharp, Values::one_signed,
                          Values::integers, Values::rising, Values::v_alternating});
  c.mask_axes = static_cast<int>(random.below(16));
  const auto layout = [&] { return static_cast<Layout>(random.below(kLayouts)); };
  if (random.chance(0.5)) c.q = layout(), c.k = layout(), c.v = layout();
  for (std::int64_t* size : {&c.dims.queries, &c.dims.keys, &c.dims.size, &c.dims.value_size})
    *size = std::min(*size, largest_draw());
  // As judging_isas has it: under a sanitizer the scalar path takes no large ones. Those are one
  // draw in twelve; of those with several splits of keys four in ten are small enough.
  if (sanitized() && flops(c.dims) > kMostScalar && heed::instruction_set() == heed::Isa::scalar)
    heed::cap_instruction_set(runnable_isas().back());
  auto call = make<T>(c);
  if constexpr (std::is_same_v<T, float>) {
    if (drawn_dtype() != heed::DType::f32) return narrowed(std::move(call), drawn_dtype());
  }
  return call;
}

/// The number nearest to x that the call's q, k and v can hold.
template <typename T>
T held(const Call<T>& call, T x) {
  return call.dtype == heed::detail::dtype_of<T>()
             ? x
             : static_cast<T>(nearest(static_cast<double>(x), call.dtype));
}

inline heed::Isa random_isa(Random& random) {
  const auto isas = runnable_isas();
  return isas[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(isas.size())))];
}

/// Slices of an axis in a new order, some of them, or some of them twice.
template <typename T>
Tensor<T> gathered(const Tensor<T>& from, std::size_t axis,
                   const std::vector<std::int64_t>& which) {
  if (!from.present()) return from;
  if (from.stride != place(from.shape, Layout::bhtd).stride)
    return gathered(laid_out(from, Layout::bhtd), axis, which);
  Shape shape = from.shape;
  shape[axis] = static_cast<std::int64_t>(which.size());
  Tensor<T> to(shape);
  // [before, axis, run]: a slice's elements lie side by side, and move at once.
  std::int64_t before = 1, run = 1;
  for (std::size_t a = 0; a < axis; ++a) before *= shape[a];
  for (std::size_t a = axis + 1; a < shape.size(); ++a) run *= shape[a];
  const auto first = from.memory.begin() + from.first;
  auto next = to.memory.begin();
  for (std::int64_t n = 0; n < before; ++n)
    for (const std::int64_t slice : which) {
      if (slice < 0 || slice >= from.shape[axis])
        throw std::out_of_range("gathered: no such slice");
      next = std::copy_n(first + (n * from.shape[axis] + slice) * run, run, next);
    }
  return to;
}

/// The same of a mask or bias, of which one slice alone stands for any number of them.
template <typename T>
Tensor<T> gathered_mask(const Tensor<T>& from, std::size_t axis,
                        const std::vector<std::int64_t>& which) {
  return from.shape[axis] == 1 ? from : gathered(from, axis, which);
}

inline std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

inline std::vector<std::int64_t> shuffled(std::int64_t n, Random& random) {
  auto all = range(0, n);
  for (std::size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1],
              all[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  return all;
}

/// The problem of these query rows alone. Positions, and the places of dropout, move only if the
/// rows are a range.
template <typename T>
Call<T> with_queries(Call<T> s, const std::vector<std::int64_t>& rows, bool contiguous) {
  s.q = gathered(s.q, 2, rows);
  s.bias = gathered_mask(s.bias, 2, rows);
  s.keep = gathered_mask(s.keep, 2, rows);
  s.drop = gathered_mask(s.drop, 2, rows);
  if (contiguous && !rows.empty()) {
    if (s.query_start.empty()) s.query_start = {0};
    for (auto& p : s.query_start) p += rows[0];
    s.dropout.first_query += rows[0];
    for (auto& n : s.query_lengths)
      n = std::clamp<std::int64_t>(n - rows[0], 0, static_cast<std::int64_t>(rows.size()));
  }
  return s;
}

template <typename T>
Call<T> with_keys(Call<T> s, const std::vector<std::int64_t>& keys) {
  s.k = gathered(s.k, 2, keys);
  s.v = gathered(s.v, 2, keys);
  s.bias = gathered_mask(s.bias, 3, keys);
  s.keep = gathered_mask(s.keep, 3, keys);
  s.drop = gathered_mask(s.drop, 3, keys);
  return s;
}

template <typename T>
Call<T> with_batch(Call<T> s, const std::vector<std::int64_t>& entries) {
  for (auto* t : {&s.q, &s.k, &s.v}) *t = gathered(*t, 0, entries);
  s.bias = gathered_mask(s.bias, 0, entries);
  s.keep = gathered_mask(s.keep, 0, entries);
  s.drop = gathered_mask(s.drop, 0, entries);
  for (auto* numbers : {&s.query_start, &s.key_lengths, &s.query_lengths}) {
    if (numbers->size() < 2) continue;
    std::vector<std::int64_t> moved;
    for (const auto b : entries) moved.push_back((*numbers)[static_cast<std::size_t>(b)]);
    *numbers = moved;
  }
  if (s.rank < 4 && (s.rank == 2 || s.q.shape[1] > 1)) s.rank = s.q.shape[1] > 1 ? 4 : 3;
  return s;
}

/// The rows of one axis of a result, in a new order.
template <typename T>
Result<T> gathered(const Result<T>& r, std::size_t axis, const std::vector<std::int64_t>& which) {
  const auto of = [&](const Tensor<T>& t) {
    return t.present() ? gathered(t, axis, which) : Tensor<T>();
  };
  return {of(r.o), of(r.lse), of(r.weights)};
}

/// What a body of draws is run in: a type, and for dot products of bfloat16 their instruction set.
struct DrawnType {
  heed::DType dtype;
  bool by_pairs = false;
};

/// All types that calls can have here; from kFirstHalf on those of 16 bits.
inline constexpr std::size_t kFirstHalf = 2;
inline std::vector<DrawnType> drawn_types() {
  std::vector<DrawnType> all{
      {heed::DType::f32}, {heed::DType::f64}, {heed::DType::f16}, {heed::DType::bf16}};
  if (isas_of(heed::DType::bf16).back() == kPaired) all.push_back({heed::DType::bf16, true});
  return all;
}

/// One draw on a random instruction set, in 16 bits with floats that are rounded to the type.
template <typename Body>
void draw_once(DrawnType type, std::uint64_t seed, const Body& body) {
  Random random(seed);
  const heed::Isa isa = random_isa(random);
  const Forced forced(type.by_pairs ? kPaired : isa);
  if (type.dtype == heed::DType::f64) return body(random, double{});
  drawn_dtype() = type.dtype;
  body(random, float{});
  drawn_dtype() = heed::DType::f32;
}

/// Draws of a property. Under sanitizers ./dev test --full has more (full_sanitized.md).
inline int usual_draws() { return sanitized() ? 20 : 200; }

/// Runs a body `draws(usual)` times in each type, with generators of their own. Unless
/// HEED_TEST_DRAWS asks for a number, a draw takes one of the 16-bit types, in turns: all of them
/// would double the time that properties take. On failure the draw's seed is in the report, and the
/// draw once more with the smallest sizes that fail, too; no others are drawn. How many draws each
/// of the wide types had is the test's number of cases, which ./dev test --full wants to be all.
/// Returns how often a body ran.
template <typename Body>
int for_draws(std::uint64_t property, int usual, Body body) {
  int ran = 0;
  const bool every_half = std::getenv("HEED_TEST_DRAWS") != nullptr;
  const std::vector<DrawnType> types = drawn_types();
  const std::size_t halves = types.size() - kFirstHalf;
  for (auto drawn = draws(usual); drawn; ++drawn) {
    const int n = *drawn;
    for (std::size_t t = 0; t < types.size(); ++t) {
      if (t >= kFirstHalf && !every_half &&
          (t - kFirstHalf) != static_cast<std::size_t>(n) % halves)
        continue;
      const DrawnType type = types[t];
      const std::uint64_t seed = (property << 32) + (t << 24) + static_cast<std::uint64_t>(n);
      SCOPED_TRACE("draw " + std::to_string(n) + " in " + std::string(heed::name_of(type.dtype)) +
                   (type.by_pairs ? " by dot products" : "") + ", seed " + std::to_string(seed));
      const auto draw = [&] { draw_once(type, seed, body); };
      ++ran;
      if (!fails_and_says(draw)) continue;
      const std::int64_t usual_sizes = largest_draw();
      for (largest_draw() = 1; largest_draw() < 1000 && failures(draw).empty();) ++largest_draw();
      SCOPED_TRACE("the same draw with sizes of " + std::to_string(largest_draw()) + " at most");
      draw();
      largest_draw() = usual_sizes;
      return ran;
    }
  }
  return ran;
}

}  // namespace heed_test
