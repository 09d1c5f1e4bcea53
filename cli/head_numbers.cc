// Names, units, meanings.
#include "head_numbers.h"

#include <cmath>

namespace heed::cli {
namespace {

using Head = HeadInspection;

const std::vector<HeadNumber>& numbers_of_weights() {
  static const std::vector<HeadNumber> kNumbers{
      {"entropy_share", "share", "mean entropy of a row over the most there can be",
       [](const Head& h) { return h.entropy_share.mean; }},
      {"entropy_share_median", "share", "its median over rows",
       [](const Head& h) { return h.entropy_share.quantiles[2]; }},
      {"entropy", "nats", "mean entropy of a row", [](const Head& h) { return h.entropy.mean; }},
      {"effective_keys", "keys", "mean of exp(entropy): equal weights that would be as uncertain",
       [](const Head& h) { return h.effective_keys.mean; }},
      {"max_weight", "share", "mean of the largest weight of a row",
       [](const Head& h) { return h.max_weight.mean; }},
      {"saturated", "share", "rows with a largest weight above the threshold",
       [](const Head& h) { return h.saturated; }},
      {"peaked", "share", "rows with an entropy share below its threshold",
       [](const Head& h) { return h.peaked; }},
      {"uniform", "share", "rows with an entropy share above its threshold",
       [](const Head& h) { return h.uniform; }},
      {"jacobian_norm", "", "mean norm of the softmax's derivative: how much can be learnt",
       [](const Head& h) { return h.jacobian_norm.mean; }},
      {"score_mean", "score", "mean over rows of the mean score",
       [](const Head& h) { return h.score_mean.mean; }},
      {"score_deviation", "score", "mean over rows of the scores' standard deviation",
       [](const Head& h) { return h.score_deviation.mean; }},
      {"max_score", "score", "mean over rows of the largest score",
       [](const Head& h) { return h.max_score.mean; }},
      {"score_low", "score", "1 % of all scores are below",
       [](const Head& h) { return h.score_low; }},
      {"score_high", "score", "1 % of all scores are above",
       [](const Head& h) { return h.score_high; }},
      {"in_range", "share", "scores in range: from -3 to 3, unless told otherwise",
       [](const Head& h) { return h.in_range; }},
      {"sink_key", "key", "the key that is attended to most; -1: none",
       [](const Head& h) { return static_cast<double>(h.sink_key); }},
      {"sink_share", "share", "its share of all weight",
       [](const Head& h) { return h.sink_share; }},
      {"empty_rows", "rows", "rows that see no key",
       [](const Head& h) { return static_cast<double>(h.empty_rows); }},
      {"nan_rows", "rows", "rows with a NaN among their scores",
       [](const Head& h) { return static_cast<double>(h.nan_rows); }}};
  return kNumbers;
}

HeadGradients gradients_of(const Head& head) {
  return head.gradients.value_or(HeadGradients{.dq = NAN, .dk = NAN, .dv = NAN, .vanishing = NAN});
}

std::vector<HeadNumber> numbers_with_gradients() {
  std::vector<HeadNumber> numbers = numbers_of_weights();
  numbers.insert(numbers.end(),
                 {{"dq_norm", "", "norm of dQ", [](const Head& h) { return gradients_of(h).dq; }},
                  {"dk_norm", "", "norm of dK of the KV head that it reads",
                   [](const Head& h) { return gradients_of(h).dk; }},
                  {"dv_norm", "", "norm of dV of the KV head that it reads",
                   [](const Head& h) { return gradients_of(h).dv; }},
                  {"ds_norm", "", "mean norm of a row of dS",
                   [](const Head& h) { return gradients_of(h).ds.mean; }},
                  {"passed_on", "", "mean of that over what uniform weights would pass on",
                   [](const Head& h) { return gradients_of(h).passed_on.mean; }},
                  {"vanishing", "share", "rows that pass on less than the threshold",
                   [](const Head& h) { return gradients_of(h).vanishing; }}});
  return numbers;
}

}  // namespace

const std::vector<HeadNumber>& head_numbers(bool gradients) {
  static const std::vector<HeadNumber> kAll = numbers_with_gradients();
  return gradients ? kAll : numbers_of_weights();
}

}  // namespace heed::cli
