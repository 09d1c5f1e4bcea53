// The blocks of the case matrix beside the core, whole, one test for each type: layouts of q, k and
// v in every combination, masks that broadcast, heads, classes of values, scales. ./dev test --full
// runs them.
#include <set>

#include "judge_as.h"

namespace heed_test {
namespace {

using Cases = std::vector<Case>;

void layouts(Cases& all) {  // 11 x 11 x 11 x 3
  for (int q = 0; q < kLayouts; ++q)
    for (int k = 0; k < kLayouts; ++k)
      for (int v = 0; v < kLayouts; ++v)
        for (const Masking masking : {Masking::none, Masking::causal_at_end, Masking::everything}) {
          Case c;
          c.dims = {2, 4, 2, 9, 21, 13, 11};
          c.masking = masking;
          c.q = static_cast<Layout>(q), c.k = static_cast<Layout>(k), c.v = static_cast<Layout>(v);
          for (int o = q + v; !writable(c.output = static_cast<Layout>(o % kLayouts));) ++o;
          all.push_back(c);
        }
}

void masks(Cases& all) {  // 16 x 3 x 4
  using heed::DType;
  constexpr DType kMasks[] = {DType::boolean, DType::u8,  DType::i8,  DType::u16, DType::i16,
                              DType::u32,     DType::i32, DType::u64, DType::i64};
  constexpr DType kBiases[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
  std::size_t type = 0;  // each masking has every one of them
  for (int axes = 0; axes < 16; ++axes)
    for (const auto& [queries, keys] :
         {std::pair{1, 1}, std::pair{5, 7}, std::pair{33, 100}, std::pair{3, 770}}) {
      for (const Masking masking :
           {Masking::keep_empty_rows, Masking::drop_half, Masking::bias_masking}) {
        Case c;
        c.dims = {2, 4, 2, queries, keys, 8, 8};
        c.masking = masking;
        c.mask_axes = axes;
        c.mask_dtype = kMasks[type % std::size(kMasks)];
        c.bias_dtype = kBiases[(type + static_cast<std::size_t>(axes)) % std::size(kBiases)];
        all.push_back(c);
      }
      ++type;
    }
}

void values(Cases& all) {  // 18 x 8 x 6
  for (int value = 0; value < kValues; ++value)
    for (const auto& [queries, keys] :
         {std::pair{1, 3}, std::pair{5, 97}, std::pair{17, 64}, std::pair{33, 200},
          std::pair{3, 800}, std::pair{1, 1}, std::pair{2, 192}, std::pair{64, 33}})
      for (const Masking masking : {Masking::none, Masking::causal, Masking::keep_half,
                                    Masking::alibi, Masking::key_lengths, Masking::sinks}) {
        Case c;
        c.dims = {1, 2, 1, queries, keys, 16, 12};
        c.masking = masking;
        c.values = static_cast<Values>(value);
        all.push_back(c);
      }
}

void scales(Cases& all) {  // 7 x 6 x 3
  for (int scaling = 0; scaling < kScalings; ++scaling)
    for (const auto& [queries, keys] : {std::pair{1, 1}, std::pair{1, 97}, std::pair{16, 16},
                                        std::pair{33, 65}, std::pair{2, 769}, std::pair{97, 5}})
      for (const Masking masking : {Masking::none, Masking::softcap_causal, Masking::everything}) {
        Case c;
        c.dims = {1, 4, 2, queries, keys, 12, 12};
        c.masking = masking;
        c.scaling = static_cast<Scaling>(scaling);
        all.push_back(c);
      }
}

Cases all_of_them() {
  Cases all = head_cases();  // 6 x 3 x 6
  layouts(all);
  masks(all);
  values(all);
  scales(all);
  std::uint64_t seed = std::uint64_t{200} << 32;
  for (Case& c : all) c.seed = ++seed;
  return all;
}

class full_options : public testing::TestWithParam<int> {};

/// Of keep, of drop and of a bias.
std::size_t types_of_masks() {
  Cases all;
  masks(all);
  std::set<std::pair<Masking, heed::DType>> seen;
  for (const Case& c : all)
    seen.emplace(c.masking, c.masking == Masking::bias_masking ? c.bias_dtype : c.mask_dtype);
  return seen.size();
}

TEST_P(full_options, hold) {
  EXPECT_EQ(types_of_masks(), 9U + 9U + 4U);
  judge_all_as(static_cast<Type>(GetParam()), all_of_them());
}

INSTANTIATE_TEST_SUITE_P(options, full_options, testing::Range(0, 5),
                         [](const auto& one) { return std::string(kTypes[one.param]); });

}  // namespace
}  // namespace heed_test
