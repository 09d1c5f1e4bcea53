// Bytes as a problem of attention: small sizes, any option, layout and class of values of the case
// matrix, and combinations that the matrix has not.
#pragma once

#include "backward/support.h"
#include "forward/cases.h"
#include "fuzz.h"

namespace heed_fuzz {

inline heed_test::Case decode_case(Bytes& bytes) {
  using heed_test::Layout;
  heed_test::Case c;
  c.seed = bytes.byte();
  c.masking = static_cast<heed_test::Masking>(bytes.below(heed_test::kMaskings));
  c.values = static_cast<heed_test::Values>(bytes.below(heed_test::kValues));
  c.scaling = static_cast<heed_test::Scaling>(bytes.below(heed_test::kScalings));
  c.dims.batch = 1 + bytes.below(2);
  c.dims.kv_heads = 1 + bytes.below(2);
  c.dims.heads = c.dims.kv_heads * (1 + bytes.below(3));
  c.dims.queries = bytes.chance(16) ? bytes.below(140) : bytes.below(10);
  c.dims.keys = bytes.chance(8) ? 90 + bytes.below(16) : bytes.below(24);
  c.dims.size = 1 + (bytes.chance(24) ? bytes.below(140) : bytes.below(20));
  c.dims.value_size = bytes.chance(24) ? bytes.below(140) : 1 + bytes.below(20);
  const auto layout = [&] { return static_cast<Layout>(bytes.below(heed_test::kLayouts)); };
  c.q = layout();
  c.k = layout();
  c.v = layout();
  c.output = layout();
  if (!heed_test::writable(c.output)) c.output = Layout::bhtd;
  c.mask_axes = static_cast<int>(bytes.below(16));
  c.mask_dtype = static_cast<heed::DType>(bytes.below(9));
  c.bias_dtype =
      bytes.pick({heed::DType::f32, heed::DType::f64, heed::DType::f16, heed::DType::bf16});
  c.dropout = bytes.pick({0.0, 0.0, 0.25, 0.5});
  // docs/numerics.md: the squares of rows so short are nothing, and so is what the oracle says of them.
  using heed_test::Masking, heed_test::Values;
  const bool normalized = c.masking == Masking::normalized || c.masking == Masking::everything;
  if (normalized && (c.values == Values::tiny || c.values == Values::subnormal))
    c.values = Values::normal;
  return c;
}

/// Whether the oracle's bounds of gradients are for these values.
inline bool gradients_are_bounded(const heed_test::Case& c) {
  using heed_test::Values;
  return c.values != Values::not_a_number && c.values != Values::v_infinite &&
         c.values != Values::very_sharp && c.values != Values::v_large &&
         c.scaling != heed_test::Scaling::huge;
}

}  // namespace heed_fuzz
