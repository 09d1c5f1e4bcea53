// What `heed run` can be told, in the order of AttentionOptions; what it reads and how scores are
// made is the same for every command that takes tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "flag_values.h"

namespace heed::cli {

/// Tensors and what happens to a score.
struct InputFlags {
  std::vector<std::string> files;
  std::string one_file_of;   ///< the flag that took the only file there may be; "": the command
  std::size_t operands = 3;  ///< q, k, v; 2: v is used beside d_output only
  Numbers scale;
  bool normalize_qk = false;
  std::optional<double> softcap;
  Numbers alibi;
  std::string bias;
  bool causal = false;
  Integers query_start;
  Window window;
  Integers key_lengths, query_lengths;
  std::string keep, drop;
  Numbers sinks;
  std::string d_output;
  bool gradients = false;      ///< d_output is taken
  bool option_tensors = true;  ///< tensors of the file set options
  Layout layout = Layout::bhtd;
  Bytes max_bytes;
  bool allow_trailing = false;
  Threads threads;
  bool json = false, quiet = false;

  template <typename Visitor>
  void visit_scores(Visitor& flag) {
    flag.group("Scores, in the order in which they act");
    flag("--scale", scale, "X|LIST|FILE",
         "factor of q . k; one, or one per head\n(default 1/sqrt(D); with --normalize-qk 1)");
    flag("--normalize-qk", normalize_qk, "", "cosine attention: q . k / (|q| |k|)");
    flag("--softcap", softcap, "X", "t -> X tanh(t / X)");
    flag("--alibi", alibi, "LIST|FILE", "slopes [H]: t - slope |p - j|");
    flag("--bias", bias, "FILE", "added to the scores; broadcasts to [B, H, Tq, Tk]");
    flag("--causal", causal, "", "keys after the query's position are not seen");
    flag("--query-start", query_start, "N|LIST|FILE",
         "position of the first query; one, or one per batch entry");
    flag("--window", window, "L,R", "keys from p - L to p + R are seen; inf = no limit");
    flag("--key-lengths", key_lengths, "N|LIST|FILE", "keys in use; one, or one per batch entry");
    flag("--query-lengths", query_lengths, "N|LIST|FILE", "queries in use, likewise");
    flag("--keep", keep, "FILE", "true where a query may look; broadcasts to [B, H, Tq, Tk]");
    flag("--drop", drop, "FILE", "true where it may not");
    flag("--sinks", sinks, "LIST|FILE", "[H]: one more score per head, without key or value");
  }

  template <typename Visitor>
  void visit_reading(Visitor& flag, const char* layout_help) {
    flag.group("Reading");
    flag("--layout", layout, "ORDER", layout_help);
    flag("--max-bytes", max_bytes, "N",
         "memory that tensors, results and scratch may take, such as 512M or\n4G, and 16 bytes for "
         "each of a .safetensors header beyond 65,536\n(default 80 % of what is free)");
    flag("--allow-trailing", allow_trailing, "", "ignore surplus bytes at the end of a file");
  }

  template <typename Visitor>
  void visit_running(Visitor& flag) {
    flag.group("Running");
    flag("--threads", threads, "N", "number of threads (default 0: see heed info)");
    flag("--json", json, "", "print the summary as JSON");
    flag("-q,--quiet", quiet, "",
         "no summary, warnings or progress; the JSON of\n--json is printed all the same");
  }
};

struct RunFlags : InputFlags {
  std::string output;
  double dropout = 0;
  std::optional<Seed> seed;
  bool weights = false, lse = false;
  std::optional<DType> dtype;
  bool reproducible = false, check_finite = false, in_place = false;

  template <typename Visitor>
  void visit(Visitor& flag) {
    flag("files", files, "FILE | Q.npy K.npy V.npy",
         "one .npz or .safetensors file with tensors named q, k, v, and, for\n"
         "options that take a file, tensors named as flags (key_lengths);\n"
         "or a file for each of q, k, v, and options by flags");
    visit_scores(flag);
    flag("--dropout", dropout, "P",
         "share of the weights that is dropped, as in training; takes --seed");
    flag("--seed", seed, "N",
         "which weights are dropped: the same for the same seed, 0 to 2^64 - 1");
    flag.group("Results");
    flag("-o,--output", output, "FILE", "where results go: .npy, .npz or .safetensors");
    flag("--weights", weights, "", "store the weights [B, H, Tq, Tk] too");
    flag("--lse", lse, "", "store the log-sum-exp [B, H, Tq] too");
    flag("--gradients", gradients, "",
         "store dq, dk, dv, dscale, and dalibi, dbias, dsinks of options\n"
         "that are given; the input holds d_output, or --d-output does");
    flag("--d-output", d_output, "FILE", "gradient of the output [B, H, Tq, Dv]");
    flag("--dtype", dtype, "TYPE",
         "float16 (f16), bfloat16 (bf16), float32 (f32) or float64 (f64):\n"
         "type of the output (default: that of q, float32 for the\n"
         "16-bit types);\n"
         "float64 also computes in float64, bfloat16 of bfloat16 in\n"
         "dot products of bfloat16 where the CPU has them, but for\n"
         "--gradients");
    flag("--reproducible", reproducible, "",
         "compute bfloat16 as float32: the same bits on every CPU");
    flag("--in-place", in_place, "", "allow the output to replace an input file");
    flag("--check-finite", check_finite, "",
         "exit 6, and write nothing, if the output or a gradient is\n"
         "not finite");
    visit_reading(flag,
                  "axes of four-axis files: bhtd (default) or bthd;\nthe output has q's order");
    visit_running(flag);
  }
};

}  // namespace heed::cli
