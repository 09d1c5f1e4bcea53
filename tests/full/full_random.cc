// A million problems drawn from all that the case matrix knows: sizes, layouts, maskings, values,
// scales, types of masks, dropout and packed sequences, in any combination. One test for each type
// and ten thousand draws; packed sequences are dense. ./dev test --full runs them one by one and
// keeps what each found.
#include "judge_as.h"

namespace heed_test {
namespace {

constexpr int kParts[] = {40, 20, 10, 10, 20};  // of each type
constexpr int kDraws = 10'000;

/// A number from 0 on that is mostly small, so that edges meet often and a case costs little.
std::int64_t length(Random& random, std::int64_t usual, std::int64_t most) {
  return random.chance(0.02) ? random.between(0, most) : random.between(1, usual);
}

Case drawn(std::uint64_t seed) {
  constexpr heed::DType kMaskTypes[] = {heed::DType::boolean, heed::DType::u8,  heed::DType::i8,
                                        heed::DType::u16,     heed::DType::i16, heed::DType::u32,
                                        heed::DType::i32,     heed::DType::u64, heed::DType::i64};
  Random random(seed);
  Case c;
  c.seed = random.bits() >> 1;
  c.dims.batch = random.between(1, 2);
  c.dims.kv_heads = random.between(1, 2);
  c.dims.heads = c.dims.kv_heads * random.between(1, 3);
  c.dims.queries = length(random, 12, 70);
  c.dims.keys = length(random, 40, 900);
  c.dims.size = std::max<std::int64_t>(1, length(random, 24, 130));
  c.dims.value_size = std::max<std::int64_t>(1, length(random, 24, 130));
  c.masking = static_cast<Masking>(random.below(kMaskings));
  c.values = static_cast<Values>(random.below(kValues));
  // Lengths below 1e-15 are beyond what normalize_qk promises (docs/numerics.md).
  const bool normalized = c.masking == Masking::normalized || c.masking == Masking::everything;
  if (normalized && (c.values == Values::tiny || c.values == Values::subnormal))
    c.values = Values::normal;
  c.scaling = random.chance(0.3) ? static_cast<Scaling>(random.below(kScalings)) : Scaling::usual;
  const auto layout = [&] { return static_cast<Layout>(random.below(kLayouts)); };
  c.q = layout(), c.k = layout(), c.v = layout();
  while (!writable(c.output = layout())) {
  }
  c.mask_axes = static_cast<int>(random.below(16));
  c.mask_dtype = kMaskTypes[random.below(std::size(kMaskTypes))];
  c.bias_dtype =
      random.pick({heed::DType::f32, heed::DType::f64, heed::DType::f16, heed::DType::bf16});
  // Few keys are often all dropped at a rate of 0.9, or all that count: zeros, which prove little
  // (T5).
  c.dropout = random.chance(0.2) ? random.pick({0.1, 0.25, 0.5, 0.9}) : 0;
  // The masks of `everything` have rows, whatever the axes.
  if (c.masking != Masking::everything && random.chance(0.2)) {
    c.packed = true;
    c.mask_axes &= 0b0101;
    c.dims.batch = random.between(1, 4);
  }
  return c;
}

class full_random : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(full_random, holds) {
  const auto [type, part] = GetParam();
  std::vector<Case> cases;
  for (int n = 0; n < kDraws; ++n)
    cases.push_back(drawn((static_cast<std::uint64_t>(type * 100 + part) << 32) +
                          static_cast<std::uint64_t>(n)));
  judge_all_as(static_cast<Type>(type), cases);
}

std::vector<std::tuple<int, int>> every_part() {
  std::vector<std::tuple<int, int>> all;
  for (int type = 0; type < static_cast<int>(std::size(kTypes)); ++type)
    for (int part = 0; part < kParts[type]; ++part) all.emplace_back(type, part);
  return all;
}

INSTANTIATE_TEST_SUITE_P(random, full_random, testing::ValuesIn(every_part()), [](const auto& one) {
  return std::string(kTypes[std::get<0>(one.param)]) + "_draws" +
         std::to_string(std::get<1>(one.param));
});

}  // namespace
}  // namespace heed_test
