// Where tensors of packed calls lie: against unreadable pages, ahead and behind, and with heads far
// apart.
// Method: the same bytes as from ordinary memory, in every type; anything read or written outside
// faults.
#include <gtest/gtest.h>

#include "packing/every_call.h"

namespace heed_test {
namespace {

/// Sequences of no row and of one, around a block of 96 keys and a split of 768, with a number for
/// each head and each sequence wherever there may be one, or with options of every kind.
template <typename T>
Packed<T> sequences(Random& random, std::int64_t size, bool lists) {
  const Lengths lengths{{1, 5, 0, 17, 3}, {2, 5, 3, 97, 771}};
  auto p =
      packed<T>(random, lengths, {1, 2, size == 17 ? 1 : 2, 0, 0, size, size == 17 ? 7 : size}, 0);
  p.call.narrow = size % 2 == 0;
  if (!lists) {
    add_options(random, p);
    return p;
  }
  p.call.scale = p.call.alibi = p.call.sinks = {0.5, 0.25};
  p.call.query_start = {0, 1, 2, 40, 500};
  p.call.key_lengths = {2, 4, 3, 90, 770};
  p.call.query_lengths = {1, 4, 0, 17, 3};
  p.call.bias =
      Tensor<double>({1, 1, size % 2 == 0 ? p.call.dims().queries : 1, p.call.dims().keys});
  p.call.bias.each([&](auto b, auto h, auto i, auto j) {
    p.call.bias.at(b, h, i, j) = static_cast<double>(random.between(-64, 64)) / 64;
  });
  return p;
}

template <typename T>
void expect_same(Elsewhere where, heed::DType dtype) {
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    Random random(92);
    for (const std::int64_t size : {1, 3, 16, 17, 64})
      for (const bool lists : {false, true}) {
        const Packed<T> p = sequences<T>(random, size, lists);
        const heed::Execution execution{.decode_order = size == 64 ? heed::DecodeOrder::key_by_key
                                                                   : heed::DecodeOrder::of_prefill};
        EveryPackedCall<T> calls(p, dtype, random.bits());
        EXPECT_TRUE(same_elsewhere(where,
                                   [&](Memory& at) {
                                     calls.forward(at, execution);
                                     calls.backward(at);
                                     calls.forward_mode(at);
                                   }))
            << heed::name_of(isa) << ": " << describe(p.call);
      }
  }
}

class packing_placement : public testing::TestWithParam<heed::DType> {
 protected:
  static void expect_same_in_type(Elsewhere where) {
    if (GetParam() == heed::DType::f64) {
      expect_same<double>(where, GetParam());
    } else {
      expect_same<float>(where, GetParam());
    }
  }
};

TEST_P(packing_placement, nothing_beyond_a_tensor_is_touched_and_no_input_written) {
  expect_same_in_type(Elsewhere::between_guards);
}

TEST_P(packing_placement, heads_may_lie_further_apart_than_32_bits) {  // A20
  expect_same_in_type(Elsewhere::heads_far_apart);
}

INSTANTIATE_TEST_SUITE_P(types, packing_placement, testing::ValuesIn(kFloating),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test
