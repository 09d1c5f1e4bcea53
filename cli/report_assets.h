// What every page has: cli/report, as it stands there.
#pragma once

namespace heed::cli {

extern const char* const kReportStyle;
extern const char* const kReportPage;
extern const char* const kReportScript;

}  // namespace heed::cli
