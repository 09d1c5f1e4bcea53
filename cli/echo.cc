// Values of flags into JSON.
#include "echo.h"

#include <cmath>

namespace heed::cli {
namespace {

template <typename List>
Json echo_list_or_file(const List& value) {
  if (!value.file.empty()) return value.file;
  if (value.list.size() == 1) return echo(value.list[0]);
  Json list;
  for (const auto one : value.list) list.push_back(echo(one));
  return list;
}

}  // namespace

Json echo(bool value) { return value; }
Json echo(const std::string& value) { return value.empty() ? Json() : Json(value); }
Json echo(const std::vector<std::string>& value) { return value; }
Json echo(const std::vector<std::int64_t>& value) { return value; }
Json echo(const std::optional<double>& value) { return value ? echo(*value) : Json(); }
/// JSON has no number that is not finite: the word that flags take for it.
Json echo(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}
Json echo(std::int64_t value) { return value; }
Json echo(const Numbers& value) { return echo_list_or_file(value); }
Json echo(const Integers& value) { return echo_list_or_file(value); }
Json echo(const HeadList& value) { return echo(value.words); }
Json echo(const Bytes& value) { return value.count > 0 ? Json(value.count) : Json(); }
Json echo(Layout value) { return name_of(value); }
Json echo(DecodeOrder value) { return name_of(value); }
Json echo(DType value) { return name_of(value); }
Json echo(const std::optional<DType>& value) { return value ? echo(*value) : Json(); }

Json echo(const Window& value) {
  const auto side = [](std::int64_t keys) { return keys == kUnlimited ? Json() : Json(keys); };
  return Json::array({side(value.left), side(value.right)});
}

Json echo(const Pair<'/'>& value) { return Json::array({value.first, value.second}); }
Json echo(const Pair<'x'>& value) { return Json::array({value.first, value.second}); }

}  // namespace heed::cli
