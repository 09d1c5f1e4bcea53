// A call's keys and values in a cache, and rows of it computed from there.
#pragma once

#include <vector>

#include "forward/draws.h"
#include "forward/support.h"
#include "heed/kv_cache.h"

namespace heed_test {

/// Rows begin .. end - 1 of one batch entry: [1, H, n, X].
template <typename T>
heed::ConstTensorView rows_of(const Tensor<T>& t, std::int64_t b, std::int64_t begin,
                              std::int64_t end) {
  heed::ConstTensorView view = t.view();
  view.data = t.memory.data() + t.index(b, 0, begin, 0);
  view.shape[0] = 1;
  view.shape[2] = end - begin;
  return view;
}

/// The same to write to; `axes` 3 for a tensor whose last axis is left out, as of lse.
template <typename T>
heed::TensorView rows_to(Tensor<T>& t, std::int64_t b, std::int64_t begin, std::int64_t end,
                         int axes = 4) {
  heed::TensorView view = t.out();
  view.data = t.memory.data() + t.index(b, 0, begin, 0);
  view.shape[0] = 1;
  view.shape[2] = end - begin;
  view.rank = axes;
  return view;
}

template <typename T>
heed::KvCacheOptions options_for(const Dims& d, std::int64_t pages, std::int64_t page_keys) {
  return {.kv_heads = d.kv_heads,
          .head_size = d.size,
          .value_size = d.value_size,
          .dtype = heed::detail::dtype_of<T>(),
          .pages = pages,
          .page_keys = page_keys};
}

}  // namespace heed_test
