// Finds out which kind of file it is, and hands over to the reader or writer of that kind.
#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <string_view>

#include "heed/error.h"
#include "heed/io.h"
#include "io/input_file.h"
#include "io/messages.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/output_file.h"
#include "io/safetensors.h"

namespace heed {
namespace {

constexpr std::size_t kMostZipName = 0xFFFF - 4;  // without ".npy"

enum class Kind { npy, npz, safetensors, unknown };

Kind kind_of_name(const std::string& path) {
  if (path.ends_with(".npy")) return Kind::npy;
  if (path.ends_with(".npz")) return Kind::npz;
  if (path.ends_with(".safetensors")) return Kind::safetensors;
  return Kind::unknown;
}

/// By the first bytes; the name decides only for what is none of the three, so that the reader says
/// what is wrong with it.
Kind kind_of(const io::InputFile& file, const std::string& path) {
  std::array<std::byte, 9> lead{};
  const auto bytes = std::span(lead).first(
      static_cast<std::size_t>(std::min<std::int64_t>(file.size(), lead.size())));
  file.read(bytes, 0, "data");
  const std::string_view text = io::text_of(bytes);
  if (text.starts_with(io::kNpyMagic)) return Kind::npy;
  if (text.starts_with("PK\3\4") || text.starts_with("PK\5\6")) return Kind::npz;
  if (text.size() == lead.size() && text.back() == '{') return Kind::safetensors;
  const Kind kind = kind_of_name(path);
  if (kind == Kind::unknown) {
    io::refuse(file.label(), "the start of a .npy, .npz or .safetensors file", io::in_quotes(text),
               0);
  }
  return kind;
}

Kind checked_kind_of_name(const std::string& path) {
  const Kind kind = kind_of_name(path);
  if (kind == Kind::unknown) {
    throw Error(io::label_of(path) + ": the name must end in .npy, .npz or .safetensors");
  }
  return kind;
}

/// Of names in .npz, which libzip would take for another encoding than UTF-8.
bool has_control_character(std::string_view name) noexcept {
  return std::ranges::any_of(
      name, [](char c) { return c >= 0 && c < ' ' && c != '\t' && c != '\n' && c != '\r'; });
}

/// What the kind of file cannot hold is said before any file is made.
void check(const std::string& label, Kind kind, const TensorFile& file) {
  for (const auto& [name, tensor] : file.tensors) {
    const std::string who = label + ": " + io::in_quotes(name);
    io::check_dense(who, tensor);
    if (kind != Kind::safetensors) (void)io::npy_header(who, tensor);
    if (kind != Kind::npy && !io::is_utf8(name)) throw Error(who + ": names must be UTF-8");
    if (kind == Kind::npz && !io::is_legal_member(name + ".npy")) {
      throw Error(who + ": names in .npz are relative paths without \"..\"");
    }
    if (kind == Kind::npz && has_control_character(name)) {
      throw Error(who + ": names in .npz hold no control character but tab and ends of lines");
    }
    if (kind == Kind::npz && name.size() > kMostZipName) {
      throw Error(who + ": names in .npz have at most 65531 bytes, not " +
                  std::to_string(name.size()));
    }
  }
  if (kind == Kind::npy && file.tensors.size() != 1) {
    throw Error(label + ": .npy holds one tensor, not " + std::to_string(file.tensors.size()) +
                "; write .npz or .safetensors");
  }
  if (kind != Kind::safetensors && !file.metadata.empty()) {
    throw Error(label + ": only .safetensors holds metadata");
  }
  for (const auto& [key, value] : file.metadata) {
    if (!io::is_utf8(key) || !io::is_utf8(value)) {
      throw Error(label + ": metadata " + io::in_quotes(key) + " must be UTF-8");
    }
  }
}

[[noreturn]] void out_of_memory(const std::string& path, std::int64_t bytes) {
  throw Error(ErrorKind::memory, io::label_of(path) + ": not enough memory for a file of " +
                                     io::count_of(bytes, "byte"));
}

}  // namespace

TensorFile read_tensors(const std::string& path, const ReadOptions& options) {
  std::int64_t size = 0;
  try {
    const io::InputFile file(path);
    size = file.size();
    io::Budget budget(file.label(), options.max_bytes);
    TensorFile result;
    switch (kind_of(file, path)) {
      case Kind::npy: {
        io::FileStream stream(file);
        std::int64_t* trailing = options.allow_trailing ? &result.trailing_bytes : nullptr;
        result.tensors.emplace("", io::read_npy(stream, budget, trailing));
        break;
      }
      case Kind::npz:
        io::read_npz(file, budget, options.allow_trailing, result);
        break;
      default:
        io::read_safetensors(file, budget, options.allow_trailing, result);
    }
    file.check_unchanged();
    return result;
  } catch (const std::bad_alloc&) {
    out_of_memory(path, size);
  }
}

std::string read_text(const std::string& path, std::int64_t max_bytes) {
  std::int64_t size = 0;
  try {
    const io::InputFile file(path);
    size = file.size();
    io::Budget(file.label(), max_bytes).take_text(size);
    std::string text(static_cast<std::size_t>(size), '\0');
    file.read(std::as_writable_bytes(std::span(text)), 0, "text");
    file.check_unchanged();
    return text;
  } catch (const std::bad_alloc&) {
    out_of_memory(path, size);
  }
}

void write_tensors(const std::string& path, const TensorFile& file) {
  std::int64_t size = 0;
  for (const auto& [name, tensor] : file.tensors) {
    size += static_cast<std::int64_t>(tensor.data.size());
  }
  try {
    const Kind kind = checked_kind_of_name(path);
    check(io::label_of(path), kind, file);
    const io::FileSizeSignalBlocked blocked;
    io::OutputFile output(path);
    if (kind == Kind::npy) {
      const Tensor& tensor = file.tensors.begin()->second;
      output.write(io::npy_header(output.label(), tensor));
      output.write(tensor.data);
    } else if (kind == Kind::npz) {
      io::write_npz(output, file);
    } else {
      io::write_safetensors(output, file);
    }
    output.commit();
  } catch (const std::bad_alloc&) {
    out_of_memory(path, size);
  }
}

void write_text(const std::string& path, std::string_view text) {
  try {
    const io::FileSizeSignalBlocked blocked;
    io::OutputFile output(path);
    output.write(std::as_bytes(std::span(text)));
    output.commit();
  } catch (const std::bad_alloc&) {
    out_of_memory(path, static_cast<std::int64_t>(text.size()));
  }
}

void check_writable(const std::string& path) {
  checked_kind_of_name(path);
  const io::OutputFile file(path);
}

}  // namespace heed
