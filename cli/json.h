// The type of JSON values, declared: who makes or reads one includes <nlohmann/json.hpp>, which
// takes seconds to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace heed::cli {

/// To be begun as what it becomes, Json::object() or Json::array(): one that is null and becomes it
/// by [] or push_back is destroyed as such even if the memory for it could not be had, which ends
/// the process (3.11.2).
using Json = nlohmann::ordered_json;

}  // namespace heed::cli
