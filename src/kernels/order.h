// The constants that fix the order of operations; a change here changes bits (docs/numerics.md).
#pragma once

#include <cstdint>

namespace heed::kernels {

/// Keys folded into a row's state at a time, and keys whose states are merged in order. Both count
/// from key 0 of the sequence, whatever is masked.
inline constexpr int kBlockKeys = 96;
inline constexpr int kSplitKeys = 768;
static_assert(kSplitKeys % kBlockKeys == 0);

/// The same of a block whose products are dot products of bfloat16.
inline constexpr int kPairedBlockKeys = 192;
static_assert(kSplitKeys % kPairedBlockKeys == 0 && kPairedBlockKeys % 2 == 0);
inline constexpr int kMostBlockKeys = kPairedBlockKeys;

/// Coordinates of q . k that form one chain; the chains of longer heads are added up in order. At
/// D = 256 one chain errs three times as much as two of 128 (docs/numerics.md).
inline constexpr int kChainSize = 128;

/// Chains of q . k where one row decodes key by key, coordinate x in chain x % 16; they add up by
/// halves.
inline constexpr int kKeyChains = 16;

/// Queries of a tile at the most: one bit each in the words of a visibility mask.
inline constexpr int kMaxTileRows = 64;

/// Rows of a tile up to which keys and value coordinates stand in lanes; decides no bit.
inline constexpr int kFewRows = 4;

/// Scores are kept in base 2: natural units times log2(e).
template <typename Real>
inline constexpr Real kLog2e = static_cast<Real>(1.4426950408889634074L);
template <typename Real>
inline constexpr Real kLn2 = static_cast<Real>(0.6931471805599453094L);

}  // namespace heed::kernels
