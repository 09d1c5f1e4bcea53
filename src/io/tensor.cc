// Sizes of tensors, checked, and the memory that they may take.
#include "io/tensor.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "heed/error.h"
#include "io/messages.h"

namespace heed {
namespace {

std::vector<std::byte> zeros(const std::string& label, std::int64_t bytes) {
  try {
    return std::vector<std::byte>(static_cast<std::size_t>(bytes));
  } catch (const std::exception&) {  // bad_alloc, or length_error above PTRDIFF_MAX
    throw Error(ErrorKind::memory,
                label + ": cannot allocate " + io::count_of(bytes, "byte") + " for a tensor");
  }
}

template <typename View, typename T>
View view_as(T& tensor) {
  if (tensor.shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw Error("view_of: the tensor has " + std::to_string(tensor.shape.size()) +
                " axes; at most 4 can be viewed");
  }
  io::check_dense("view_of", tensor);
  View view{tensor.data.data(), tensor.dtype, static_cast<int>(tensor.shape.size()), {}, {}};
  std::int64_t stride = 1;
  for (std::size_t axis = tensor.shape.size(); axis-- > 0;) {
    view.shape[axis] = tensor.shape[axis];
    view.stride[axis] = stride;
    stride *= std::max<std::int64_t>(tensor.shape[axis], 1);
  }
  return view;
}

}  // namespace

namespace io {

std::optional<std::int64_t> dense_bytes(DType dtype, std::span<const std::int64_t> shape) noexcept {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (const std::int64_t axis : shape) {
    if (axis < 0) return {};
    if (axis == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, axis, &bytes)) {
      return {};
    }
  }
  return empty ? 0 : bytes;
}

std::string text_of(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string in_brief(std::span<const std::int64_t> shape) {
  constexpr std::size_t kShown = 8;
  if (shape.size() <= 2 * kShown) return text_of(shape);
  std::string text = text_of(shape.first(kShown));
  text.back() = ',';
  return text + " and " + std::to_string(shape.size() - kShown) + " axes more)";
}

Budget::Budget(std::string label, std::int64_t limit)
    : label_(std::move(label)), limit_(limit > 0 ? limit : memory_budget()) {
  if (limit < 0) throw Error(label_ + ": max_bytes is " + std::to_string(limit) + "; it is >= 0");
}

Tensor Budget::allocate(DType dtype, std::vector<std::int64_t> shape, std::int64_t bytes) {
  if (bytes > limit_ - used_) {
    throw Error(ErrorKind::memory, label_ + ": expected tensors of at most " +
                                       count_of(limit_, "byte") + " together, found one of " +
                                       std::to_string(bytes) + " after " + std::to_string(used_));
  }
  used_ += bytes;
  return {dtype, std::move(shape), zeros(label_, bytes)};
}

void Budget::take_header(std::int64_t bytes) {
  // An entry of metadata costs most: "abcd":"", has 10 bytes, its node in a map 112 with the
  // allocator's own, and the text stands beside it: 12 to 1, measured, and vectors grow. Ordinary
  // headers are free, so that max_bytes is what the tensors of an ordinary file take.
  constexpr std::int64_t kFree = 65'536;
  constexpr std::int64_t kFactor = 16;
  const std::int64_t counted = bytes > kFree ? kFactor * (bytes - kFree) : 0;
  if (counted > limit_ - used_) {
    throw Error(ErrorKind::memory, label_ + ": expected a header whose names take at most " +
                                       count_of(limit_, "byte") + ", found one of " +
                                       std::to_string(bytes) + " bytes, which may take " +
                                       std::to_string(counted));
  }
  used_ += counted;
}

void Budget::take_text(std::int64_t bytes) {
  if (bytes > limit_ - used_) {
    throw Error(ErrorKind::memory, label_ + ": expected a text of at most " +
                                       count_of(limit_, "byte") + ", found " +
                                       std::to_string(bytes));
  }
  used_ += bytes;
}

void check_type(const std::string& label, DType dtype) {
  if (size_of(dtype) > 0) return;
  throw Error(label + ": dtype is " + std::to_string(static_cast<int>(dtype)) +
              ", which is no DType");
}

void check_dense(const std::string& label, const Tensor& tensor) {
  check_type(label, tensor.dtype);
  const auto bytes = dense_bytes(tensor.dtype, tensor.shape);
  if (!bytes || static_cast<std::uint64_t>(*bytes) != tensor.data.size()) {
    throw Error(label + ": a tensor of shape " + in_brief(tensor.shape) + " and type " +
                std::string(name_of(tensor.dtype)) + " has " +
                count_of(static_cast<std::int64_t>(tensor.data.size()), "byte") + " of data; " +
                (bytes ? "it takes " + std::to_string(*bytes) : "no memory can hold it"));
  }
}

}  // namespace io

Tensor make_tensor(DType dtype, std::vector<std::int64_t> shape) {
  io::check_type("make_tensor", dtype);
  const auto bytes = io::dense_bytes(dtype, shape);
  if (!bytes) {
    throw Error("make_tensor: shape " + io::in_brief(shape) + " of " + std::string(name_of(dtype)) +
                " is negative or exceeds what can be addressed");
  }
  return {dtype, std::move(shape), zeros("make_tensor", *bytes)};
}

ConstTensorView view_of(const Tensor& tensor) { return view_as<ConstTensorView>(tensor); }
TensorView view_of(Tensor& tensor) { return view_as<TensorView>(tensor); }

}  // namespace heed
