// The oracle with fused products in registers of AVX2, half the time of the core block: the same
// bits, for every fma of it is written out. The full tier runs on no CPU without AVX2 and FMA:
// tests/full/run.py refuses.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma")
#endif
#include "oracle/attention.cc"  // NOLINT(bugprone-suspicious-include)
