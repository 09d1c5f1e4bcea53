// The lists of cases.
#include "forward/cases.h"

#include <utility>

namespace heed_test {
namespace {

constexpr std::pair<int, int> kSizes[] = {
    {1, 1},     {2, 2},     {3, 3},     {5, 5},     {7, 7},     {8, 8},     {12, 12},   {15, 15},
    {16, 16},   {17, 17},   {24, 24},   {31, 31},   {32, 32},   {33, 33},   {40, 40},   {47, 47},
    {48, 48},   {59, 59},   {63, 63},   {64, 64},   {65, 65},   {72, 72},   {80, 80},   {96, 96},
    {111, 111}, {112, 112}, {127, 127}, {128, 128}, {129, 129}, {160, 160}, {192, 192}, {224, 224},
    {255, 255}, {256, 256}, {257, 257}, {320, 320}, {512, 512}, {576, 576}, {64, 32},   {32, 64},
    {192, 128}, {576, 512}, {1, 128},   {128, 1}};
static_assert(std::size(kSizes) == kCoreSizes);

// The last six stand around the block of 96 keys and the split of 768.
constexpr std::pair<int, int> kLengths[] = {
    {0, 0},     {0, 5},     {5, 0},     {1, 1},       {1, 2},     {2, 1},
    {1, 17},    {1, 127},   {1, 1024},  {3, 7},       {7, 3},     {15, 17},
    {16, 16},   {17, 15},   {31, 33},   {33, 31},     {63, 65},   {64, 64},
    {65, 64},   {97, 97},   {113, 203}, {127, 128},   {128, 127}, {128, 129},
    {200, 200}, {257, 513}, {513, 257}, {1023, 1024}, {1, 4096},  {4096, 1},
    {95, 96},   {49, 191},  {192, 193}, {17, 767},    {64, 768},  {33, 769}};
static_assert(std::size(kLengths) == kCoreLengths);

constexpr double kSmall = 1e6;

Case case_of(std::size_t size, std::size_t length, std::size_t masking) {
  Case c;
  c.dims.size = kSizes[size].first;
  c.dims.value_size = kSizes[size].second;
  c.dims.queries = kLengths[length].first;
  c.dims.keys = kLengths[length].second;
  c.masking = static_cast<Masking>(masking);
  const bool local = c.masking == Masking::causal_at_end || c.masking == Masking::window_self ||
                     c.masking == Masking::window_narrow || c.masking == Masking::window_causal;
  // Nearly every row would be empty, and the case would prove little.
  if (local && c.dims.queries > 4 * c.dims.keys) c.masking = Masking::causal;
  c.mask_axes = (size + length + masking) % 3 == 0 ? 3 : 15;
  c.mask_dtype = masking % 2 == 0 ? heed::DType::boolean : heed::DType::u8;
  return c;
}

/// Two batch entries of two heads each on one KV head, where that stays small.
void spread(Case& c, std::size_t n) {
  if (mixed(n) % 5 < 2 && 4 * flops(c.dims) <= kSmall) {
    c.dims.batch = 2;
    c.dims.heads = 2;
  }
}

void number(std::vector<Case>& cases, std::uint64_t block) {
  std::uint64_t n = block << 32;
  for (Case& c : cases) c.seed = ++n;
}

}  // namespace

double flops(const Dims& d) {
  return 2.0 * static_cast<double>(d.size + d.value_size) * static_cast<double>(d.queries) *
         static_cast<double>(d.keys) * static_cast<double>(d.batch * d.heads);
}

std::vector<Case> core_cases() {
  std::vector<Case> all;
  const auto add = [&](std::size_t size, std::size_t length, std::size_t masking) {
    Case c = case_of(size, length, masking);
    if (flops(c.dims) > kSmall) return false;
    if (length < 3 && size % 6 != 0) return true;  // nothing to compute: a few sizes will do
    spread(c, all.size());
    all.push_back(c);
    return true;
  };
  for (std::size_t s = 0; s < 44; ++s)
    for (std::size_t n = 0; n < 36; ++n) add(s, n, (7 * s + 3 * n) % kMaskings);
  for (std::size_t n = 3; n < 36; ++n)  // the empty lengths have met every masking above
    for (std::size_t m = 0; m < kMaskings; ++m)
      for (std::size_t s = 0; s < 44 && !add((5 * m + 11 * n + s) % 44, n, m);) ++s;
  for (std::size_t s = 0; s < 44; ++s)
    for (std::size_t m = 0; m < kMaskings; ++m)
      for (std::size_t n = 0; n < 33 && !add(s, 3 + (5 * m + 7 * s + n) % 33, m);) ++n;
  number(all, 1);
  return all;
}

std::vector<Case> all_core_cases(std::size_t size) {
  std::vector<Case> all;
  for (std::size_t length = 0; length < kCoreLengths; ++length)
    for (std::size_t masking = 0; masking < kMaskings; ++masking) {
      all.push_back(case_of(size, length, masking));
      spread(all.back(), all.size());
    }
  for (std::size_t length = 0; length < kCoreLengths; ++length) {
    all.push_back(case_of(size, length, static_cast<std::size_t>(Masking::causal_at_end)));
    spread(all.back(), all.size());
    all.back().packed = true;
    all.back().dims.batch = 2;
  }
  number(all, 100 + size);
  return all;
}

std::vector<Case> layout_cases() {
  std::vector<Case> all;
  for (int q = 0; q < kLayouts; ++q)
    for (int k = 0; k < kLayouts; ++k) {
      Case c;
      c.dims = {2, 4, 2, 19, 37, 13, 11};
      c.masking = static_cast<Masking>(all.size() % kMaskings);
      c.q = static_cast<Layout>(q);
      c.k = static_cast<Layout>(k);
      c.v = static_cast<Layout>((q + k) % kLayouts);
      for (int o = q; !writable(c.output = static_cast<Layout>(o % kLayouts));) ++o;
      all.push_back(c);
    }
  number(all, 2);
  return all;
}

std::vector<Case> broadcast_cases() {
  std::vector<Case> all;
  using heed::DType;
  constexpr DType kMaskTypes[] = {DType::boolean, DType::u8,  DType::i8,  DType::u16, DType::i16,
                                  DType::u32,     DType::i32, DType::u64, DType::i64};
  constexpr DType kBiasTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
  for (int axes = 0; axes < 16; ++axes)
    for (const auto& [queries, keys] : {std::pair{5, 7}, std::pair{33, 100}})
      for (const Masking masking :
           {Masking::keep_half, Masking::drop_half, Masking::keep_empty_rows, Masking::bias_finite,
            Masking::bias_masking}) {
        Case c;
        c.dims = {2, 4, 2, queries, keys, 8, 8};
        c.masking = masking;
        c.mask_axes = axes;
        c.mask_dtype = kMaskTypes[all.size() % std::size(kMaskTypes)];
        c.bias_dtype = kBiasTypes[(all.size() + static_cast<std::size_t>(axes)) % 4];
        all.push_back(c);
      }
  number(all, 3);
  return all;
}

std::vector<Case> head_cases() {
  std::vector<Case> all;
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{4, 2},
                                        std::pair{6, 6}, std::pair{8, 1}, std::pair{12, 4}})
    for (const int batch : {1, 2, 5})
      for (const Masking masking : {Masking::none, Masking::key_lengths, Masking::alibi,
                                    Masking::keep_half, Masking::sinks, Masking::everything}) {
        Case c;
        c.dims = {batch, heads, kv_heads, 7, 21, 8, 9};
        c.masking = masking;
        all.push_back(c);
      }
  number(all, 4);
  return all;
}

std::vector<Case> value_cases() {
  std::vector<Case> all;
  constexpr Masking kSome[] = {Masking::none,  Masking::causal,      Masking::keep_half,
                               Masking::alibi, Masking::key_lengths, Masking::sinks};
  for (int values = 0; values < kValues; ++values)
    for (const auto& [queries, keys] : {std::pair{1, 3}, std::pair{5, 97}, std::pair{17, 64},
                                        std::pair{33, 200}, std::pair{3, 800}})
      for (const Masking masking : kSome) {
        Case c;
        c.dims = {1, 2, 2, queries, keys, 16, 16};
        if (flops(c.dims) > kSmall) c.dims = {1, 1, 1, queries, keys, 16, 8};
        c.masking = masking;
        c.values = static_cast<Values>(values);
        all.push_back(c);
      }
  number(all, 5);
  return all;
}

std::vector<Case> scale_cases() {
  std::vector<Case> all;
  for (int scaling = 0; scaling < kScalings; ++scaling)
    for (const auto& [queries, keys] :
         {std::pair{1, 1}, std::pair{1, 97}, std::pair{16, 16}, std::pair{33, 65}})
      for (const Masking masking : {Masking::none, Masking::causal, Masking::softcap_causal,
                                    Masking::normalized, Masking::everything}) {
        Case c;
        c.dims = {1, 4, 2, queries, keys, 12, 12};
        c.masking = masking;
        c.scaling = static_cast<Scaling>(scaling);
        all.push_back(c);
      }
  number(all, 6);
  return all;
}

std::vector<Case> dropout_cases() {
  std::vector<Case> all;
  constexpr double kRates[] = {0.1, 0.5, 0.9};
  constexpr std::pair<int, int> kShapes[] = {{17, 64}, {70, 203}, {5, 800}};
  for (int n = 0; n < kMaskings + kValues; ++n)
    for (std::size_t shape = 0; shape < 3; ++shape) {
      Case c;
      c.dims = {2, 4, 2, kShapes[shape].first, kShapes[shape].second, 9, 7};
      if (n < kMaskings) c.masking = static_cast<Masking>(n);
      if (n >= kMaskings) c.values = static_cast<Values>(n - kMaskings);
      c.mask_axes = n % 2 == 0 ? 3 : 15;
      c.dropout = kRates[(static_cast<std::size_t>(n) + shape) % 3];
      all.push_back(c);
    }
  number(all, 8);
  return all;
}

std::vector<Case> few_cases() {
  std::vector<Case> all;
  // Query heads on one KV head, and their queries: tiles of 1 to 4 rows, two of them, and
  // one row more.
  constexpr std::pair<int, int> kRows[] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {1, 3}, {4, 1}, {2, 2},
                                           {1, 4}, {1, 5}, {5, 1}, {2, 3}, {4, 2}, {1, 9}};
  constexpr int kSizesOfKeys[] = {16, 128, 144};
  constexpr int kSizesOfValues[] = {16, 48};
  constexpr int kKeys[] = {1, 95, 97, 769, 1700};
  constexpr Values kSome[] = {Values::normal, Values::v_infinite, Values::not_a_number};
  for (int masking = 0; masking < kMaskings; ++masking)
    for (const double dropout : {0.0, 0.3})
      for (const auto& [heads, queries] : kRows)
        for (int twice = 0; twice < 2; ++twice) {
          const std::size_t n = all.size();
          Case c;
          c.dims = {static_cast<std::int64_t>(1 + n % 7 / 6),
                    heads,
                    1,
                    queries,
                    kKeys[(n + n / 5) % 5],
                    kSizesOfKeys[(n + n / 6) % 3],
                    kSizesOfValues[(n / 3 + n / 18) % 2]};
          c.masking = static_cast<Masking>(masking);
          c.values = kSome[(n / 2) % 3];
          c.mask_axes = n / 2 % 4 == 3 ? 3 : 15;
          c.k = n % 11 == 10 ? Layout::strided_last : Layout::bhtd;
          c.dropout = dropout;
          all.push_back(c);
        }
  number(all, 9);
  return all;
}

std::vector<Case> large_cases(double most, std::size_t count) {
  std::vector<Case> all;
  for (std::size_t n = 0; all.size() < count; ++n) {
    const std::size_t length = 18 + (n * 5) % 18;
    for (std::size_t s = 0; s < 44; ++s) {
      Case c = case_of((n * 17 + s) % 44, length, n % kMaskings);
      if (flops(c.dims) <= kSmall || flops(c.dims) > most * 1e6) continue;
      all.push_back(c);
      break;
    }
  }
  number(all, 7);
  return all;
}

}  // namespace heed_test
