// Reads and writes .safetensors.
#include "io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/error.h"
#include "io/messages.h"

namespace heed::io {
namespace {

constexpr std::int64_t kLengthBytes = 8;

/// Refuses elements that do not fill their shape, overlap, or leave bytes to nobody. `entries` are
/// in order of begin and end. Returns the end of the last.
std::int64_t check_layout(const std::string& label, std::int64_t start, std::int64_t available,
                          const std::vector<SafetensorsEntry>& entries) {
  std::int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::string who = "tensor " + in_quotes(entry.name);
    std::string where = std::to_string(entry.begin);
    where += " to " + std::to_string(entry.end);
    const auto bytes = dense_bytes(entry.dtype, entry.shape);
    if (!bytes) {
      refuse(label, "a shape of less than 2^63 bytes for " + who, in_brief(entry.shape),
             entry.offset);
    }
    if (entry.begin > entry.end) {
      refuse(label, "offsets in ascending order for " + who, where, entry.offset);
    }
    if (entry.end - entry.begin != *bytes) {
      refuse(label, count_of(*bytes, "byte") + " for " + who + " of shape " + in_brief(entry.shape),
             std::to_string(entry.end - entry.begin), entry.offset);
    }
    if (entry.begin != end) {
      refuse(label, who + " to begin at " + std::to_string(end) + ", where the one before ends",
             where + (entry.begin < end ? ", an overlap" : ", a hole"), entry.offset);
    }
    end = entry.end;
  }
  if (end > available) {
    refuse(label, count_of(end, "byte") + " of data", std::to_string(available), start);
  }
  return end;
}

std::string read_header_text(const InputFile& file, Budget& budget) {
  std::array<std::byte, kLengthBytes> length{};
  file.read(length, 0, "header length");
  const std::uint64_t bytes = little_endian(length);
  if (bytes > static_cast<std::uint64_t>(kSafetensorsMaxHeader)) {
    refuse(file.label(), "a header of at most 100000000 bytes", std::to_string(bytes), 0);
  }
  if (static_cast<std::int64_t>(bytes) > file.size() - kLengthBytes) {
    refuse(file.label(), count_of(static_cast<std::int64_t>(bytes), "byte") + " of header",
           std::to_string(file.size() - kLengthBytes), kLengthBytes);
  }
  budget.take_header(static_cast<std::int64_t>(bytes));
  std::string text(bytes, '\0');
  file.read(std::as_writable_bytes(std::span(text)), kLengthBytes, "header");
  if (!text.starts_with('{')) {
    refuse(file.label(), "a header that starts with \"{\"", in_quotes(text.substr(0, 1)),
           kLengthBytes);
  }
  return text;
}

/// Text as a JSON string. A JSON object is not built: its destructor allocates, and ends the
/// process where that fails.
std::string json(std::string_view text) { return nlohmann::json(std::string(text)).dump(); }

/// Begins another entry of a list in JSON text.
std::string& next(std::string& text) {
  if (text.back() != '{' && text.back() != '[') text += ',';
  return text;
}

std::string header_text(const std::string& label,
                        const std::vector<std::pair<std::string_view, const Tensor*>>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += R"("__metadata__":{)";
    for (const auto& [key, value] : metadata) next(text) += json(key) + ':' + json(value);
    text += '}';
  }
  std::int64_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__") {
      throw Error(label + ": no tensor can be called \"__metadata__\" in .safetensors");
    }
    next(text) += json(name) + R"(:{"dtype":)";
    text += json(kSafetensorsNames[static_cast<std::size_t>(tensor->dtype)]) + R"(,"shape":[)";
    for (const std::int64_t axis : tensor->shape) next(text) += std::to_string(axis);
    const auto end = begin + static_cast<std::int64_t>(tensor->data.size());
    text += R"(],"data_offsets":[)" + std::to_string(begin) + ',' + std::to_string(end) + "]}";
    begin = end;
  }
  text += '}';
  constexpr auto kAligned = static_cast<std::size_t>(kLengthBytes);
  text.append((kAligned - text.size() % kAligned) % kAligned, ' ');
  if (text.size() > static_cast<std::size_t>(kSafetensorsMaxHeader)) {
    throw Error(label + ": the names and metadata take " + std::to_string(text.size()) +
                " bytes; .safetensors holds at most 100000000");
  }
  return text;
}

}  // namespace

void read_safetensors(const InputFile& file, Budget& budget, bool allow_trailing,
                      TensorFile& result) {
  const std::string text = read_header_text(file, budget);
  SafetensorsHeader header = parse_safetensors_header(file.label(), text);
  std::ranges::sort(header.entries, {}, [](const SafetensorsEntry& entry) {
    return std::pair(entry.begin, entry.end);
  });
  const std::int64_t start = kLengthBytes + static_cast<std::int64_t>(text.size());
  const std::int64_t available = file.size() - start;
  const std::int64_t used = check_layout(file.label(), start, available, header.entries);
  if (used < available && !allow_trailing) {
    refuse(file.label(), "the end of the file",
           count_of(available - used, "byte") +
               (available - used == 1 ? " that belongs to no tensor" : " that belong to no tensor"),
           start + used);
  }
  result.trailing_bytes = available - used;
  result.metadata = std::move(header.metadata);
  for (SafetensorsEntry& entry : header.entries) {
    Tensor tensor = budget.allocate(entry.dtype, std::move(entry.shape), entry.end - entry.begin);
    file.read(tensor.data, start + entry.begin, "data");
    result.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
}

void write_safetensors(OutputFile& file, const TensorFile& tensors) {
  std::vector<std::pair<std::string_view, const Tensor*>> order;
  for (const auto& [name, tensor] : tensors.tensors) order.emplace_back(name, &tensor);
  std::ranges::stable_sort(order, std::greater(),
                           [](const auto& entry) { return size_of(entry.second->dtype); });
  const std::string header = header_text(file.label(), order, tensors.metadata);
  std::string length;
  for (int byte = 0; byte < kLengthBytes; ++byte) {
    length += static_cast<char>(header.size() >> (8 * byte) & 0xFFU);
  }
  file.write(length + header);
  for (const auto& [name, tensor] : order) file.write(tensor->data);
}

}  // namespace heed::io
