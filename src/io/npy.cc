// Elements of .npy files, and the header to write.
#include "io/npy.h"

#include <algorithm>
#include <cstring>

#include "heed/error.h"
#include "io/messages.h"

namespace heed::io {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20U;

/// Reverses the bytes of each element of `size` bytes.
void swap_bytes(std::span<std::byte> data, std::size_t size) {
  for (std::size_t at = 0; at < data.size(); at += size) {
    std::reverse(data.data() + at, data.data() + at + size);
  }
}

/// Elements that come first axis fastest, put where they belong in a tensor whose last axis is
/// fastest. It works through a chunk at a time, so that the tensor is in memory once.
class FortranOrder {
 public:
  explicit FortranOrder(Tensor& tensor)
      : tensor_(tensor), index_(tensor.shape.size()), stride_(tensor.shape.size()) {
    auto stride = static_cast<std::int64_t>(size_of(tensor.dtype));
    for (std::size_t axis = stride_.size(); axis-- > 0; stride *= tensor.shape[axis]) {
      stride_[axis] = stride;
    }
  }

  void put(std::span<const std::byte> elements) {
    const std::size_t size = size_of(tensor_.dtype);
    for (std::size_t at = 0; at < elements.size(); at += size) {
      std::memcpy(tensor_.data.data() + to_, elements.data() + at, size);
      step();
    }
  }

 private:
  void step() {
    for (std::size_t axis = 0; axis < index_.size(); ++axis) {
      to_ += stride_[axis];
      if (++index_[axis] < tensor_.shape[axis]) return;
      to_ -= stride_[axis] * index_[axis];
      index_[axis] = 0;
    }
  }

  Tensor& tensor_;
  std::vector<std::int64_t> index_;
  std::vector<std::int64_t> stride_;  // bytes
  std::int64_t to_ = 0;               // bytes
};

void read_elements(Stream& stream, const NpyHeader& header, Tensor& tensor) {
  const std::size_t size = size_of(tensor.dtype);
  const std::size_t swapped = header.big_endian ? size : 1;
  const std::span<std::byte> data(tensor.data);
  if (!header.fortran_order) {
    stream.read(data, "data");
    if (swapped > 1) swap_bytes(data, size);
    return;
  }
  FortranOrder order(tensor);
  std::vector<std::byte> chunk(std::min(kChunk, data.size()));
  for (std::size_t at = 0; at < data.size(); at += kChunk) {
    const auto part = std::span(chunk).first(std::min(kChunk, data.size() - at));
    stream.read(part, "data");
    if (swapped > 1) swap_bytes(part, size);
    order.put(part);
  }
}

std::string descr_of(const std::string& label, DType dtype) {
  if (dtype == DType::bf16) {
    throw Error(label + ": bfloat16 has no name in .npy; convert to float32 or write .safetensors");
  }
  const std::size_t size = size_of(dtype);
  const char kind = dtype == DType::boolean              ? 'b'
                    : is_floating(dtype)                 ? 'f'
                    : name_of(dtype).starts_with("uint") ? 'u'
                                                         : 'i';
  return std::string(size == 1 ? "|" : "<") + kind + std::to_string(size);
}

}  // namespace

Tensor read_npy(Stream& stream, Budget& budget, std::int64_t* trailing) {
  NpyHeader header = read_npy_header(stream);
  const auto bytes = dense_bytes(header.dtype, header.shape);
  const std::string said =
      count_of(bytes.value_or(0), "byte") + " of data for shape " + in_brief(header.shape);
  if (!bytes) {
    stream.refuse("a shape of less than 2^63 bytes", in_brief(header.shape), header.shape_offset);
  }
  const std::int64_t surplus = stream.remaining() - *bytes;
  if (surplus < 0 || (surplus > 0 && trailing == nullptr)) {
    stream.refuse(said, std::to_string(stream.remaining()), stream.offset());
  }
  Tensor tensor = budget.allocate(header.dtype, std::move(header.shape), *bytes);
  read_elements(stream, header, tensor);
  if (trailing != nullptr) *trailing = surplus;
  return tensor;
}

std::string npy_header(const std::string& label, const Tensor& tensor) {
  if (tensor.shape.size() > kNpyMaxRank) {
    throw Error(label + ": a tensor has " + std::to_string(tensor.shape.size()) +
                " axes; .npy holds at most 64");
  }
  std::string dictionary = "{'descr': '" + descr_of(label, tensor.dtype) +
                           "', 'fortran_order': False, 'shape': " + text_of(tensor.shape) + ", }";
  constexpr std::size_t kLead = 10;  // magic, version, length
  constexpr std::size_t kAlignment = 64;
  const std::size_t total =
      (kLead + dictionary.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dictionary.append(total - kLead - dictionary.size() - 1, ' ');
  dictionary += '\n';
  std::string header(kNpyMagic);
  header += {'\1', '\0', static_cast<char>(dictionary.size() & 0xFFU),
             static_cast<char>(dictionary.size() >> 8U)};
  return header + dictionary;
}

}  // namespace heed::io
