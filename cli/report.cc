// The page: style, frame, data and script in one file that asks the network for nothing.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "pictures.h"
#include "plain_text.h"
#include "report_assets.h"
#include "report_data.h"
#include "svg.h"

namespace heed::cli {
namespace {

// JSON within <script>: "<" could end it or begin a comment, so it stands there as an escape.
std::string script_safe(const std::string& json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else if (c == '>') {
      safe += "\\u003e";
    } else if (c == '&') {
      safe += "\\u0026";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string page_of(const Inspection& inspection, const Json& data) {
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
      "<title>heed inspect: " +
      xml(plain_text(inspection.source, 200)) + "</title>\n<style>\n";
  page.append(kReportStyle).append("</style>\n</head>\n<body>\n").append(kReportPage);
  page += "<script type=\"application/json\" id=\"data\">";
  page += script_safe(data.dump(-1, ' ', false, Json::error_handler_t::replace));
  page.append("</script>\n<script>\n'use strict';\n").append(kReportScript);
  return page + "</script>\n</body>\n</html>\n";
}

}  // namespace

std::string html_report(const Inspection& inspection) {
  constexpr std::size_t kMostBytes = 5'000'000;
  auto heads = std::min(static_cast<std::int64_t>(inspection.found.size()), kMostReportHeads);
  while (true) {
    std::string page = page_of(inspection, report_data(inspection, heads));
    if (page.size() < kMostBytes || heads <= 1) return page;
    heads /= 2;
  }
}

}  // namespace heed::cli
