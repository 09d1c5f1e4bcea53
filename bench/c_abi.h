// heed behind functions of C, for programs that load a library and cannot read C++ headers.
//
// bench/compare/heed_library.py mirrors these structs with ctypes, field by field; heed_bench_sizes
// lets it check that it does.
#pragma once

#include <cstdint>

extern "C" {

/// A view of the call's type, or, where said, of other numbers: absent if data is null.
struct HeedBenchTensor {
  void* data;
  std::int64_t shape[4];
  std::int64_t stride[4];  ///< in elements
};

/// One call of heed::attention_forward, and of attention_backward where d_output is there, prepared
/// once and made any number of times.
struct HeedBenchCall {
  HeedBenchTensor q;            ///< [B, H, Tq, D]
  HeedBenchTensor k;            ///< [B, Hk, Tk, D]
  HeedBenchTensor v;            ///< [B, Hk, Tk, Dv]
  HeedBenchTensor output;       ///< [B, H, Tq, Dv]
  HeedBenchTensor weights;      ///< [B, H, Tq, Tk] of float32, or absent
  HeedBenchTensor lse;          ///< [B, H, Tq] of float32, with d_output
  HeedBenchTensor d_output;     ///< [B, H, Tq, Dv], or absent
  HeedBenchTensor dq;           ///< like q, with d_output, as the next two
  HeedBenchTensor dk;           ///< like k
  HeedBenchTensor dv;           ///< like v
  HeedBenchTensor bias;         ///< float32, broadcasts to [B, H, Tq, Tk], or absent
  HeedBenchTensor keep;         ///< the same, of bool
  HeedBenchTensor key_lengths;  ///< [B] of int64 in shape[0], or absent
  std::int64_t window_left;     ///< -1: unlimited
  std::int64_t causal;          ///< 0 or 1
  std::int64_t threads;         ///< 0: heed's own choice
  double dropout;               ///< 0: none
  std::int64_t seed;
  std::int64_t dtype;  ///< 0: float32, 1: bfloat16, 2: float16
};

/// Makes the call `repeat` times: a loop here, so that the time of a tiny call can be told from
/// that of calling a library from Python. Returns 0, or 1 with heed's message in `error`.
int heed_bench_forward(const HeedBenchCall* call, std::int64_t repeat, char* error,
                       std::int64_t error_size);

/// GFLOP/s of multiply-adds with the instruction set that calls of a dtype use, on so many threads:
/// of float32, or for bfloat16 of dot products where there are such.
double heed_bench_fma_peak(std::int64_t dtype, std::int64_t threads);

/// Lines of "name: value": version, instruction_set, threads, compiler, cpu; or error alone.
const char* heed_bench_facts();

/// sizeof(HeedBenchTensor) and sizeof(HeedBenchCall).
void heed_bench_sizes(std::int64_t* tensor, std::int64_t* call);

}  // extern "C"
