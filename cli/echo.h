// What a run was told, as JSON: each kind of value that flags take, and all flags that were given.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flag_values.h"
#include "flags.h"
#include "json.h"

namespace heed::cli {

// echo: the value as JSON.
Json echo(bool value);
Json echo(const std::string& value);
Json echo(const std::vector<std::string>& value);
Json echo(const std::vector<std::int64_t>& value);
Json echo(const std::optional<double>& value);
Json echo(double value);
Json echo(std::int64_t value);
Json echo(const Numbers& value);
Json echo(const Integers& value);
Json echo(const HeadList& value);
Json echo(const Bytes& value);
Json echo(Layout value);
Json echo(DecodeOrder value);
Json echo(DType value);
Json echo(const std::optional<DType>& value);
Json echo(const Window& value);
Json echo(const Pair<'/'>& value);
Json echo(const Pair<'x'>& value);

template <typename Number, Number least, Number most>
Json echo(const Whole<Number, least, most>& value) {
  return value.value;
}

template <typename Number, Number least, Number most>
Json echo(const std::optional<Whole<Number, least, most>>& value) {
  return value ? echo(*value) : Json();
}

/// Writes every field that was given under its longest name: what a run was told.
class EchoFlags {
 public:
  EchoFlags(const CLI::App& app, Json& json) : app_(&app), json_(&json) {}

  void group(const char*) {}

  template <typename Value>
  void operator()(const std::string& names, Value& value, const char*, const char*) {
    const std::string name = names.substr(names.rfind(',') + 1);
    if (!given(*app_, name)) return;
    (*json_)[name.substr(name.find_first_not_of('-'))] = echo(std::as_const(value));
  }

 private:
  const CLI::App* app_;
  Json* json_;
};

/// The flags that were given, as JSON.
template <typename Flags>
[[nodiscard]] Json echo_flags(const CLI::App& app, Flags& flags) {
  Json json = Json::object();
  EchoFlags visitor(app, json);
  flags.visit(visitor);
  return json;
}

}  // namespace heed::cli
