// From the name of a case to its tensors and options.
#include <algorithm>
#include <cmath>
#include <limits>

#include "forward/cases.h"

namespace heed_test {
namespace {

/// What the classes of values about a type's range are made of. float16 holds no 1e-20 and no 1e30.
struct Range {
  double least_normal, tiny, large;
};
template <typename T>
Range range_of(heed::DType type) {
  if (type == heed::DType::f16) return {0x1p-14, 0x1p-12, 0x1p12};
  return {double{std::numeric_limits<T>::min()}, 1e-20, 1e30};  // bfloat16's is float's
}

template <typename T>
void fill(Call<T>& s, Values values, const Range& range, Random& random) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto set = [](Tensor<T>& t, auto f) {
    t.each([&](auto b, auto h, auto i, auto x) { t.at(b, h, i, x) = static_cast<T>(f(i, x)); });
  };
  const auto normal = [&](double factor) {
    return [&random, factor](auto, auto) { return factor * random.normal(); };
  };
  const auto uniform = [&](auto, auto) { return random.uniform(); };
  set(s.q, normal(values == Values::sharp ? 16 : values == Values::very_sharp ? 256 : 1));
  set(s.k, normal(1));
  set(s.v, normal(values == Values::v_large ? range.large : 1));
  const auto spoil = [&](Tensor<T>& t, double value) {
    if (t.count() == 0) return;
    t.at(random.below(t.shape[0]), random.below(t.shape[1]), random.below(t.shape[2]),
         random.below(t.shape[3])) = static_cast<T>(value);
  };
  switch (values) {
    case Values::one_signed:
      set(s.q, uniform), set(s.k, uniform), set(s.v, uniform);
      break;
    case Values::v_one_signed:
      set(s.v, uniform);
      break;
    case Values::v_constant:
      set(s.v, [](auto, auto) { return 0.1; });
      break;
    case Values::q_zero:
      set(s.q, [](auto, auto) { return 0.0; });
      break;
    case Values::k_equal_rows:
      set(s.k, [](auto, auto x) { return 0.25 + 0.5 * double(x % 3); });
      break;
    case Values::offset:
      set(s.q, [&](auto, auto) { return 100 + random.normal(); });
      set(s.k, [&](auto, auto) { return 100 + random.normal(); });
      break;
    case Values::signed_zeros:
      set(s.v, [&](auto, auto) { return random.chance(0.5) ? -0.0 : random.normal(); });
      break;
    case Values::v_alternating:
      set(s.v, [](auto i, auto) { return i % 2 == 0 ? 1000.0 : -1000.0; });
      break;
    case Values::tiny:
      for (Tensor<T>* t : {&s.q, &s.k, &s.v}) set(*t, normal(range.tiny));
      break;
    case Values::subnormal:
      for (Tensor<T>* t : {&s.q, &s.k}) set(*t, normal(range.least_normal / 16));
      break;
    case Values::integers:
      for (Tensor<T>* t : {&s.q, &s.k, &s.v})
        set(*t, [&](auto, auto) { return double(random.between(-2, 2)); });
      break;
    case Values::not_a_number:
      spoil(s.q, std::nan("")), spoil(s.k, std::nan("")), spoil(s.v, std::nan(""));
      break;
    case Values::v_infinite:
      for (int n = 0; n < 3; ++n) spoil(s.v, random.pick({infinity, -infinity}));
      break;
    case Values::rising:
      set(s.q, [](auto, auto) { return 1.0; });
      set(s.k, [&](auto i, auto) { return double(i) * 0.05 + 0.01 * random.normal(); });
      break;
    default:
      break;
  }
}

/// A tensor that broadcasts along the axes that are not in `axes`.
template <typename T, typename Of>
Tensor<T> grid(const Dims& d, int axes, Random& random, Of of) {
  Shape shape{d.batch, d.heads, d.queries, d.keys};
  for (std::size_t a = 0; a < 4; ++a)
    if ((axes >> (3 - a) & 1) == 0) shape[a] = std::min<std::int64_t>(shape[a], 1);
  Tensor<T> t(shape, random.pick({Layout::bhtd, Layout::padded_row, Layout::transposed,
                                  Layout::strided_last, Layout::reversed}));
  t.each([&](auto b, auto h, auto i, auto j) { t.at(b, h, i, j) = static_cast<T>(of(i, j)); });
  return t;
}

}  // namespace

template <typename T>
Call<T> make(const Case& c, heed::DType type) {
  const Dims& d = c.dims;
  Random random(c.seed);
  Call<T> s;
  s.seed = c.seed;
  s.words = std::string("values ") + std::to_string(static_cast<int>(c.values)) + ", q " +
            name_of(c.q) + ", k " + name_of(c.k) + ", v " + name_of(c.v) + ", output " +
            name_of(c.output) + (c.packed ? ", entries packed end to end" : "");
  s.q = Tensor<T>({d.batch, d.heads, d.queries, d.size}, c.q);
  s.k = Tensor<T>({d.batch, d.kv_heads, d.keys, d.size}, c.k);
  s.v = Tensor<T>({d.batch, d.kv_heads, d.keys, d.value_size}, c.v);
  fill(s, c.values, range_of<T>(type), random);
  const std::uint64_t kind = mixed(c.seed);
  if (d.batch == 1 && d.heads == 1) s.rank = static_cast<int>(2 + kind % 3);
  if (d.batch > 1 && d.heads == 1) s.rank = static_cast<int>(3 + kind % 2);
  s.narrow = kind % 2 == 0;
  s.fewer_axes = kind % 4 < 2;
  s.mask_dtype = c.mask_dtype;
  s.bias_dtype = std::is_same_v<T, double> && c.bias_dtype == heed::DType::f32 ? heed::DType::f64
                                                                               : c.bias_dtype;
  s.dropout = {c.dropout, c.seed * 0x9E3779B97F4A7C15u};
  if (c.dropout > 0 && kind % 2 == 1) {  // a part of a larger call
    s.dropout.first_query = 1000, s.dropout.first_key = 13, s.dropout.first_batch = 3;
    s.dropout.first_head = 1, s.dropout.heads = d.heads + 2;
  }
  const auto per_head = [&](auto of) {
    std::vector<double> numbers;
    for (std::int64_t h = 0; h < d.heads; ++h) numbers.push_back(of(h));
    return numbers;
  };
  const auto per_batch = [&](std::int64_t low, std::int64_t high) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t b = 0; b < d.batch; ++b)
      numbers.push_back(random.between(std::min(low, high), high));
    return numbers;
  };
  const auto slope = [](auto h) { return std::ldexp(1.0, -static_cast<int>(h) - 1); };
  const auto sink = [&](auto) { return static_cast<double>(random.between(-8, 8)) / 4; };
  // Half the keys of each row, but never none of them.
  const auto half = [&](auto i, auto j) { return random.chance(0.5) || j == i % d.keys; };
  // Multiples of 1/64 below 4 are exact in every float type.
  const auto bias = [&](auto, auto) { return static_cast<double>(random.between(-255, 255)) / 64; };
  const auto at_end = d.keys - d.queries;
  const auto inside = d.queries > d.keys ? at_end / 2 : 0;  // a window sees keys from most rows
  switch (c.masking) {
    case Masking::none:
      break;
    case Masking::causal:
      s.causal = true;
      break;
    case Masking::causal_at_end:
      s.causal = true;
      s.query_start = {at_end};
      break;
    case Masking::window_self:
      s.left = s.right = 0, s.query_start = {inside};
      break;
    case Masking::window_narrow:
      s.left = 3, s.right = 2, s.query_start = {inside};
      break;
    case Masking::window_causal:
      s.left = 127, s.causal = true;
      break;
    case Masking::keep_half:
      s.keep = grid<std::uint8_t>(d, c.mask_axes, random, half);
      break;
    case Masking::keep_empty_rows:
      s.keep = grid<std::uint8_t>(d, c.mask_axes, random,
                                  [&](auto i, auto j) { return i % 4 != 1 && half(i, j); });
      break;
    case Masking::drop_half:
      s.drop =
          grid<std::uint8_t>(d, c.mask_axes, random, [&](auto i, auto j) { return !half(i, j); });
      break;
    case Masking::bias_finite:
      s.bias = grid<double>(d, c.mask_axes, random, bias);
      break;
    case Masking::bias_masking:
      s.bias = grid<double>(d, c.mask_axes, random, [&](auto i, auto j) {
        return half(i, j) ? bias(i, j) : -std::numeric_limits<double>::infinity();
      });
      break;
    case Masking::key_lengths:
      s.key_lengths = per_batch(1, d.keys);
      break;
    case Masking::query_lengths:
      s.query_lengths = per_batch((d.queries + 1) / 2, d.queries);
      break;
    case Masking::alibi:
      s.alibi = per_head(slope);
      s.query_start = {at_end};
      break;
    case Masking::softcap_causal:
      s.softcap = 2.5, s.causal = true;
      break;
    case Masking::sinks:
      s.sinks = per_head(sink);
      break;
    case Masking::normalized:
      s.normalize_qk = true, s.scale = {7.5};
      break;
    case Masking::score_mod:
      s.mod = d.keys > 3 ? random.pick({Mod::tilt, Mod::holes}) : Mod::tilt;
      break;
    case Masking::everything:
      s.normalize_qk = true, s.scale = {7.5}, s.softcap = 5, s.alibi = per_head(slope);
      s.bias = grid<double>(d, c.mask_axes, random, bias);
      s.mod = Mod::tilt, s.causal = true;
      s.query_start = per_batch(d.keys / 2, d.keys);
      s.left = std::max(d.keys / 2 + 1, d.queries);
      s.key_lengths = per_batch(d.keys - d.keys / 4, d.keys);
      s.keep = grid<std::uint8_t>(d, 3, random,
                                  [&](auto, auto j) { return j == 0 || random.chance(0.8); });
      s.drop = grid<std::uint8_t>(d, 5, random,
                                  [&](auto, auto j) { return j != 0 && random.chance(0.1); });
      s.sinks = per_head(sink);
      break;
  }
  switch (c.scaling) {
    case Scaling::usual:
      break;
    case Scaling::zero:
      s.scale = {0};
      break;
    case Scaling::negative:
      s.scale = {-1.3};
      break;
    case Scaling::huge:
      s.scale = {5e3};  // twice that leaves gradients of some rows without a bound
      break;
    case Scaling::tiny:
      s.scale = {1e-6};
      break;
    case Scaling::one:
      s.scale = {1};
      break;
    case Scaling::per_head:
      s.scale = per_head([](auto h) { return 0.25 * double(h) - 0.5; });
      break;
  }
  return s;
}

template Call<float> make(const Case&, heed::DType);
template Call<double> make(const Case&, heed::DType);

}  // namespace heed_test
