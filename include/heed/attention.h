// Scaled dot-product attention: what can be asked for, and the forward pass.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "heed/export.h"
#include "heed/runtime.h"
#include "heed/tensor.h"

namespace heed {

/// A side of a window that reaches as far as there are keys.
inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Nothing, one number for all, or one for each: a view [n], read when the call is made.
template <typename Number>
struct OneOrEach {
  std::optional<Number> one{};
  ConstTensorView each{};

  constexpr OneOrEach() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): .scale = 0.5
  constexpr OneOrEach(Number number) : one(number) {}
  // NOLINTNEXTLINE(google-explicit-constructor): .key_lengths = view(lengths, {B})
  constexpr OneOrEach(const ConstTensorView& numbers) : each(numbers) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr OneOrEach(const TensorView& numbers) : each(numbers) {}

  [[nodiscard]] constexpr bool present() const noexcept {
    return one.has_value() || each.present();
  }
};

/// An integer for the whole batch, or one per batch entry: a view [B] of int32 or int64.
using PerBatch = OneOrEach<std::int64_t>;

/// A number for all heads, or one per query head: a view [H] of float32 or float64.
using PerHead = OneOrEach<double>;

/// Keys that query position p may see: p - left <= key <= p + right. Sums saturate.
struct Window {
  std::int64_t left = kUnlimited;  ///< keys before the query's own: "the last 256" is left = 255
  std::int64_t right = kUnlimited;
};

/// Which query may look at which key. All that is set must allow it.
///
///     query row i of batch entry b stands at position p = query_start_b + i
///
///     causal, 4 queries, 6 keys   query_start = 0 (default)      query_start = 2 (bottom-right)
///                                 x . . . . .                    x x x . . .
///                                 x x . . . .                    x x x x . .
///                                 x x x . . .                    x x x x x .
///                                 x x x x . .                    x x x x x x
struct Mask {
  bool causal = false;       ///< key <= p
  PerBatch query_start{};    ///< position of the first query row, any sign; absent: 0
  Window window{};           ///< sides >= 0
  PerBatch key_lengths{};    ///< key < key_length_b, 0 .. Tk: padding at the end of the keys
  PerBatch query_lengths{};  ///< rows at or past it see no key, 0 .. Tq
  ConstTensorView keep{};    ///< bool or integer, broadcasts to [B, H, Tq, Tk]: true = may look
  ConstTensorView drop{};    ///< the same, true = may not look
};

/// A rectangle of scores handed to a user's function: score (r, c) of the rectangle belongs to
/// query row `query + r` and key `key + c`, lies at scores[r * query_stride + c * key_stride], and
/// is in natural units. The function replaces each by f(score, batch, head, query, key); a result
/// of -inf masks. It must be element-wise: how scores are cut into rectangles is free. At places
/// that the mask hides, scores may be anything and the result is ignored.
template <typename Real>
struct BasicScoreTile {
  Real* scores;
  std::int64_t query_stride, key_stride;
  std::int64_t batch, head, query, key;
  int queries, keys;
};
using ScoreTile = BasicScoreTile<float>;
using ScoreTile64 = BasicScoreTile<double>;

/// A function over score tiles and what it needs to know. Called from several threads at once; an
/// exception that it throws is rethrown by the call that runs it.
struct ScoreMod {
  void (*f32)(const ScoreTile& tile, const void* context) = nullptr;    ///< for all other inputs
  void (*f64)(const ScoreTile64& tile, const void* context) = nullptr;  ///< for float64 inputs
  const void* context = nullptr;
  /// Replaces each score t, as it was before the function, by f'(t): for attention_backward and
  /// attention_jvp. What it leaves at places that the mask hides is ignored.
  void (*derivative_f32)(const ScoreTile& tile, const void* context) = nullptr;
  void (*derivative_f64)(const ScoreTile64& tile, const void* context) = nullptr;
};

/// Dropout of weights, for training. Which weight is dropped follows from the seed and its place
/// (batch entry, head, query, key) alone: forward and backward pass drop the same, whatever the
/// number of threads and however the work is cut. Philox4x32-10, docs/numerics.md.
///
/// Places count from the call's first row, key, batch entry (or sequence) and head. Where it is a
/// part of a larger call, the first_ fields say where these are there, and heads how many query
/// heads that has: then the same weights are dropped. In attention_decode rows count from their
/// places in the sequence, whatever query_start is, and batch entries by their order in the call.
///
/// The generator's counters have 32 bits. Rows 2^32 apart, (batch entry, head) pairs 2^32 apart and
/// keys 2^35 apart drop alike; nearer ones have draws of their own.
struct Dropout {
  double p = 0;  ///< share that is dropped, 0 <= p < 1 - 2^-17, taken to the nearest 2^-16; 0: none
  std::optional<std::uint64_t> seed{};  ///< must be given where p > 0: draw a new one for each step
  std::int64_t first_query = 0, first_key = 0, first_batch = 0, first_head = 0;  ///< 0 or more
  std::int64_t heads = 0;  ///< 0: those of the call; else at least first_head and these
};

/// Sequences that lie end to end in q, k and v, without padding: sequence s has the query rows
/// query_offsets[s] .. query_offsets[s + 1] - 1 and the keys key_offsets[s] .. key_offsets[s + 1] -
/// 1, and sees no other keys. Both or none are given: views [S + 1] of int32 or int64 that ascend,
/// within 0 .. Tq and 0 .. Tk. The batch size must be 1.
///
/// Each sequence is a batch entry whose rows, keys and positions count from its own start: its
/// results are, bit for bit, those of a call on its rows alone (under dropout with its number as
/// first_batch). Settings for each batch entry (query_start, lengths) are for each sequence.
/// Biases, keep and drop broadcast to [1, H, Tq, Tk] as ever: a pair has its place in the packed
/// tensors. Rows before the first offset and from the last one on belong to no sequence: they are
/// not read, and outputs and gradients there (but dbias: 0) are left as they are. Sequences may be
/// empty: memory bounds how many they are, since a call makes lists of S numbers, and S times the
/// KV heads must fit 63 bits.
struct Packing {
  ConstTensorView query_offsets{};
  ConstTensorView key_offsets{};

  [[nodiscard]] constexpr bool present() const noexcept {
    return query_offsets.present() || key_offsets.present();
  }
};

/// What happens to a score, in the order in which it happens.
///
///     t = scale * (q_i . k_j)                    with normalize_qk: ... / (|q_i| |k_j|)
///     t = softcap * tanh(t / softcap)
///     t = t - slope_h * |p - j|                  alibi
///     t = t + bias_bhij
///     t = score_mod(t)
///     t = -inf where the mask forbids            a select: what is masked is never looked at
///     softmax over the keys and, if given, sink_h
///     dropout: a weight becomes 0, or is divided by 1 - p; lse and statistics are those before
struct AttentionOptions {
  PerHead scale{};                  ///< finite, also times log2(e); absent: 1 / sqrt(D), with
                                    ///< normalize_qk 1
  bool normalize_qk = false;        ///< cosine attention; rows of zeros stay zero
  std::optional<double> softcap{};  ///< 2^-100 .. 2^100
  ConstTensorView alibi{};          ///< slopes [H], float32 or float64
  ConstTensorView bias{};           ///< any float type, broadcasts to [B, H, Tq, Tk]; -inf masks
  ScoreMod score_mod{};
  Mask mask{};
  ConstTensorView sinks{};  ///< [H], float32 or float64: one more score without key or value
  Dropout dropout{};
  Packing packing{};  ///< sequences of any lengths in one call
};

struct RowStatistics;  // heed/inspect.h

/// Where results go. All but `output` is computed only when given, and changes no bit of `output`.
/// `output` has q's type, lse, weights and statistics have float64 for float64 and else float32;
/// shapes keep q's rank.
struct ForwardOutputs {
  TensorView output;  ///< [B, H, Tq, Dv]
  TensorView lse{};   ///< [B, H, Tq], natural logarithm; without a key -inf, or the sink
  TensorView
      weights{};  ///< [B, H, Tq, Tk]: the one thing that takes O(Tq * Tk) memory; not with packing
  const RowStatistics* statistics = nullptr;  ///< where statistics of the rows go
};

/// The order in which q . k adds up where a sequence has one query row to a KV head, as in decoding
/// without grouped heads.
enum class DecodeOrder {
  of_prefill,  ///< the same bits as in any other call
  /// 16 sums instead of one where D is a multiple of 32, in float32, bfloat16 and float16, without
  /// normalize_qk: memory is read in the order of addresses, which can be faster
  /// (docs/performance.md). The same bounds, and the same bits for any batch, threads and CPU
  /// (bfloat16: if `reproducible`), but not those of prefill.
  key_by_key
};

/// How a call runs. Who runs it never changes a bit of its result. A call below 2 Mflop (of `merge`
/// one that reads fewer than 2^18 elements) stays on the calling thread and uses neither executor
/// nor pool.
struct Execution {
  Executor* executor = nullptr;  ///< absent: the process-wide pool
  int threads = 0;               ///< 0: default_threads(); an error together with `executor`
  /// The same bits on every CPU: bfloat16 is widened to float32 also where instruction_set() has
  /// dot products of bfloat16, which round otherwise. Changes nothing for other types.
  bool reproducible = false;
  DecodeOrder decode_order =
      DecodeOrder::of_prefill;  ///< of the forward functions; explain() says which
};

/// Exact attention, in O(Tq + Tk) memory.
///
///     S = scale * Q K^T   [B, H, Tq, Tk]
///     P = softmax(S)      each row sums to 1 (with a sink: to less)
///     O = P V             [B, H, Tq, Dv]
///
///     q  [B, H,  Tq, D ]      or [B, Tq, D ], [Tq, D ]: all of one rank
///     k  [B, Hk, Tk, D ]      query head h reads KV head h / (H / Hk)
///     v  [B, Hk, Tk, Dv]
///
/// q, k, v and output are all float32, float64, float16 or bfloat16. Of the latter two scores,
/// softmax and sums are float32, and the output is rounded once. Masks and biases broadcast against
/// [B, H, Tq, Tk], right-aligned, in the rank of q: [B, Tq, Tk] where q is [B, Tq, D]. A row that
/// sees no key gets output 0, lse -inf (or its sink), weights 0. NaN or infinity in what is masked
/// changes no bit. A sink is a score: one of NaN or +infinity makes its rows NaN.
///
/// Throws heed::Error before anything is written if an argument does not fit; ErrorKind::memory if
/// scratch memory cannot be had.
HEED_API void attention_forward(const ConstTensorView& q, const ConstTensorView& k,
                                const ConstTensorView& v, const ForwardOutputs& outputs,
                                const AttentionOptions& options = {},
                                const Execution& execution = {});

/// What a call would do, told before it is made. Numbers of tiles beyond 2^63 - 1 are told as that.
struct Explanation {
  std::string path;    ///< "tiles of 64 queries x 96 keys, float32"
  Isa isa;             ///< the instruction set whose kernels would run
  std::string reason;  ///< why this instruction set and path
  int threads;         ///< workers that would get tasks
  std::int64_t tasks;  ///< pieces of work; where splits of keys are tasks, joining them is more
  std::int64_t scratch_bytes;   ///< all workers together, of a call without weights and statistics
  std::int64_t tiles_computed;  ///< tiles of queries x keys that some query may see
  std::int64_t tiles_skipped;   ///< tiles that no query may see: neither read nor computed
  int tile_queries;             ///< query rows of a tile; those of the heads of one KV head lie
                                ///< one head after the other in one list, which is cut into tiles
  int tile_keys;                ///< keys of a tile
};

/// Reads shapes, lengths and masks as attention_forward would (and throws as it would), but no
/// element of q, k, v or bias: their data may be null, as of
/// view(static_cast<const float*>(nullptr), {..}). It looks at the tiles that rows may see: 10
/// million take some 0.1 s, with mask.keep or mask.drop, which it reads, some 5 s.
/// scratch_bytes are of a call into an output whose rows are adjacent, aligned numbers.
[[nodiscard]] HEED_API Explanation explain(const ConstTensorView& q, const ConstTensorView& k,
                                           const ConstTensorView& v,
                                           const AttentionOptions& options = {},
                                           const Execution& execution = {});

}  // namespace heed
