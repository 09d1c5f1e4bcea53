// What merging must give: the parts of a row put together in long double, with the bounds of
// docs/numerics.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <vector>

#include "forward/draws.h"
#include "fuzz.h"

namespace heed_fuzz {

using heed_test::Result;

using Real = long double;  // 11 bits more than double
inline constexpr Real kInf = std::numeric_limits<Real>::infinity();

/// What a number should be, and how far off it may be; infinitely far where nothing is known.
struct Known {
  Real value = 0, bound = 0;
};

template <typename T>
inline constexpr Real kRoundoff = std::numeric_limits<T>::epsilon() / 2;

/// Whether Real can judge T: valgrind computes long double as double.
template <typename T>
bool judged_here() {
  static const bool wider = [] {
    const volatile Real one = 1, little = 0x1p-60L;
    return one + little != one;
  }();
  return wider || sizeof(T) == 4;
}

/// The parts of one row, merged in long double with the bounds of docs/numerics.md. Weights come
/// from m and l: lse would have lost to its size what they need.
template <typename T>
class Row {
 public:
  explicit Row(const std::vector<Known>& lse) : lse_(lse) {
    for (const Known& part : lse) m_ = std::max(m_, part.value);
    for (const Known& part : lse) l_ += part.value == -kInf ? 0 : std::exp(part.value - m_);
    for (std::size_t n = 0; n < lse.size(); ++n) error_ += weight(n) * lse[n].bound;
  }

  [[nodiscard]] Known lse() const {
    if (m_ == -kInf) return {m_, 0};
    if (!judged_here<T>()) return {0, kInf};
    const Real all = m_ + std::log(l_);
    return {all, error_ + kRoundoff<T> * (std::fabs(all) + std::fabs(m_) + 4 * count() + 4)};
  }

  /// Of the parts' outputs in one column.
  [[nodiscard]] Known output(const std::vector<Known>& o) const {
    Real value = 0, bound = 0, sizes = 0;
    const Real tiny = std::numeric_limits<T>::min();
    for (std::size_t n = 0; n < lse_.size(); ++n) {
      if (lse_[n].value == -kInf) continue;
      const Real a = weight(n), size = std::fabs(o[n].value);
      const Real d = a == 0 ? 0 : m_ - lse_[n].value;
      value += a * o[n].value;
      sizes += a * size;
      bound += a * o[n].bound + a * size * (lse_[n].bound + error_) + tiny * (size + 1) +
               kRoundoff<T> * a * size * (3 * d + 4 * count() + 8);
    }
    // Sums that come near the largest number may get beyond it.
    if (sizes + bound > std::numeric_limits<T>::max() || !judged_here<T>()) bound = kInf;
    return {value, bound};
  }

 private:
  [[nodiscard]] Real weight(std::size_t n) const {
    return lse_[n].value == -kInf ? 0 : std::exp(lse_[n].value - m_) / l_;
  }
  [[nodiscard]] Real count() const { return static_cast<Real>(lse_.size()); }

  std::vector<Known> lse_;
  Real m_ = -kInf, l_ = 0, error_ = 0;
};

/// Within the bound, or the end of the process with all that went in.
inline void expect_near(const char* what, Real seen, const Known& known,
                        const std::vector<Known>& lse, const std::vector<Known>& o = {}) {
  if (known.bound == kInf || std::fabs(seen - known.value) <= known.bound) return;
  std::ostringstream text;
  text << std::setprecision(20) << seen << ", truth " << known.value << ", bound " << known.bound;
  for (const Known& x : lse) text << "\n  lse " << x.value;
  for (const Known& x : o) text << "\n  output " << x.value;
  expect(false, what, text.str());
}

/// The result of one merge, row by row against the numbers that went into it.
template <typename T>
void check_numbers(const std::vector<Result<T>>& parts, const Result<T>& got) {
  got.lse.each([&](auto b, auto h, auto i, auto) {
    std::vector<Known> lse;
    std::vector<const Result<T>*> used;
    bool lost = false;
    for (const auto& part : parts) {
      const T x = part.lse.at(b, h, i, 0);
      lost |= std::isnan(x) || x == std::numeric_limits<T>::infinity();
      if (x == -std::numeric_limits<T>::infinity()) continue;
      used.push_back(&part);
      lse.push_back({x, 0});
    }
    const T seen = got.lse.at(b, h, i, 0);
    const Row<T> row(lse);
    if (lost) {
      expect(std::isnan(seen), "lse of a row with a lse that is no number");
    } else if (used.empty()) {
      expect(seen == -std::numeric_limits<T>::infinity(), "lse of an empty row");
    } else if (used.size() == 1) {
      expect(seen == used[0]->lse.at(b, h, i, 0), "lse of a row of one part");
    } else {
      expect_near("lse of a row", seen, row.lse(), lse);
    }
    for (std::int64_t x = 0; x < got.o.shape[3]; ++x) {
      const T o = got.o.at(b, h, i, x);
      std::vector<Known> column;
      bool nan = lost, infinite = false;
      for (const auto* part : used) {
        const T value = part->o.at(b, h, i, x);
        nan |= std::isnan(value);
        infinite |= std::isinf(value);
        column.push_back({value, 0});
      }
      if (nan) {
        expect(std::isnan(o), "a column with NaN");
      } else if (used.empty()) {
        expect(o == 0 && !std::signbit(o), "output of an empty row");
      } else if (used.size() == 1) {
        const T value = used[0]->o.at(b, h, i, x);
        expect(o == value && std::signbit(o) == std::signbit(value), "output of a row of one part");
      } else if (infinite) {
        expect(!std::isfinite(o), "a column with infinity");
      } else {
        expect_near("output of a row", o, row.output(column), lse, column);
      }
    }
  });
}

}  // namespace heed_fuzz
