// Tensors and options with four axes, and the part of them that belongs to one head.
#include "one_head.h"

#include <cstddef>
#include <cstring>

namespace heed::cli {
namespace {

const std::byte* moved(const ConstTensorView& view, std::int64_t elements) {
  if (view.data == nullptr) return nullptr;  // no elements; it has no address to move
  return static_cast<const std::byte*>(view.data) +
         elements * static_cast<std::int64_t>(size_of(view.dtype));
}

// Right-aligned to four axes; axes of length 1 broadcast.
ConstTensorView part(ConstTensorView view, std::int64_t layer, std::int64_t head) {
  if (!view.present()) return view;
  std::int64_t offset = 0;
  for (int from_end = 3; from_end >= 2; --from_end) {
    if (view.rank <= from_end) continue;
    const auto axis = static_cast<std::size_t>(view.rank - 1 - from_end);
    if (view.shape[axis] == 1) continue;
    offset += (from_end == 3 ? layer : head) * view.stride[axis];
    view.shape[axis] = 1;
  }
  view.data = moved(view, offset);
  return view;
}

ConstTensorView entry_of(ConstTensorView each, std::int64_t i) {
  if (!each.present()) return each;
  each.data = moved(each, i * each.stride[0]);
  each.shape[0] = 1;
  return each;
}

template <typename Setting>
Setting entry_of(Setting setting, std::int64_t i) {
  if (!setting.one && setting.each.present()) setting.each = entry_of(setting.each, i);
  return setting;
}

}  // namespace

ConstTensorView with_four_axes(const ConstTensorView& view) {
  const auto first = static_cast<std::size_t>(view.rank) - 2;
  ConstTensorView wide = view;
  wide.rank = kMaxRank;
  wide.shape = {1, 1, view.shape[first], view.shape[first + 1]};
  wide.stride = {0, 0, view.stride[first], view.stride[first + 1]};
  if (view.rank > 2) {
    wide.shape[0] = view.shape[0];
    wide.stride[0] = view.stride[0];
  }
  if (view.rank > 3) {
    wide.shape[1] = view.shape[1];
    wide.stride[1] = view.stride[1];
  }
  return wide;
}

Call call_of(const ConstTensorView& q, const ConstTensorView& k, const AttentionOptions& options) {
  Call call{with_four_axes(q), with_four_axes(k), options};
  // Where inputs are [B, T, D], a mask of three axes begins with B.
  const auto widened = [&](const ConstTensorView& view) {
    return q.rank == 3 && view.rank == 3 ? with_four_axes(view) : view;
  };
  call.options.bias = widened(options.bias);
  call.options.mask.keep = widened(options.mask.keep);
  call.options.mask.drop = widened(options.mask.drop);
  return call;
}

Call one_head(const Call& call, std::int64_t layer, std::int64_t head) {
  Call one = call;
  one.q = part(call.q, layer, head);
  one.k = part(call.k, layer, head / (call.heads() / call.k.shape[1]));
  AttentionOptions& o = one.options;
  o.scale = entry_of(o.scale, head);
  o.alibi = entry_of(o.alibi, head);
  o.sinks = entry_of(o.sinks, head);
  o.bias = part(o.bias, layer, head);
  o.mask.keep = part(o.mask.keep, layer, head);
  o.mask.drop = part(o.mask.drop, layer, head);
  o.mask.query_start = entry_of(o.mask.query_start, layer);
  o.mask.key_lengths = entry_of(o.mask.key_lengths, layer);
  o.mask.query_lengths = entry_of(o.mask.query_lengths, layer);
  return one;
}

Call mask_alone(const Call& head) {
  Call alone = head;
  alone.q.shape[3] = alone.k.shape[3] = 0;
  AttentionOptions& o = alone.options;
  o.scale = 1.0;
  o.normalize_qk = false;
  o.softcap = {};
  o.alibi = ConstTensorView{};
  return alone;
}

ConstTensorView entry_of(const ConstTensorView& view, std::int64_t layer, std::int64_t head) {
  ConstTensorView one = view;
  one.data = moved(view, layer * view.stride[0] + head * view.stride[1]);
  one.shape[0] = one.shape[1] = 1;
  return one;
}

double element(const ConstTensorView& view, std::int64_t layer, std::int64_t head, std::int64_t row,
               std::int64_t column) {
  const std::byte* const at = moved(view, layer * view.stride[0] + head * view.stride[1] +
                                              row * view.stride[2] + column * view.stride[3]);
  if (view.dtype == DType::f32) {
    float number = 0;
    std::memcpy(&number, at, sizeof number);
    return static_cast<double>(number);
  }
  double number = 0;
  std::memcpy(&number, at, sizeof number);
  return number;
}

std::int64_t number_of(const PerBatch& setting, std::int64_t layer, std::int64_t otherwise) {
  if (setting.one) return *setting.one;
  if (!setting.each.present()) return otherwise;
  const std::byte* const at = moved(setting.each, layer * setting.each.stride[0]);
  if (setting.each.dtype == DType::i32) {
    std::int32_t number = 0;
    std::memcpy(&number, at, sizeof number);
    return number;
  }
  std::int64_t number = 0;
  std::memcpy(&number, at, sizeof number);
  return number;
}

std::int64_t query_start(const Call& call, std::int64_t layer) {
  return number_of(call.options.mask.query_start, layer, 0);
}

}  // namespace heed::cli
