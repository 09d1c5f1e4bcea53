// Strided views of memory that somebody else owns: what heed reads from and writes to.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

namespace heed {

/// Element types. float16 and bfloat16 are carried as 16-bit patterns.
enum class DType : std::uint8_t {
  boolean,  ///< one byte; anything but 0 is true
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f16,
  bf16,
  f32,
  f64,
};

/// Bytes of one element; 0 for a number that is no DType.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  constexpr std::array<std::uint8_t, 13> kBytes{1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  const auto at = static_cast<std::size_t>(dtype);
  return at < kBytes.size() ? kBytes[at] : 0;
}

/// The name that NumPy uses: "float32", "bfloat16", "bool", ..; "no DType" for a number that is
/// none.
[[nodiscard]] constexpr std::string_view name_of(DType dtype) noexcept {
  constexpr std::array<std::string_view, 13> kNames{
      "bool",   "uint8", "int8",    "uint16",   "int16",   "uint32", "int32",
      "uint64", "int64", "float16", "bfloat16", "float32", "float64"};
  const auto at = static_cast<std::size_t>(dtype);
  return at < kNames.size() ? kNames[at] : "no DType";
}

/// float16, bfloat16, float32 or float64.
[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept {
  return dtype >= DType::f16 && dtype <= DType::f64;
}

/// bool or any integer: what `keep` and `drop` masks may be made of.
[[nodiscard]] constexpr bool is_integral(DType dtype) noexcept { return dtype < DType::f16; }

inline constexpr int kMaxRank = 4;

/// A tensor to read: element [i, j, ...] lies `i * stride[0] + j * stride[1] + ...` elements after
/// `data`. Strides count elements, may be 0 (broadcast) or negative, and need not be sorted; `data`
/// may have any alignment. The first `rank` entries of shape and stride count. A
/// default-constructed view is absent: an option or output that was not given.
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> stride{};

  [[nodiscard]] constexpr bool present() const noexcept { return rank > 0 || data != nullptr; }
};

/// A tensor to write; no two elements may share memory, as strides must show: each axis steps over
/// all that axes of smaller steps reach.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> stride{};

  [[nodiscard]] constexpr bool present() const noexcept { return rank > 0 || data != nullptr; }

  // NOLINTNEXTLINE(google-explicit-constructor): whatever can be written can be read
  constexpr operator ConstTensorView() const noexcept { return {data, dtype, rank, shape, stride}; }
};

namespace detail {
template <typename T>
constexpr DType dtype_of() {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8 &&
                    (sizeof(T) >= 4 || !std::is_floating_point_v<T>),  // C++23 has such of 2 bytes
                "heed: views of this type are built field by field");
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DType::f32 : DType::f64;
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? DType::i8 : DType::u8;
  if constexpr (sizeof(T) == 2) return is_signed ? DType::i16 : DType::u16;
  if constexpr (sizeof(T) == 4) return is_signed ? DType::i32 : DType::u32;
  return is_signed ? DType::i64 : DType::u64;
}

template <typename View, typename Pointer>
constexpr View dense(Pointer data, DType dtype, std::initializer_list<std::int64_t> shape) {
  // More than four axes keep their rank, so that the call that gets the view refuses it.
  View view{data, dtype, static_cast<int>(shape.size()), {}, {}};
  std::int64_t stride = 1;
  for (std::size_t axis = std::min<std::size_t>(shape.size(), kMaxRank); axis-- > 0;) {
    view.shape[axis] = shape.begin()[axis];
    view.stride[axis] = stride;
    if (axis > 0) {  // sizes that overflow are refused by the call that gets the view
      stride = static_cast<std::int64_t>(static_cast<std::uint64_t>(stride) *
                                         static_cast<std::uint64_t>(view.shape[axis]));
    }
  }
  return view;
}

template <typename T>
using ViewOf = std::conditional_t<std::is_const_v<T>, ConstTensorView, TensorView>;
}  // namespace detail

/// Dense memory, last axis fastest: `view(q, {T, D})`, `view(q, {B, T, D})`, `view(q, {B, H, T,
/// D})`, also `view(slopes, {H})`. A pointer to const gives a view to read. At most four axes.
template <typename T>
[[nodiscard]] constexpr detail::ViewOf<T> view(T* data, std::initializer_list<std::int64_t> shape) {
  return detail::dense<detail::ViewOf<T>>(data, detail::dtype_of<std::remove_const_t<T>>(), shape);
}

/// The same for element types that C++ lacks: `view(bits, DType::bf16, {T, D})`.
[[nodiscard]] constexpr ConstTensorView view(const void* data, DType dtype,
                                             std::initializer_list<std::int64_t> shape) {
  return detail::dense<ConstTensorView>(data, dtype, shape);
}
[[nodiscard]] constexpr TensorView view(void* data, DType dtype,
                                        std::initializer_list<std::int64_t> shape) {
  return detail::dense<TensorView>(data, dtype, shape);
}

/// The view with two axes exchanged, nothing moved; 0 <= a, b < 4, which is not checked.
template <typename View>
[[nodiscard]] constexpr View swap_axes(View view, int a, int b) {
  const auto i = static_cast<std::size_t>(a);
  const auto j = static_cast<std::size_t>(b);
  const auto shape = view.shape[i];
  const auto stride = view.stride[i];
  view.shape[i] = view.shape[j];
  view.stride[i] = view.stride[j];
  view.shape[j] = shape;
  view.stride[j] = stride;
  return view;
}

/// Memory laid out [B, T, H, D], seen as [B, H, T, D], which is the order of axes everywhere in
/// heed.
template <typename T>
[[nodiscard]] constexpr detail::ViewOf<T> view_bthd(T* data, std::int64_t batch, std::int64_t rows,
                                                    std::int64_t heads, std::int64_t size) {
  return swap_axes(view(data, {batch, rows, heads, size}), 1, 2);
}

}  // namespace heed
