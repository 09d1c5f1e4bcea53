// Parameters of modules in files: which part of which tensor each one is.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "attention/lists.h"
#include "heed/error.h"
#include "heed/modules_io.h"
#include "io/messages.h"
#include "io/tensor.h"

namespace heed {
namespace {

using Shape = std::vector<std::int64_t>;
constexpr const char* kLists = "parameters";  // for which there may be no memory

/// Numbers [offset, offset + those of the parameter) of a tensor of this shape.
struct Piece {
  std::string tensor;
  Shape shape;
  std::int64_t offset = 0;
  const Parameter* parameter = nullptr;
};

/// "block.W_q" is the W_q of "block."
std::pair<std::string, std::string> split(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
  return {name.substr(0, begin), name.substr(begin)};
}

/// Numbers of a shape; none where it is negative or bytes of its sizes, but 0, exceed 63 bits.
std::optional<std::int64_t> numbers_of(const Shape& shape) {
  std::int64_t bytes = sizeof(float);
  bool empty = false;
  for (const std::int64_t size : shape) {
    empty |= size == 0;
    if (size < 0 || (size > 0 && __builtin_mul_overflow(bytes, size, &bytes))) return {};
  }
  return empty ? 0 : bytes / static_cast<std::int64_t>(sizeof(float));
}

/// Where parameters lie in a file, and what it must not have.
class Layout {
 public:
  Layout(const char* function, const std::vector<Parameter>& parameters,
         const ParameterNames& names, const TensorFile* file)
      : function_(function), file_(file) {
    if (names.names != Names::heed && names.names != Names::torch) {
      fail("names is " + std::to_string(static_cast<int>(names.names)) + ", which is no Names");
    }
    for (const Parameter& p : parameters) {
      check_numbers(p);
      const auto [group, name] = split(p.name);
      if (!groups_[group].emplace(name, &p).second) {
        fail("two parameters are called " + p.name +
             "; expected names that differ, as prefixed() makes them");
      }
    }
    for (const auto& [group, members] : groups_) {
      const bool attention = std::ranges::any_of(
          kWeights, [&members = members](auto name) { return members.count(name) > 0; });
      if (names.names == Names::torch && attention) {
        add_torch(names.prefix + group, members);
      } else {
        for (const auto& [name, p] : members) add(names.prefix + group + name, p->shape, 0, *p);
        if (attention) {
          forbid(names.prefix + group, kOptional);
        } else {
          forbid(names.prefix + group, kOptionalOfLinear);
        }
      }
    }
  }

  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }

  /// Names of the weights that pieces have, in PyTorch's other layout of them.
  [[nodiscard]] const std::vector<std::string>& elsewhere() const { return elsewhere_; }

  /// Throws if the file has what no parameter takes, and should.
  void refuse_others() const {
    for (const std::string& name : forbidden_) {
      const bool taken = std::any_of(pieces_.begin(), pieces_.end(),
                                     [&](const Piece& piece) { return piece.tensor == name; });
      if (!taken && is_in_file(name)) {
        fail("the file has " + name + ", but the module no such parameter");
      }
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(std::string(function_) + ": " + io::escaped(what));  // names of tensors
  }

 private:
  using Members = std::map<std::string, const Parameter*, std::less<>>;
  static constexpr std::array<std::string_view, 4> kWeights{"W_q", "W_k", "W_v", "W_o"};
  static constexpr std::array<std::string_view, 4> kBiases{"b_q", "b_k", "b_v", "b_o"};
  static constexpr std::array<std::string_view, 5> kOptional{"b_q", "b_k", "b_v", "b_o",
                                                             "temperature"};
  static constexpr std::array<std::string_view, 1> kOptionalOfLinear{"bias"};
  static constexpr std::array<std::string_view, 4> kOptionalOfTorch{"in_proj_bias", "out_proj.bias",
                                                                    "bias_k", "bias_v"};

  /// As many numbers as its shape says.
  void check_numbers(const Parameter& p) const {
    const auto numbers = numbers_of(p.shape);
    if (!numbers) {
      fail(p.name + " has shape " + io::in_brief(p.shape) +
           "; expected sizes of 0 or more that fit 63 bits of bytes together");
    }
    if (p.values.size() != static_cast<std::uint64_t>(*numbers)) {
      fail(p.name + " has " + std::to_string(p.values.size()) +
           " numbers; expected those of shape " + io::in_brief(p.shape));
    }
  }

  void add(std::string tensor, Shape shape, std::int64_t offset, const Parameter& p) {
    if (!taken_.emplace(tensor, offset).second) {
      fail("two parameters would be " + tensor +
           "; expected names that differ, as prefixed() makes them");
    }
    pieces_.push_back({std::move(tensor), std::move(shape), offset, &p});
  }
  template <typename Tensors>
  void forbid(const std::string& prefix, const Tensors& tensors) {
    for (const std::string_view name : tensors) forbidden_.push_back(prefix + std::string(name));
  }

  /// Throws unless all of these names are there.
  template <typename Names>
  void expect_all(const Members& members, const Names& names, const char* what) const {
    for (const std::string_view name : names) {
      if (members.count(name) > 0) continue;
      fail(std::string(name) + " is missing; expected all " + what +
           " of PyTorch's nn.MultiheadAttention");
    }
  }

  /// PyTorch knows one size E beside those of keys and values.
  void check_torch(const Members& members) const {
    expect_all(members, kWeights, "weights");
    const bool biased = std::ranges::any_of(
        kBiases, [&](std::string_view name) { return members.count(name) > 0; });
    if (biased) expect_all(members, kBiases, "biases, or none,");
    const Shape& of_queries = members.find("W_q")->second->shape;
    const std::int64_t e = of_queries.empty() ? 0 : of_queries.back();
    const auto check_shape = [&](const std::string& name, const Shape& shape) {
      const bool weight = std::ranges::find(kWeights, name) != kWeights.end();
      const bool known = weight || std::ranges::find(kBiases, name) != kBiases.end();
      const bool square = name == "W_q" || name == "W_o" || shape.empty();
      const Shape expected = weight ? Shape{e, square ? e : shape.back()} : Shape{e};
      if (!known || shape != expected) {
        fail(name + " has shape " + io::in_brief(shape) + "; " +
             (known ? "expected " + io::in_brief(expected) + " of PyTorch's nn.MultiheadAttention"
                    : "expected none, since PyTorch's nn.MultiheadAttention has weights and "
                      "biases alone"));
      }
    };
    check_shape("W_q", of_queries);
    for (const auto& [name, p] : members) check_shape(name, p->shape);
  }

  void add_torch(const std::string& prefix, const Members& members) {
    check_torch(members);
    const std::int64_t e = members.at("W_q")->shape[1];
    bool packed = !is_in_file(prefix + "q_proj_weight");
    for (const char* name : {"W_k", "W_v"}) packed &= members.at(name)->shape[1] == e;
    const std::string all = prefix + "in_proj_weight";
    if (!packed) elsewhere_.push_back(all);
    std::int64_t part = 0;
    for (const std::string letter : {"q", "k", "v"}) {
      const Parameter& weight = *members.at("W_" + letter);
      const std::string one = prefix + letter + "_proj_weight";
      if (is_in_file(all) && is_in_file(one)) {
        fail("the file has " + all + " and " + one + "; expected one of the two, for both hold W_" +
             letter);
      }
      if (packed) {
        add(all, {3 * e, e}, part * e * e, weight);
        elsewhere_.push_back(one);
      } else {
        add(one, weight.shape, 0, weight);
      }
      if (members.count("b_" + letter) > 0) {
        add(prefix + "in_proj_bias", {3 * e}, part * e, *members.at("b_" + letter));
      }
      ++part;
    }
    add(prefix + "out_proj.weight", {e, e}, 0, *members.at("W_o"));
    if (members.count("b_o") > 0) add(prefix + "out_proj.bias", {e}, 0, *members.at("b_o"));
    forbid(prefix, kOptionalOfTorch);
  }

  [[nodiscard]] bool is_in_file(const std::string& tensor) const {
    return file_ != nullptr && file_->tensors.count(tensor) > 0;
  }

  const char* function_;
  const TensorFile* file_;  ///< to be read; none where one is to be written
  std::map<std::string, Members> groups_;
  std::vector<Piece> pieces_;
  std::set<std::pair<std::string, std::int64_t>> taken_;  ///< tensors and offsets of pieces
  std::vector<std::string> forbidden_, elsewhere_;
};

std::byte* part_of(std::byte* data, const Piece& piece) {
  return data + piece.offset * static_cast<std::int64_t>(sizeof(float));
}

void get(const char* function, const TensorFile& file, const std::vector<Parameter>& parameters,
         const ParameterNames& names) {
  const Layout layout(function, parameters, names, &file);
  layout.refuse_others();
  std::map<std::string, Tensor> converted;
  const auto is_float = [](const Tensor& tensor) { return tensor.dtype == DType::f32; };
  for (const Piece& piece : layout.pieces()) {
    const auto found = file.tensors.find(piece.tensor);
    if (found == file.tensors.end()) {
      layout.fail("the file has no " + piece.tensor + "; expected it with shape " +
                  io::in_brief(piece.shape));
    }
    const Tensor& tensor = found->second;
    if (tensor.shape != piece.shape) {
      layout.fail(piece.tensor + " has shape " + io::in_brief(tensor.shape) + "; expected " +
                  io::in_brief(piece.shape));
    }
    if (!is_floating(tensor.dtype)) {
      layout.fail(piece.tensor + " is " + std::string(name_of(tensor.dtype)) +
                  "; expected a floating-point type");
    }
    const auto bytes =
        static_cast<std::uint64_t>(numbers_of(tensor.shape).value()) * size_of(tensor.dtype);
    if (tensor.data.size() != bytes) {
      layout.fail(piece.tensor + " has " + std::to_string(tensor.data.size()) +
                  " bytes of data; expected " + std::to_string(bytes) + ", those of " +
                  std::string(name_of(tensor.dtype)) + " " + io::in_brief(tensor.shape));
    }
    if (!is_float(tensor) && converted.count(piece.tensor) == 0) {
      converted[piece.tensor] = convert(tensor, DType::f32);
    }
  }
  for (const Piece& piece : layout.pieces()) {
    const Tensor& tensor = file.tensors.at(piece.tensor);
    const Tensor& from = is_float(tensor) ? tensor : converted.at(piece.tensor);
    const std::span<float> to = piece.parameter->values;
    if (to.empty()) continue;  // it may have no address
    std::memcpy(to.data(), part_of(const_cast<std::byte*>(from.data.data()), piece),
                to.size_bytes());
  }
}

void put(const char* function, TensorFile& file, const std::vector<Parameter>& parameters,
         const ParameterNames& names) {
  const Layout layout(function, parameters, names, nullptr);
  std::map<std::string, Tensor> made;
  for (const Piece& piece : layout.pieces()) {
    if (made.count(piece.tensor) == 0) {
      made[piece.tensor] = make_tensor(DType::f32, piece.shape);
    }
    const std::span<const float> from = piece.parameter->values;
    if (from.empty()) continue;  // it may have no address
    std::memcpy(part_of(made[piece.tensor].data.data(), piece), from.data(), from.size_bytes());
  }
  made.merge(file.tensors);  // those under other names; moves them, so that nothing can fail
  for (const std::string& tensor : layout.elsewhere()) made.erase(tensor);
  file.tensors.swap(made);
}

}  // namespace

void put_parameters(TensorFile& file, const std::vector<Parameter>& parameters,
                    const ParameterNames& names) {
  constexpr const char* kFunction = "put_parameters";
  with_lists(
      kFunction, [&] { put(kFunction, file, parameters, names); }, kLists);
}

void get_parameters(const TensorFile& file, const std::vector<Parameter>& parameters,
                    const ParameterNames& names) {
  constexpr const char* kFunction = "get_parameters";
  with_lists(
      kFunction, [&] { get(kFunction, file, parameters, names); }, kLists);
}

void save_parameters(const std::string& path, const std::vector<Parameter>& parameters,
                     const ParameterNames& names) {
  constexpr const char* kFunction = "save_parameters";
  const auto save = [&] {
    if (path.ends_with(".npy")) {  // load_parameters would not find its parameter there
      throw Error(std::string(kFunction) + ": " + io::label_of(path) +
                  ": .npy holds no names; write .npz or .safetensors");
    }
    TensorFile file;
    put(kFunction, file, parameters, names);
    write_tensors(path, file);
  };
  with_lists(kFunction, save, kLists);
}

void load_parameters(const std::string& path, const std::vector<Parameter>& parameters,
                     const ParameterNames& names) {
  constexpr const char* kFunction = "load_parameters";
  const auto load = [&] {
    const std::string told = std::string(kFunction) + ": " + io::label_of(path);  // whose fault
    get(told.c_str(), read_tensors(path), parameters, names);
  };
  with_lists(kFunction, load, kLists);
}

}  // namespace heed
