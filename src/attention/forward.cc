// The forward pass.
#include "heed/attention.h"
#include "heed/error.h"

namespace heed {

void attention_forward(const ConstTensorView&, const ConstTensorView&, const ConstTensorView&,
                       const ForwardOutputs&, const AttentionOptions&, const Execution&) {
  throw Error("attention_forward: under construction");
}

Explanation explain(const ConstTensorView&, const ConstTensorView&, const ConstTensorView&,
                    const AttentionOptions&, const Execution&) {
  throw Error("explain: under construction");
}

}  // namespace heed
