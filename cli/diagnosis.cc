// One plain sentence about a head, and what to try when something is off.
#include "diagnosis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exit_codes.h"
#include "terminal.h"

namespace heed::cli {
namespace {

/// What a key holds more than even weights would give it, to be told as a sink.
constexpr double kBeyondEven = 1.5;

/// A sentence and the one number in it, where "{}" stands.
struct Numbered {
  std::string form;
  double amount;
  int digits = 0;

  [[nodiscard]] std::string text() const {
    std::string sentence = form;
    return sentence.replace(sentence.find("{}"), 2, amount_text(amount, digits));
  }
};

/// "3 of 64 rows see": of one row, "sees".
Numbered rows_that(std::int64_t some, std::int64_t all, const char* one, const char* many,
                   const std::string& rest) {
  const std::string of = format("{} of %lld rows ", static_cast<long long>(all));
  return {of + (some == 1 ? one : many) + rest, static_cast<double>(some)};
}

double deviation_of(const HeadInspection& head) { return head.score_deviation.mean; }

double usual_scale(const HeadFacts& facts) {
  return 1 / std::sqrt(static_cast<double>(facts.head_size));
}

/// The scale is larger than usual.
bool overscaled(const HeadFacts& facts) {
  return !facts.normalized && facts.head_size > 0 &&
         std::abs(facts.scale) > 1.01 * usual_scale(facts);
}

bool underscaled(const HeadFacts& facts) {
  return !facts.normalized && facts.head_size > 0 &&
         std::abs(facts.scale) < 0.99 * usual_scale(facts);
}

std::string name_the_scale(const HeadFacts& facts) {
  // Of the sign that it has: another one would turn all preferences round. No "-0".
  return format("use the scale %s1/sqrt(%lld) = %.3g instead of %.3g", facts.scale < 0 ? "-" : "",
                static_cast<long long>(facts.head_size),
                facts.scale < 0 ? -usual_scale(facts) : usual_scale(facts), facts.scale + 0.0);
}

/// The scale alone says how far normalised scores are apart.
bool has_temperature(const HeadInspection& head, const HeadFacts& facts) {
  return facts.normalized && facts.scale_alone && deviation_of(head) > 0;
}

std::string temperature(const HeadInspection& head) {
  return format("multiply the scale by %.2g: scores would vary by 1", 1 / deviation_of(head));
}

/// Scores too large for their scale.
std::string smaller_scores(const HeadInspection& head, const HeadFacts& facts) {
  if (overscaled(facts)) return name_the_scale(facts);
  if (has_temperature(head, facts)) return temperature(head);
  if (facts.normalized) {
    return "when training: a smaller scale, or less that is added to the scores";
  }
  return std::string("when training: normalise queries and keys (--normalize-qk), or ") +
         (facts.capped ? "a smaller cap (--softcap)" : "cap the scores (--softcap)");
}

/// Scores too much alike.
std::string larger_scores(const HeadInspection& head, const HeadFacts& facts) {
  if (facts.head_size == 0) return "q and k hold no numbers: the head size is 0";
  if (facts.equal_keys)
    return "all keys are equal, no scale tells them apart: look at how k is made";
  if (facts.zero_queries) return "all queries are zeros: look at how q is made";
  if (underscaled(facts)) return name_the_scale(facts);
  if (has_temperature(head, facts)) return temperature(head);
  return "when training: a larger scale, or a learned temperature";
}

class Diagnosis {
 public:
  Diagnosis(const HeadInspection& head, const HeadFacts& facts, const Thresholds& thresholds)
      : head_(head), facts_(facts), thresholds_(thresholds) {}

  std::vector<Remark> remarks(const std::string& sink_name) {
    if (facts_.rows == 0) {
      note("there are no rows: nothing to judge");
      return remarks_;
    }
    broken();
    not_judged();
    if (head_.max_weight.count > 0) {
      wrongly_masked();
      taken_by_the_sink();
      saturated();
      uniform();
      range();
      gradients();
      character(sink_name);
    }
    if (remarks_.empty() && facts_.padded_rows == facts_.rows) {
      note("all rows or all keys are padding: nothing to judge");
    } else if (remarks_.empty()) {
      note(std::string("weights neither uniform nor peaked, scores in range") +
           (compared_ ? ", gradients comparable" : ""));
    }
    std::stable_sort(remarks_.begin(), remarks_.end(),
                     [](const Remark& a, const Remark& b) { return a.severity > b.severity; });
    return remarks_;
  }

 private:
  void warn(std::string sentence, std::string suggestion) {
    remarks_.push_back({Severity::warning, std::move(sentence), std::move(suggestion)});
  }
  void warn(const Numbered& sentence, std::string suggestion) {
    remarks_.push_back({Severity::warning, sentence.text(), std::move(suggestion), sentence.form,
                        sentence.amount, sentence.digits});
  }
  void note(std::string sentence) { remarks_.push_back({Severity::note, std::move(sentence), {}}); }

  /// What makes scores infinite or NaN.
  [[nodiscard]] std::string mend_scores(const std::string& nan, const std::string& rest) const {
    if (facts_.steep) {
      return std::isfinite(*facts_.slope) ? "give it a smaller slope (--alibi)"
                                          : "give it a finite slope (--alibi)";
    }
    if (facts_.finite_products && !facts_.has_bias && overscaled(facts_)) {
      return name_the_scale(facts_);
    }
    return "look for " + nan + "infinity and huge numbers in q" +
           (facts_.has_bias ? ", k and the bias" : " and k") + rest;
  }

  void broken() {
    if (head_.nan_rows > 0) {
      const bool sink = facts_.sink && !std::isfinite(*facts_.sink);
      warn(rows_that(head_.nan_rows, facts_.rows, "is", "are",
                     !sink ? " NaN: a score that they see is NaN or +infinity"
                           : std::string(" NaN: the sink is ") +
                                 (std::isnan(*facts_.sink) ? "NaN" : "+infinity")),
           sink ? "give it a finite number (--sinks)"
                : mend_scores("NaN, ", ", or mask the keys that hold them"));
    }
    if (facts_.weightless_rows > 0) {
      warn(rows_that(facts_.weightless_rows, facts_.rows, "has", "have",
                     " no score but -infinity: no key has weight there, and the output is 0"),
           mend_scores("", ""));
    }
    if (const std::int64_t empty = head_.empty_rows - facts_.padded_rows; empty > 0) {
      warn(rows_that(empty, facts_.rows, "sees", "see", " no key: the output there is 0"),
           "if that is not padding, look at " + facts_.look_at);
    }
  }

  /// What is said of sums over rows would be silent without a word.
  void not_judged() {
    if (facts_.sums_known) return;
    const Numbered first{
        "the first NaN row is {}: sums over rows are NaN with it, so sinks, "
        "distances, padding and the direction of the mask are not judged",
        static_cast<double>(head_.first_nan_row)};
    remarks_.push_back({Severity::note, first.text(), {}, first.form, first.amount, first.digits});
  }

  void wrongly_masked() {
    only_one_key();
    if (facts_.masked && facts_.has_past && facts_.keys > 1 && facts_.future_share > 1 - 1e-6) {
      warn("all weight lies on keys after the query",
           "is the mask the wrong way round? causal attention sees keys up to its own");
    } else if (!choiceless_ && facts_.sees_no_earlier) {
      warn("no row sees a key before its own",
           "is the mask the wrong way round? causal attention sees keys up to its own");
    }
    if (facts_.masking_bias) {
      warn(format("a bias of %.3g hides keys, but as a score: rows count as if they saw them",
                  *facts_.masking_bias),
           "hide keys with --causal, --keep, --drop or a bias of -inf");
    }
    if (facts_.zero_keys > 0 && facts_.zero_key_share > 0.01) {
      const bool one = facts_.zero_keys == 1;
      warn(Numbered{format("%lld %s all zeros and %s {} %% of the weight",
                           static_cast<long long>(facts_.zero_keys), one ? "key is" : "keys are",
                           one ? "takes" : "take"),
                    100 * facts_.zero_key_share},
           "if they are padding, mask them (--key-lengths)");
    }
  }

  void only_one_key() {
    const auto rows = head_.max_weight.count;
    if (facts_.keys > 2 && 2 * facts_.lone_rows > rows) {
      warn(rows_that(facts_.lone_rows, facts_.rows, "sees", "see",
                     " one key only: " + lone_weight()),
           "if that is not meant, look at " + facts_.look_at);
      choiceless_ = true;
    } else if (facts_.lone_rows == rows) {
      const bool all = facts_.lone_rows == facts_.rows - facts_.padded_rows;
      note(std::string(all ? "each" : "each other") + " row sees one key only: " + lone_weight());
      choiceless_ = true;
    }
  }

  [[nodiscard]] std::string lone_weight() const {
    return facts_.sink ? "it shares the weight with the sink"
                       : "its weight is 1, whatever the scores";
  }

  void taken_by_the_sink() {
    if (!(facts_.key_share < 0.01)) return;
    warn("the sink takes more than 99 % of the weight: the head hardly reads its keys",
         compare_the_sink());
    choiceless_ = true;
    sunk_ = true;
  }

  [[nodiscard]] static std::string compare_the_sink() {
    return "compare the sink (--sinks) with the scores: it should not be far above them";
  }

  void saturated() {
    if (choiceless_ || head_.saturated < thresholds_.saturated || head_.saturated == 0) return;
    warn(Numbered{format("{} %% of the rows have a weight above %s: they hardly learn",
                         exact_digits(thresholds_.saturation).c_str()),
                  100 * head_.saturated},
         smaller_scores(head_, facts_));
    off_ = true;
  }

  void uniform() {
    if (choiceless_ || head_.uniform < 0.9) return;
    if (facts_.sink) {
      // Weights that add up to less than 1 have another greatest entropy.
      warn("the weights are nearly uniform: the head averages", larger_scores(head_, facts_));
    } else {
      warn(Numbered{"the weights are nearly uniform (entropy {} % of the most there can be): the "
                    "head averages",
                    100 * entropy_of_choices(), 1},
           larger_scores(head_, facts_));
    }
    off_ = true;
  }

  /// The mean share of the rows that see two keys or more: of one key it is 0.
  [[nodiscard]] double entropy_of_choices() const {
    const auto rows = static_cast<double>(head_.entropy_share.count);
    return head_.entropy_share.mean * rows / (rows - static_cast<double>(facts_.lone_rows));
  }

  void range() {
    // Where a bias hides keys it is among the scores, and they cannot lie in range.
    if (!(head_.in_range < thresholds_.in_range) || facts_.masking_bias) return;
    const std::string end = exact_digits(thresholds_.range);
    const std::string sentence = format("fewer than %.15g %% of the scores lie in -%s .. %s",
                                        100 * thresholds_.in_range, end.c_str(), end.c_str());
    const bool blamed = overscaled(facts_) || deviation_of(head_) > thresholds_.range;
    if (!off_ && blamed) {
      warn(sentence, smaller_scores(head_, facts_));
    } else {
      note(sentence);
    }
  }

  void gradients() {
    if (!head_.gradients) return;
    const HeadGradients& g = *head_.gradients;
    if (g.nan_rows > 0) {
      warn(rows_that(g.nan_rows, facts_.rows, "has", "have", " a NaN gradient, but no NaN score"),
           "look for NaN, infinity and huge numbers in v and d_output");
    } else if (g.rows > 0 && g.silent_rows == g.rows) {
      note("d_output is 0 wherever a row has a choice: nothing to learn from");
    } else if (g.rows > 0 && g.same_values) {
      note(facts_.sink ? "v is the same for all keys: only what the sink takes changes the output"
                       : "v is the same for all keys: whatever the weights, the output is that");
    }
    const double vanished = g.vanishing * static_cast<double>(g.rows);
    if (g.vanishing >= thresholds_.vanished && g.vanishing > 0) {
      warn(
          Numbered{format("{} %% of the rows get next to no gradient: less than %s of what uniform "
                          "weights would pass on",
                          exact_digits(thresholds_.vanishing).c_str()),
                   100 * g.vanishing},
          2 * static_cast<double>(facts_.weightless_choices) > vanished ? mend_scores("", "")
          : sunk_                                                       ? compare_the_sink()
          : head_.saturated > 0 ? smaller_scores(head_, facts_)
                                : "look at v: the keys that have the weight hold much the same");
    }
    if (!(facts_.usual_gradient > 0) || !(g.dq > 0) || std::isinf(g.dq)) return;
    const double times = g.dq / facts_.usual_gradient;
    compared_ = true;
    if (times > thresholds_.comparable) {
      warn(Numbered{"its gradient dQ is {} times that of the median head", times},
           "when training: clip the gradient's norm, and look at the scale of v and d_output");
    } else if (1 / times > thresholds_.comparable) {
      warn(Numbered{"the median head's gradient dQ is {} times that of this one", 1 / times},
           "this head learns slower than the others: look at its saturation, v and d_output");
    }
  }

  /// What kind of head it is.
  void character(const std::string& sink_name) {
    if (choiceless_) return;
    const double even = kBeyondEven * facts_.even_share;
    if (head_.sink_key >= 0 && facts_.keys > 2 &&
        head_.sink_share > std::max(thresholds_.sink, even)) {
      note(format("%.15g %% or more of all weight rests on ", 100 * thresholds_.sink) + sink_name +
           (head_.sink_key == 0 ? ", a place for rows that look for nothing" : ""));
    }
    if (facts_.previous_share > 0.5) {
      note("more than half of the weight lies one position back");
    } else if (head_.peaked > 0.5) {
      note("most rows choose one key or two");
    }
  }

  const HeadInspection& head_;
  const HeadFacts& facts_;
  const Thresholds& thresholds_;
  std::vector<Remark> remarks_;
  bool choiceless_ = false;  ///< most rows have no choice
  bool sunk_ = false;        ///< a sink has the weight
  bool off_ = false;         ///< the scale is to blame already
  bool compared_ = false;    ///< its gradient, with other heads'
};

void check_share(const char* flag, double value) {
  if (value >= 0 && value <= 1) return;
  throw UsageError(std::string(flag) + ": expected 0 to 1, got " + exact_digits(value));
}

}  // namespace

void Thresholds::check() const {
  check_share("--saturation", saturation);
  check_share("--saturated", saturated);
  check_share("--peaked", peaked);
  check_share("--uniform", uniform);
  check_share("--in-range", in_range);
  check_share("--sink", sink);
  check_share("--vanishing", vanishing);
  check_share("--vanished", vanished);
  if (!(comparable >= 1) || !std::isfinite(comparable)) {
    throw UsageError("--comparable: expected a finite number from 1 on, got " +
                     exact_digits(comparable));
  }
  // The width of -range .. range, and 1 / width, must be finite.
  using Limits = std::numeric_limits<double>;
  if (!(range >= Limits::min() && range <= Limits::max() / 2)) {
    throw UsageError("--range: expected a number from 2^-1022 to below 2^1023, got " +
                     exact_digits(range));
  }
}

std::string amount_text(double amount, int digits) {
  return std::abs(amount) < 1e15 ? format("%.*f", digits, amount) : format("%.3g", amount);
}

std::vector<Remark> diagnose(const HeadInspection& head, const HeadFacts& facts,
                             const Thresholds& thresholds, const std::string& sink_name) {
  return Diagnosis(head, facts, thresholds).remarks(sink_name);
}

}  // namespace heed::cli
