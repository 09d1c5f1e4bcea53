// Tiles of few rows, as in decoding, where memory is what takes time: keys in lanes for the scores,
// value coordinates in lanes for the output, the rows of several keys in a vector for the softmax
// step between them. Rows of 16-bit elements are widened where they are loaded. Each element is the
// chain that it is in products-inl.h and softmax-inl.h, so the bits are the same.

#if defined(HEED_KERNELS_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_FEW_INL_H_
#undef HEED_KERNELS_FEW_INL_H_
#else
#define HEED_KERNELS_FEW_INL_H_
#endif

#include "kernels/half-inl.h"
#include "kernels/kernels.h"
#include "kernels/math-inl.h"
#include "kernels/products-inl.h"
#include "kernels/rows-inl.h"
#include "kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// f(Int<rows>()), 1 <= rows <= kFewRows.
template <typename F>
HWY_INLINE void with_rows(int rows, const F& f) {
  static_assert(kFewRows == 4);
  if (rows == 4) return f(Int<4>());
  if (rows == 3) return f(Int<3>());
  if (rows == 2) return f(Int<2>());
  return f(Int<1>());
}

inline constexpr int kLine = 64;  // bytes of a cache line

/// Asks for the cache line `ahead` bytes from what is read now, so that memory is busy meanwhile;
/// into the second-level cache, since it would push what is at hand out of the first. An address,
/// not a pointer: where keys end, lines past them are asked for too, and never read.
HWY_INLINE void ask(const std::byte* at, std::uintptr_t ahead) {
  const auto address = reinterpret_cast<std::uintptr_t>(at) + ahead;
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}

/// With kBytes of a row that are read now, as many further on; by 0: none.
template <int kBytes>
HWY_INLINE void ask_for_row(const std::byte* row, std::uintptr_t ahead) {
  if (ahead == 0) return;
#pragma GCC unroll 8
  for (int byte = 0; byte < kBytes; byte += kLine) ask(row + byte, ahead);
}

/// How often a line of K is asked for, at several distances: a CPU whose misses are all under way
/// drops a prefetch. On a Zen 4 three instead of one take a fifth less time, and four no less.
inline constexpr int kAsks = 3;
using Distances = std::uintptr_t[kAsks];

/// How far to look ahead in `keys` rows, in bytes: to further ones, then to the next block's, which
/// lie elsewhere where pages end. What is beyond those may be asked for too. Without a next block
/// (null) by 0.
struct Lookahead {
  std::uintptr_t step;
  int apart;  ///< rows from one distance to the next, 12 KB of them
  int keys;
  std::uintptr_t jump = 0;

  Lookahead(const std::byte* rows, std::int64_t row_step, std::int64_t row_bytes, int count,
            const std::byte* next)
      : step(next == nullptr ? 0 : static_cast<std::uintptr_t>(row_step)),
        apart(static_cast<int>(std::int64_t{3} * 4096 / row_bytes)),
        keys(count) {
    if (next == nullptr) return;
    jump = reinterpret_cast<std::uintptr_t>(next) - reinterpret_cast<std::uintptr_t>(rows) -
           static_cast<std::uintptr_t>(count) * step;
  }
  /// From row j by so many rows.
  HWY_INLINE std::uintptr_t from(int j, int rows) const {
    return static_cast<std::uintptr_t>(rows) * step + (j + rows < keys ? 0 : jump);
  }
  /// From the rows j .. j + rows that are read side by side, as from the first of them.
  HWY_INLINE void from(int j, int rows, Distances& ahead) const {
    for (int n = 0; n < kAsks; ++n) ahead[n] = from(j, rows + n * apart);
  }
  /// For rows of V, `bytes` of which are read in one pass. Whole rows that follow one another are
  /// read in the order of addresses, where the CPU looks ahead by itself, and better when not
  /// asked.
  HWY_INLINE std::uintptr_t of_values(std::int64_t bytes) const {
    return static_cast<std::uintptr_t>(bytes) >= step ? 0 : from(0, 2 * apart);
  }
};

#if HWY_TARGET != HWY_SCALAR
// A key's scores of up to four rows are four lanes. On wider vectors several keys fill one.
using Four = hn::CappedTag<float, 4>;

template <typename D>
inline constexpr int kFours = static_cast<int>(hn::MaxLanes(D()) / 4);

/// Four lanes from memory, and zeros.
template <typename D>
HWY_INLINE hn::Vec<D> load_four(D d, const float* s) {
  if constexpr (kFours<D> == 1) {
    return hn::LoadU(d, s);
  } else {
    return hn::ZeroExtendVector(d, load_four(hn::Half<D>(), s));
  }
}

/// The four lanes of as many keys as fit a vector, from tiles of one vector.
template <typename D>
HWY_INLINE hn::Vec<D> load_fours(D d, const float* s) {
  if constexpr (kFours<D> == 1) {
    return hn::LoadU(d, s);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_fours(half, s + kFours<D> / 2 * kLanes<float>), load_fours(half, s));
  }
}

/// Stores the four lanes of each key in a vector, `width` apart, and adds them to `sum` in their
/// order.
template <typename D>
HWY_INLINE void store_fours(D d, hn::Vec<D> v, float* s, hn::Vec<Four>& sum) {
  if constexpr (kFours<D> == 1) {
    hn::StoreU(v, d, s);
    sum = hn::Add(sum, v);
  } else {
    const hn::Half<D> half;
    store_fours(half, hn::LowerHalf(half, v), s, sum);
    store_fours(half, hn::UpperHalf(half, v), s + kFours<D> / 2 * kLanes<float>, sum);
  }
}

/// The rows of a vector of keys: key 4 g + i is at group[g] + offset[i]. Few addresses, since there
/// are not registers for one of each row.
template <int kKeys>
struct RowsOfKeys {
  static constexpr int kGroups = kKeys / 4;
  const std::byte* group[kGroups];
  std::int64_t offset[4];
  int count;  ///< keys that are there; with 4 or more, an incomplete group holds the last 4

  RowsOfKeys(const std::byte* k, std::int64_t step, int keys) : count(keys < kKeys ? keys : kKeys) {
    for (int i = 0; i < 4; ++i) offset[i] = (i < count ? i : count - 1) * step;
    for (int g = 0; g < kGroups; ++g) {
      const int last = count < 4 ? 0 : count - 4;
      group[g] = k + (4 * g < last ? 4 * g : last) * step;
    }
  }
  HWY_INLINE int lane_of(int key) const {
    return count < 4 || key < count / 4 * 4 ? key : key + 4 - count % 4;
  }
  HWY_INLINE const std::byte* row(int key) const { return group[key / 4] + offset[key % 4]; }
  /// After kBytes of each row: the groups take turns in asking, so that each asks for a line once
  /// while it is read. Not by 0, for what is at hand: that took 5 % of a call whose keys are in
  /// cache.
  template <int kBytes>
  HWY_INLINE void advance(std::int64_t step, const Distances& ahead) {
    constexpr int kSteps = kLine / kBytes;  // that read one line
    constexpr int kAsked = kGroups > kSteps ? kGroups / kSteps : 1;
    constexpr int kPause = kSteps > kGroups ? kSteps / kGroups : 1;
    const bool asks = ahead[0] != 0 && (kPause == 1 || step % kPause == 0);
#pragma GCC unroll 4
    for (int g = 0; asks && g < kAsked; ++g) {
#pragma GCC unroll 4
      for (int n = 0; n < kAsks; ++n) {
        const std::byte* const rows = group[(step / kPause * kAsked + g) % kGroups];
#pragma GCC unroll 4
        for (const std::int64_t row : offset) {
          ask(rows, static_cast<std::uintptr_t>(row) + ahead[n]);
        }
      }
    }
#pragma GCC unroll 4
    for (const std::byte*& rows : group) rows += kBytes;
  }
};

/// The largest score of each row so far, keys in lanes.
using Tops = float[kFewRows][kLanes<float>];

HWY_INLINE void clear_tops(Tops& tops) {
  for (auto& row : tops) {
    for (float& top : row) top = -kInf<float>;
  }
}

/// Scores of a vector of keys: s[j][r], 0 in lanes beyond the rows, and the largest.
template <int Rows, typename Keys>
HWY_INLINE void store_scores(const Vec<float> (&scores)[Rows], const Keys& keys, float* s,
                             Tops& tops) {
  const Tag<float> d;
  constexpr std::int64_t kL = kLanes<float>;
  Vec<float> t[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) t[r] = r < Rows ? scores[r < Rows ? r : 0] : hn::Zero(d);
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    hn::StoreU(running_max(hn::LoadU(d, tops[r]), t[r]), d, tops[r]);
  }
  transpose_in_blocks(t[0], t[1], t[2], t[3]);  // block g of t[i]: the rows of key 4 g + i
  float rows_of_keys[4 * kL];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) hn::StoreU(t[i], d, rows_of_keys + i * kL);
  for (int j = 0; j < keys.count; ++j) {
    const std::int64_t lane = keys.lane_of(j);
    hn::StoreU(load_four(d, rows_of_keys + lane % 4 * kL + lane / 4 * 4), d, s + j * kL);
  }
}

/// highest[r], 0 beyond the rows.
template <int Rows>
HWY_INLINE void store_tops(const Tops& tops, float* highest) {
  for (int r = 0; r < kLanes<float>; ++r) highest[r] = r < Rows ? tops[r < Rows ? r : 0][0] : 0;
  for (int lane = 1; lane < kLanes<float>; ++lane) {  // one by one: a few operations for a block
    for (int r = 0; r < Rows; ++r) {
      if (tops[r][lane] > highest[r]) highest[r] = tops[r][lane];
    }
  }
}

template <Element kElement>
inline constexpr int kSizeOf = kElement == Element::own ? 4 : 2;

template <Element kElement>
HWY_INLINE Vec<float> load_elements(const std::byte* at) {
  if constexpr (kElement == Element::f16) return load_f16(at);
  if constexpr (kElement == Element::bf16) return load_bf16(at);
  return hn::LoadU(Tag<float>(), reinterpret_cast<const float*>(at));
}

/// s[j][r] for one vector of keys: their rows, transposed in registers, meet the broadcast queries,
/// one chain for each lane and row.
template <int Rows, Element kElement>
HWY_NOINLINE void scores_of_keys(RowsOfKeys<kLanes<float>> k, const float* q, std::int64_t size,
                                 const float* c, float* s, Tops& tops, const Distances& ahead) {
  const Tag<float> d;
  constexpr int kL = kLanes<float>;
  constexpr int kBytes = kL * kSizeOf<kElement>;
  Vec<float> total[Rows], acc[Rows];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) total[r] = hn::Zero(d);  // g++ for arm64 sees no first round
  for (std::int64_t first = 0; first < size; first += kChainSize) {
    const std::int64_t end = size - first > kChainSize ? first + kChainSize : size;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) acc[r] = hn::Zero(d);
    for (std::int64_t x = first; x < end; x += kL) {
      Vec<float> t[kL];
#pragma GCC unroll 16
      for (int i = 0; i < kL; ++i) {
        t[i] = load_elements<kElement>(k.row(i));
      }
      k.template advance<kBytes>(x / kL, ahead);
      transpose(t);
#pragma GCC unroll 16
      for (int i = 0; i < kL; ++i) {
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          acc[r] = fma(d, t[i], hn::Set(d, q[(x + i) * kL + r]), acc[r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) total[r] = first == 0 ? acc[r] : hn::Add(total[r], acc[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) total[r] = hn::Mul(total[r], hn::Set(d, c[r]));
  store_scores(total, k, s, tops);
}

/// Columns x .. of o: o[r][x] = fma(o[r][x], a[r], chain over j of p[j][r] v[j][x]).
template <int Rows, int Vectors, Element kElement>
HWY_NOINLINE void columns_of_rows(const std::byte* v, std::int64_t step, int keys, const float* p,
                                  const float* a, float* o, std::int64_t size,
                                  std::uintptr_t ahead) {
  const Tag<float> d;
  constexpr std::int64_t kL = kLanes<float>;
  constexpr std::int64_t kBytes = kL * kSizeOf<kElement>;
  Vec<float> acc[Rows][Vectors];
  begin_chain<Rows, Vectors, float>(acc);
  for (int j = 0; j < keys; ++j) {
    Vec<float> row[Vectors];
#pragma GCC unroll 8
    for (int n = 0; n < Vectors; ++n) row[n] = load_elements<kElement>(v + n * kBytes);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const auto weight = hn::Set(d, p[r]);
#pragma GCC unroll 8
      for (int n = 0; n < Vectors; ++n) acc[r][n] = fma(d, weight, row[n], acc[r][n]);
    }
    ask_for_row<Vectors * kBytes>(v, ahead);
    v += step;
    p += kL;
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    const auto decay = a == nullptr ? hn::Zero(d) : hn::Set(d, a[r]);
#pragma GCC unroll 8
    for (int n = 0; n < Vectors; ++n) {
      float* const at = o + r * size + n * kL;
      const auto old = a == nullptr ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(fma(d, old, decay, acc[r][n]), d, at);
    }
  }
}

/// o[r][x] from x on, as many vectors at a time as there are registers for, then fewer.
template <int Rows, int Vectors, Element kElement>
HWY_INLINE void cover_columns(const std::byte* v, std::int64_t step, int keys, const float* p,
                              const float* a, float* o, std::int64_t size, std::uintptr_t ahead,
                              std::int64_t x) {
  constexpr std::int64_t kColumns = std::int64_t{Vectors} * kLanes<float>;
  for (; x + kColumns <= size; x += kColumns) {
    const std::byte* const columns = v + kSizeOf<kElement> * x;
    columns_of_rows<Rows, Vectors, kElement>(columns, step, keys, p, a, o + x, size, ahead);
  }
  if constexpr (Vectors > 1) {
    cover_columns<Rows, Vectors / 2, kElement>(v, step, keys, p, a, o, size, ahead, x);
  }
}

/// f(Int<element>())
template <typename F>
HWY_INLINE void with_element(Element element, const F& f) {
  if (element == Element::own) return f(Int<static_cast<int>(Element::own)>());
  if (element == Element::f16) return f(Int<static_cast<int>(Element::f16)>());
  return f(Int<static_cast<int>(Element::bf16)>());
}

/// f(Int<rows>(), Int<element>())
template <typename F>
HWY_INLINE void with_rows_of(int rows, Element element, const F& f) {
  with_rows(rows,
            [&](auto n) HWY_ATTR { with_element(element, [&](auto e) HWY_ATTR { f(n, e); }); });
}
#endif

/// Element x of a row, where vectors have nothing to gain.
template <typename Real>
HWY_INLINE Real element_at(const std::byte* row, Element element, std::int64_t x) {
  if (element == Element::own) {
    Real number;
    std::memcpy(&number, row + x * static_cast<std::int64_t>(sizeof number), sizeof number);
    return number;
  }
  std::uint16_t bits;
  std::memcpy(&bits, row + 2 * x, 2);
  return element == Element::f16 ? kernels::from_f16(bits) : kernels::from_bf16(bits);
}

template <typename Real>
void scores_few(const std::byte* k, std::int64_t k_step, Element element, int keys, const Real* q,
                int rows, std::int64_t size, const Real* c, Real* s, Real* highest,
                [[maybe_unused]] const std::byte* next) noexcept {
  constexpr int kL = kLanes<Real>;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    return with_rows_of(rows, element, [&](auto n, auto e) HWY_ATTR {
      constexpr int kRows = decltype(n)::value;
      constexpr auto kElement = static_cast<Element>(decltype(e)::value);
      const Lookahead lookahead(k, k_step, size * kSizeOf<kElement>, keys, next);
      Distances ahead;
      Tops tops;
      clear_tops(tops);
      for (int j = 0; j < keys; j += kL) {
        lookahead.from(j, kL, ahead);
        scores_of_keys<kRows, kElement>(RowsOfKeys<kL>(k + j * k_step, k_step, keys - j), q, size,
                                        c, s + j * kL, tops, ahead);
      }
      store_tops<kRows>(tops, highest);
    });
  }
#endif
  for (int i = 0; i < keys * kL; ++i) s[i] = 0;
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < rows; ++r) {
      Real total = 0;
      for (std::int64_t first = 0; first < size; first += kChainSize) {
        Real acc = 0;
        for (std::int64_t x = first; x < size && x < first + kChainSize; ++x) {
          acc = std::fma(element_at<Real>(k + j * k_step, element, x), q[x * kL + r], acc);
        }
        total = first == 0 ? acc : total + acc;
      }
      s[j * kL + r] = total * c[r];
    }
  }
  maxima(s, keys, 1, highest);
}

template <typename Real>
void softmax_few(Real* s, int keys, const Real* highest, Real* m, Real* l, Real* a) noexcept {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4 && kLanes<float> != 4) {
    const Tag<float> d;
    constexpr int kL = kLanes<float>;
    constexpr int kKeys = kL / 4;  // of a vector
    constexpr int kStep = kSideBySide * kKeys;
    const auto old = hn::LoadU(d, m);
    const auto next = running_max(old, hn::LoadU(d, highest));
    const auto reference = reference_of(d, next);
    const auto decay = exp2_nonpositive(d, hn::Sub(old, reference));
    hn::StoreU(next, d, m);
    hn::StoreU(decay, d, a);
    float first[kL];
    hn::StoreU(reference, d, first);
    const auto r = hn::LoadDup128(d, first);
    auto sum = hn::Zero(Four());
    int j = 0;
    for (; j + kStep <= keys; j += kStep) {
      Vec<float> p[kSideBySide];
#pragma GCC unroll 4
      for (int i = 0; i < kSideBySide; ++i) {
        p[i] = hn::Sub(load_fours(d, s + (j + i * kKeys) * kL), r);
      }
      exp2_nonpositive(d, p);
#pragma GCC unroll 4
      for (int i = 0; i < kSideBySide; ++i) {
        store_fours(d, p[i], s + (j + i * kKeys) * kL, sum);
      }
    }
    for (; j < keys; ++j) {
      float* const at = s + j * kL;
      hn::StoreU(exp2_nonpositive(d, hn::Sub(load_four(d, at), r)), d, first);
      const auto rows = hn::LoadU(Four(), first);
      hn::StoreU(rows, Four(), at);
      sum = hn::Add(sum, rows);
    }
    hn::StoreU(sum, Four(), first);
    hn::StoreU(fma(d, hn::LoadU(d, l), decay, load_four(d, first)), d, l);
    return;
  }
#endif
  softmax(s, keys, 1, highest, m, l, a);
}

template <typename Real>
void values_few(const std::byte* v, std::int64_t v_step, Element element, int keys, const Real* p,
                int rows, std::int64_t size, const Real* a, Real* o,
                [[maybe_unused]] const std::byte* next) noexcept {
  constexpr int kL = kLanes<Real>;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    return with_rows_of(rows, element, [&](auto n, auto e) HWY_ATTR {
      constexpr int kRows = decltype(n)::value;
      constexpr auto kElement = static_cast<Element>(decltype(e)::value);
      constexpr int kMost = (kRows <= 2 ? 8 : 4) / (HWY_TARGET == HWY_AVX2 ? 2 : 1);
      constexpr int kSize = kSizeOf<kElement>;
      const Lookahead lookahead(v, v_step, size * kSize, keys, next);
      const std::uintptr_t ahead = lookahead.of_values(std::int64_t{kMost} * kL * kSize);
      cover_columns<kRows, kMost, kElement>(v, v_step, keys, p, a, o, size, ahead, 0);
    });
  }
#endif
  for (int r = 0; r < rows; ++r) {
    for (std::int64_t x = 0; x < size; ++x) {
      Real acc = 0;
      for (int j = 0; j < keys; ++j) {
        acc = std::fma(p[j * kL + r], element_at<Real>(v + j * v_step, element, x), acc);
      }
      Real& at = o[r * size + x];
      at = std::fma(a == nullptr ? Real{0} : at, a == nullptr ? Real{0} : a[r], acc);
    }
  }
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
