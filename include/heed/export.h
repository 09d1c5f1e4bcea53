// HEED_API: what a shared libheed exports. Everything else in it is hidden, and may change at any
// time.
#pragma once

#if defined(__GNUC__)
#define HEED_API __attribute__((visibility("default")))
#else
#define HEED_API
#endif
