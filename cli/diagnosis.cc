// One plain sentence about a head, and what to try when something is off.
#include "diagnosis.h"

#include <algorithm>
#include <cmath>

#include "terminal.h"

namespace heed::cli {
namespace {

std::string percent(double share) { return format("%.0f %%", 100 * share); }

std::string rows_text(std::int64_t some, std::int64_t all) {
  return format("%lld of %lld rows", static_cast<long long>(some), static_cast<long long>(all));
}

double deviation_of(const HeadInspection& head) { return head.score_deviation.mean; }

/// Scores too large or too small for their scale.
std::string scale_advice(const HeadInspection& head, const HeadFacts& facts, double wanted) {
  const double usual = 1 / std::sqrt(static_cast<double>(facts.head_size));
  if (!facts.normalized && facts.scale > 1.01 * usual && wanted < 1) {
    return format("use the scale 1/sqrt(%lld) = %.3g instead of %.3g",
                  static_cast<long long>(facts.head_size), usual, facts.scale);
  }
  if (!facts.normalized && facts.scale < 0.99 * usual && wanted > 1) {
    return format("use the scale 1/sqrt(%lld) = %.3g instead of %.3g",
                  static_cast<long long>(facts.head_size), usual, facts.scale);
  }
  const double deviation = deviation_of(head);
  if (facts.normalized && deviation > 0) {
    return format("multiply the scale by %.2g: scores would vary by 1", 1 / deviation);
  }
  return wanted < 1 ? "normalise queries and keys (--normalize-qk), or cap the scores (--softcap)"
                    : "a larger scale, or a learned temperature";
}

class Diagnosis {
 public:
  Diagnosis(const HeadInspection& head, const HeadFacts& facts, const Thresholds& thresholds)
      : head_(head), facts_(facts), thresholds_(thresholds) {}

  std::vector<Remark> remarks(const std::string& sink_name) {
    broken();
    if (head_.max_weight.count > 0 && !std::isnan(head_.max_weight.mean)) {
      wrongly_masked();
      saturated();
      uniform();
      range();
      character(sink_name);
    }
    if (remarks_.empty()) healthy();
    std::stable_sort(remarks_.begin(), remarks_.end(),
                     [](const Remark& a, const Remark& b) { return a.severity > b.severity; });
    return remarks_;
  }

 private:
  void warn(std::string sentence, std::string suggestion) {
    remarks_.push_back({Severity::warning, std::move(sentence), std::move(suggestion)});
  }
  void note(std::string sentence) { remarks_.push_back({Severity::note, std::move(sentence), {}}); }

  void broken() {
    if (head_.nan_rows > 0) {
      warn(rows_text(head_.nan_rows, facts_.rows) + " are NaN: a query or a key that they see is",
           "look for NaN and infinity in q and k, or mask the keys that hold them");
    }
    if (head_.empty_rows > 0) {
      warn(rows_text(head_.empty_rows, facts_.rows) + " see no key: their output is 0",
           "if that is not padding, look at the mask: keep is true where a query may look");
    }
  }

  void wrongly_masked() {
    const auto rows = static_cast<double>(head_.max_weight.count);
    if (facts_.keys > 2 && static_cast<double>(facts_.lone_rows) > 0.5 * rows) {
      warn(rows_text(facts_.lone_rows, facts_.rows) +
               " see one key only: its weight is 1, whatever the scores",
           "is the mask the wrong way round? keep is true where a query may look");
      lone_ = true;
    }
    if (facts_.past_pairs > 0 && facts_.keys > 1 && facts_.future_share > 1 - 1e-6) {
      warn("all weight lies on keys after the query",
           "is the mask the wrong way round? causal attention sees keys up to its own");
    }
    if (facts_.zero_keys > 0 && facts_.zero_key_share > 0.01) {
      const bool one = facts_.zero_keys == 1;
      warn(format("%lld %s all zeros and %s %s of the weight",
                  static_cast<long long>(facts_.zero_keys), one ? "key is" : "keys are",
                  one ? "takes" : "take", percent(facts_.zero_key_share).c_str()),
           "if they are padding, mask them (--key-lengths)");
    }
  }

  void saturated() {
    if (lone_ || head_.saturated < thresholds_.saturated) return;
    warn(percent(head_.saturated) + format(" of the rows have a weight above %g: they hardly learn",
                                           thresholds_.saturation),
         scale_advice(head_, facts_, 0.5));
    off_ = true;
  }

  void uniform() {
    if (lone_ || head_.uniform < 0.9) return;
    warn(format(
             "the weights are nearly uniform (entropy %.1f %% of the most there can be): the head "
             "averages",
             100 * head_.entropy_share.mean),
         scale_advice(head_, facts_, 2));
    off_ = true;
  }

  void range() {
    if (head_.in_range >= thresholds_.in_range) return;
    const std::string sentence =
        format("fewer than %g %% of the scores lie in -%g .. %g", 100 * thresholds_.in_range,
               thresholds_.range, thresholds_.range);
    if (off_) {
      note(sentence);
    } else if (deviation_of(head_) > thresholds_.range) {
      warn(sentence, scale_advice(head_, facts_, 0.5));
    } else {
      note(sentence);
    }
  }

  /// What kind of head it is.
  void character(const std::string& sink_name) {
    if (lone_) return;
    if (head_.sink_key >= 0 && head_.sink_share > thresholds_.sink && facts_.keys > 2) {
      note(format("%g %% or more of all weight rests on ", 100 * thresholds_.sink) + sink_name +
           (head_.sink_key == 0 ? ", a place for rows that look for nothing" : ""));
    }
    if (facts_.previous_share > 0.5) {
      note("more than half of the weight lies one position back");
    } else if (head_.peaked > 0.5) {
      note("most rows choose one key or two");
    }
  }

  void healthy() { note("weights neither uniform nor peaked, scores in range"); }

  const HeadInspection& head_;
  const HeadFacts& facts_;
  const Thresholds& thresholds_;
  std::vector<Remark> remarks_;
  bool lone_ = false;  ///< most rows have no choice
  bool off_ = false;   ///< the scale is to blame already
};

}  // namespace

std::vector<Remark> diagnose(const HeadInspection& head, const HeadFacts& facts,
                             const Thresholds& thresholds, const std::string& sink_name) {
  return Diagnosis(head, facts, thresholds).remarks(sink_name);
}

}  // namespace heed::cli
