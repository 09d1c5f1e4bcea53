// What heed and the oracle are told about a problem.
#include "forward/call.h"

#include <cmath>
#include <limits>
#include <sstream>

namespace heed_test {
namespace {

template <typename T>
void mod_tilt(const heed::BasicScoreTile<T>& tile, const void*) {
  for (int r = 0; r < tile.queries; ++r)
    for (int c = 0; c < tile.keys; ++c) {
      T& t = tile.scores[r * tile.query_stride + c * tile.key_stride];
      const std::int64_t n = tile.query + r + 2 * (tile.key + c) + 3 * tile.head + tile.batch;
      t = T(0.75) * t + static_cast<T>(n % 7) / 8;
    }
}

template <typename T>
void mod_holes(const heed::BasicScoreTile<T>& tile, const void*) {
  for (int r = 0; r < tile.queries; ++r)
    for (int c = 0; c < tile.keys; ++c)
      if ((tile.query + r + 2 * (tile.key + c)) % 3 == 0)
        tile.scores[r * tile.query_stride + c * tile.key_stride] =
            -std::numeric_limits<T>::infinity();
}

/// t = f(t) for each score of a tile.
template <typename T, T (*f)(T)>
void each_score(const heed::BasicScoreTile<T>& tile, const void*) {
  for (int r = 0; r < tile.queries; ++r)
    for (int c = 0; c < tile.keys; ++c) {
      T& t = tile.scores[r * tile.query_stride + c * tile.key_stride];
      t = f(t);
    }
}
template <typename T>
T bend(T t) {
  return t / 2 + std::sin(t);
}
template <typename T>
T bend_slope(T t) {
  return T(0.5) + std::cos(t);
}
template <typename T>
T tilt_slope(T) {
  return T(0.75);
}
template <typename T>
T one(T) {
  return 1;
}

/// float16 (5 exponent bits) or bfloat16 (8) of a number that needs no rounding, or of -inf.
std::uint16_t half_bits(double value, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned sign = std::signbit(value) ? 0x8000U : 0U;
  const unsigned special = ((1U << exponent_bits) - 1) << mantissa_bits;
  if (value == 0) return static_cast<std::uint16_t>(sign);
  if (std::isnan(value)) return static_cast<std::uint16_t>(special | 1);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | special);
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<unsigned>(std::ldexp(2 * fraction - 1, mantissa_bits));
  const auto e = static_cast<unsigned>(exponent - 1 + bias) << mantissa_bits;
  return static_cast<std::uint16_t>(sign | (e + mantissa));
}

template <typename Stored>
void store(std::byte* at, Stored value) {
  std::memcpy(at, &value, sizeof value);
}

/// True is any pattern but 0: the highest bit alone, or 2, or 1.
void store_truth(std::byte* at, heed::DType dtype, bool truth, std::size_t place) {
  const std::size_t bytes = heed::size_of(dtype);
  std::memset(at, 0, bytes);
  if (!truth) return;
  at[place % 3 == 0 ? bytes - 1 : 0] = std::byte(place % 3 == 0 ? 0x80 : place % 3);
}

/// The view without its leading axes of length 1, where the call wants that.
template <typename T>
heed::ConstTensorView without_leading_ones(const Call<T>& s, heed::ConstTensorView view) {
  while (s.fewer_axes && view.rank > 2 && view.shape[0] == 1) {
    --view.rank;
    for (std::size_t a = 0; a < 3; ++a) {
      view.shape[a] = view.shape[a + 1];
      view.stride[a] = view.stride[a + 1];
    }
  }
  return view;
}

}  // namespace

template <typename T>
Call<T> plain_call(const Dims& d, std::uint64_t seed, double sharpness) {
  Call<T> s;
  s.seed = seed;
  Random random(seed);
  s.q = Tensor<T>({d.batch, d.heads, d.queries, d.size});
  s.k = Tensor<T>({d.batch, d.kv_heads, d.keys, d.size});
  s.v = Tensor<T>({d.batch, d.kv_heads, d.keys, d.value_size});
  fill_normal(s.q, random, sharpness);
  fill_normal(s.k, random);
  fill_normal(s.v, random);
  return s;
}

template <typename T>
std::string describe(const Call<T>& s) {
  std::ostringstream out;
  const Dims d = s.dims();
  out << "seed " << s.seed << ", " << heed::name_of(heed::detail::dtype_of<T>()) << ", batch "
      << d.batch << ", heads " << d.heads << "/" << d.kv_heads << ", queries " << d.queries
      << ", keys " << d.keys << ", d " << d.size << ", d_v " << d.value_size << ", rank " << s.rank;
  const auto list = [&](const char* name, const auto& numbers) {
    if (numbers.empty()) return;
    out << ", " << name;
    for (const auto n : numbers) out << " " << n;
  };
  const auto grid = [&](const char* name, const auto& tensor) {
    if (!tensor.present()) return;
    out << ", " << name;
    for (const auto n : tensor.shape) out << " " << n;
  };
  list("scale", s.scale);
  if (s.normalize_qk) out << ", normalize_qk";
  if (s.softcap) out << ", softcap " << *s.softcap;
  list("alibi", s.alibi);
  grid("bias", s.bias);
  if (s.bias.present()) out << " of " << heed::name_of(s.bias_dtype);
  if (s.mod != Mod::none)
    out << ", score_mod " << (s.mod == Mod::tilt ? "tilt" : s.mod == Mod::holes ? "holes" : "bend");
  if (s.causal) out << ", causal";
  list("query_start", s.query_start);
  if (s.left) out << ", left " << *s.left;
  if (s.right) out << ", right " << *s.right;
  list("key_lengths", s.key_lengths);
  list("query_lengths", s.query_lengths);
  grid("keep", s.keep);
  grid("drop", s.drop);
  if (s.keep.present() || s.drop.present()) out << " of " << heed::name_of(s.mask_dtype);
  list("sinks", s.sinks);
  if (s.dropout.p > 0) out << ", dropout " << s.dropout.p << " of seed " << s.dropout.seed;
  if (!s.words.empty()) out << "; " << s.words;
  return out.str();
}

template <typename T>
oracle::Problem<T> problem_of(const Call<T>& s) {
  const Dims d = s.dims();
  oracle::Problem<T> p{.batch = d.batch,
                       .heads = d.heads,
                       .kv_heads = d.kv_heads,
                       .queries = d.queries,
                       .keys = d.keys,
                       .size = d.size,
                       .value_size = d.value_size,
                       .q = s.q.plain(),
                       .k = s.k.plain(),
                       .v = s.v.plain(),
                       .scale = s.scale,
                       .normalize_qk = s.normalize_qk,
                       .softcap = s.softcap,
                       .alibi = s.alibi};
  if (s.bias.present()) p.bias = s.bias.plain();
  using Wide = oracle::Wide<T>;
  if (s.mod == Mod::tilt) {
    p.score_mod_slope = 0.75;
    p.score_mod = [](Wide t, auto b, auto h, auto i, auto j) {
      return Wide(0.75) * t + Wide(static_cast<double>((i + 2 * j + 3 * h + b) % 7) / 8);
    };
    p.score_mod_derivative = [](Wide, auto...) { return Wide(0.75); };
    p.complex_score_mod = [](std::complex<double> t, auto b, auto h, auto i, auto j) {
      return 0.75 * t + static_cast<double>((i + 2 * j + 3 * h + b) % 7) / 8;
    };
  } else if (s.mod == Mod::holes) {
    p.score_mod = [](Wide t, auto, auto, auto i, auto j) {
      return (i + 2 * j) % 3 == 0 ? Wide(-std::numeric_limits<double>::infinity()) : t;
    };
    p.score_mod_derivative = [](Wide, auto...) { return Wide(1.0); };
    p.complex_score_mod = [](std::complex<double> t, auto, auto, auto i, auto j) {
      return (i + 2 * j) % 3 == 0 ? -std::numeric_limits<double>::infinity() : t;
    };
  } else if (s.mod == Mod::bend) {
    // sin and cos in double: for float64 they are good to 2^-53, which is what is asked of it
    p.score_mod_slope = 1.5;
    p.score_mod_curvature = 1;
    p.score_mod = [](Wide t, auto...) {
      return Wide(0.5) * t +
             Wide(std::sin(oracle::high(t)) + std::cos(oracle::high(t)) * oracle::low(t));
    };
    p.score_mod_derivative = [](Wide t, auto...) { return Wide(0.5 + std::cos(oracle::high(t))); };
    p.complex_score_mod = [](std::complex<double> t, auto...) { return 0.5 * t + std::sin(t); };
  }
  p.causal = s.causal;
  p.query_start = s.query_start;
  p.left = s.left;
  p.right = s.right;
  p.key_lengths = s.key_lengths;
  p.query_lengths = s.query_lengths;
  if (s.keep.present()) p.keep = s.keep.plain();
  if (s.drop.present()) p.drop = s.drop.plain();
  p.sinks = s.sinks;
  p.dropout = s.dropout;
  return p;
}

template <typename T>
heed::ConstTensorView Told<T>::encoded(const Call<T>& s, const Tensor<double>& bias) {
  if (!bias.present()) return {};
  auto& bytes = memory_.emplace_back(bias.memory.size() * heed::size_of(s.bias_dtype));
  for (std::size_t n = 0; n < bias.memory.size(); ++n) {
    std::byte* at = bytes.data() + n * heed::size_of(s.bias_dtype);
    const double x = bias.memory[n];
    switch (s.bias_dtype) {
      case heed::DType::f16:
        store(at, half_bits(x, 5));
        break;
      case heed::DType::bf16:
        store(at, half_bits(x, 8));
        break;
      case heed::DType::f32:
        store(at, static_cast<float>(x));
        break;
      default:
        store(at, x);
        break;
    }
  }
  const std::size_t offset = static_cast<std::size_t>(bias.first) * heed::size_of(s.bias_dtype);
  return without_leading_ones(
      s, shown(bytes.data() + offset, s.bias_dtype, bias.shape, bias.stride, s.rank));
}

template <typename T>
heed::ConstTensorView Told<T>::encoded(const Call<T>& s, const Tensor<std::uint8_t>& mask) {
  if (!mask.present()) return {};
  const std::size_t width = heed::size_of(s.mask_dtype);
  auto& bytes = memory_.emplace_back(mask.memory.size() * width);
  for (std::size_t n = 0; n < mask.memory.size(); ++n)
    store_truth(bytes.data() + n * width, s.mask_dtype, mask.memory[n] != 0, n);
  const std::size_t offset = static_cast<std::size_t>(mask.first) * width;
  return without_leading_ones(
      s, shown(bytes.data() + offset, s.mask_dtype, mask.shape, mask.stride, s.rank));
}

template <typename T>
heed::ConstTensorView Told<T>::encoded(const Call<T>& s, const std::vector<double>& numbers) {
  if (numbers.empty()) return {};
  const heed::DType dtype = s.narrow ? heed::DType::f32 : heed::DType::f64;
  auto& bytes = memory_.emplace_back(numbers.size() * heed::size_of(dtype));
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (s.narrow) {
      store(bytes.data() + 4 * n, static_cast<float>(numbers[n]));
    } else {
      store(bytes.data() + 8 * n, numbers[n]);
    }
  }
  const void* data = bytes.data();
  return heed::view(data, dtype, {static_cast<std::int64_t>(numbers.size())});
}

template <typename T>
heed::ConstTensorView Told<T>::encoded(const Call<T>& s, const std::vector<std::int64_t>& numbers) {
  if (numbers.empty()) return {};
  const heed::DType dtype = s.narrow ? heed::DType::i32 : heed::DType::i64;
  auto& bytes = memory_.emplace_back(numbers.size() * heed::size_of(dtype));
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (s.narrow) {
      store(bytes.data() + 4 * n, static_cast<std::int32_t>(numbers[n]));
    } else {
      store(bytes.data() + 8 * n, numbers[n]);
    }
  }
  const void* data = bytes.data();
  return heed::view(data, dtype, {static_cast<std::int64_t>(numbers.size())});
}

template <typename T>
heed::PerBatch Told<T>::per_batch(const Call<T>& s, const std::vector<std::int64_t>& numbers) {
  heed::PerBatch told;
  if (numbers.size() == 1) return numbers[0];
  told.each = encoded(s, numbers);
  return told;
}

template <typename T>
Told<T>::Told(const Call<T>& s) {
  memory_.reserve(16);
  if (s.scale.size() == 1) {
    options.scale = s.scale[0];
  } else {
    options.scale.each = encoded(s, s.scale);
  }
  options.normalize_qk = s.normalize_qk;
  options.softcap = s.softcap;
  options.alibi = encoded(s, s.alibi);
  options.bias = encoded(s, s.bias);
  if (s.mod == Mod::tilt)
    options.score_mod = {mod_tilt<float>, mod_tilt<double>, nullptr, each_score<float, tilt_slope>,
                         each_score<double, tilt_slope>};
  if (s.mod == Mod::holes)
    options.score_mod = {mod_holes<float>, mod_holes<double>, nullptr, each_score<float, one>,
                         each_score<double, one>};
  if (s.mod == Mod::bend)
    options.score_mod = {each_score<float, bend>, each_score<double, bend>, nullptr,
                         each_score<float, bend_slope>, each_score<double, bend_slope>};
  options.mask.causal = s.causal;
  options.mask.query_start = per_batch(s, s.query_start);
  options.mask.window = {s.left.value_or(heed::kUnlimited), s.right.value_or(heed::kUnlimited)};
  options.mask.key_lengths = per_batch(s, s.key_lengths);
  options.mask.query_lengths = per_batch(s, s.query_lengths);
  options.mask.keep = encoded(s, s.keep);
  options.mask.drop = encoded(s, s.drop);
  options.sinks = encoded(s, s.sinks);
  options.packing = {encoded(s, s.query_offsets), encoded(s, s.key_offsets)};
  if (s.dropout.p > 0 || s.dropout.seed != 0)
    options.dropout = {.p = s.dropout.p,
                       .seed = s.dropout.seed,
                       .first_query = s.dropout.first_query,
                       .first_key = s.dropout.first_key,
                       .first_batch = s.dropout.first_batch,
                       .first_head = s.dropout.first_head,
                       .heads = s.dropout.heads};
}

template <typename T>
bool visible(const Call<T>& s, const oracle::Problem<T>& problem, std::int64_t b, std::int64_t h,
             std::int64_t i, std::int64_t j) {
  if (!oracle::allowed(problem, b, h, i, j)) return false;
  if (s.mod == Mod::holes && (i + 2 * j) % 3 == 0) return false;
  return !s.bias.present() || s.bias.plain().at(b, h, i, j) != -INFINITY;
}

#define HEED_INSTANTIATE(T)                                                                    \
  template Call<T> plain_call(const Dims&, std::uint64_t, double);                             \
  template std::string describe(const Call<T>&);                                               \
  template oracle::Problem<T> problem_of(const Call<T>&);                                      \
  template bool visible(const Call<T>&, const oracle::Problem<T>&, std::int64_t, std::int64_t, \
                        std::int64_t, std::int64_t);                                           \
  template struct Told<T>;
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed_test
