// What `heed inspect` can be told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnosis.h"
#include "run_flags.h"

namespace heed::cli {

struct InspectFlags : InputFlags {
  std::string html, pictures, against, tokens;
  std::vector<std::int64_t> rows;
  Whole<std::int64_t, 1, 64> top{8};
  Whole<std::int64_t, 1, 256> map{96};
  Thresholds thresholds;
  std::vector<std::int64_t> tile;
  HeadList heads;

  InspectFlags() {
    operands = 2;
    gradients = true;
  }

  template <typename Visitor>
  void visit(Visitor& flag) {
    flag("files", files, "FILE | Q.npy K.npy",
         "a .npz or .safetensors file with tensors named q and k, and, for\n"
         "options that take a file, tensors named as flags (key_lengths);\n"
         "or a file for each of q and k (and v), and options by flags;\n"
         "without any, the sample that belongs to heed");
    visit_scores(flag);
    flag.group("Gradients");
    flag("--d-output", d_output, "FILE",
         "gradient of the output [B, H, Tq, Dv], as a tensor d_output of the\nfile is: the "
         "gradients of each head; needs v");
    flag.group("What is shown");
    flag("--html", html, "FILE", "write a report to look through in a browser");
    flag("--pictures", pictures, "FOLDER", "write the pictures, each with its numbers as CSV");
    flag("--against", against, "FILE",
         "another run's q and k, under the same options: the pictures also\nshow what changed from "
         "there (with --pictures)");
    flag("--rows", rows, "LIST",
         "query rows to tell in full, each in a table (default: pictures and\npage tell all of "
         "few, else the last)");
    flag("--tile", tile, "ROW,KEY", "exact weights from there on (with --html; default: the last)");
    flag("--heads", heads, "L.H,..", "heads drawn alone (with --pictures; default: a choice)");
    flag("--top", top, "K", "keys listed per row (default 8)");
    flag("--map", map, "N", "cells of a map, along each axis (default 96)");
    flag("--tokens", tokens, "FILE", "what keys are called, one per line");
    flag.group("When something is off");
    flag("--saturation", thresholds.saturation, "P",
         "a row is saturated above this largest weight (default 0.99)");
    flag("--saturated", thresholds.saturated, "SHARE", "of rows, from which on (default 0.3)");
    flag("--peaked", thresholds.peaked, "E",
         "a row is peaked below this entropy share (default 0.1)");
    flag("--uniform", thresholds.uniform, "E",
         "a row is uniform above this entropy share (default 0.98)");
    flag("--range", thresholds.range, "X", "scores should lie in -X .. X (default 3)");
    flag("--in-range", thresholds.in_range, "SHARE", "of scores that should (default 0.9)");
    flag("--sink", thresholds.sink, "SHARE",
         "of all weight on one key, from which on (default 0.3)");
    flag("--vanishing", thresholds.vanishing, "X",
         "a row's gradient vanishes below this share of what uniform\nweights would pass on "
         "(default 0.001)");
    flag("--vanished", thresholds.vanished, "SHARE", "of rows, from which on (default 0.5)");
    flag("--comparable", thresholds.comparable, "X",
         "times the median head's gradient, or a part of it (default 100)");
    visit_reading(flag, "axes of four-axis files: bhtd (default) or bthd");
    visit_running(flag);
  }
};

}  // namespace heed::cli
