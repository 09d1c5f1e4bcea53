"""A cell's inputs, drawn from a seed, and what is true of some rows of its result, in float64."""

import numpy as np

SEED = 2026
MAX_WORK = 1e9   # multiply-adds of a comparison: well under a second of NumPy
KEPT = 0.5       # of the pairs in a boolean mask
# What is added to or done with standard normal numbers, as the classes of tests/forward/make_case.cc have it; A22's offset.
SHARP, OFFSET, CONSTANT = 16, 100, 0.1


def rounded(values, dtype):
    """float32 values rounded to a type, the even one of two; none of them is NaN or too large."""
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return values


def bits_of(values, dtype):
    """What a 16-bit type has of values that it holds, as uint16, in the same layout."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def values_of(bits, dtype):
    """The float32 values of bits, or of an array of float32 itself."""
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else bits


def drawn_values(random, shape, name, values):
    """Numbers of q, k or v: standard normal ones, or what a class has in their place."""
    if values == "one_signed" or (values, name) == ("v_one_signed", "v"):
        return random.random(shape, dtype=np.float32)
    if (values, name) == ("v_constant", "v"):
        return np.full(shape, CONSTANT, np.float32)
    made = random.standard_normal(shape, dtype=np.float32)
    if (values, name) == ("sharp", "q"):
        return np.float32(SHARP) * made
    return np.float32(OFFSET) + made if values == "offset" and name in ("q", "k") else made


def inputs_of(cell):
    """q, k, v as [B, H, T, D], in the cell's layout of memory, and its mask if that is an array.

    float32 arrays, of numbers that the cell's type holds.
    """
    random = np.random.default_rng(SEED)

    def draw(heads, rows, size, name=""):
        values = drawn_values(random, (cell.batch, heads, rows, size), name, cell.values)
        values = rounded(values, cell.dtype)
        if cell.layout == "bhtd":
            return values
        return np.ascontiguousarray(values.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

    made = {"q": draw(cell.heads, cell.queries, cell.d, "q"),
            "k": draw(cell.kv_heads, cell.keys, cell.d, "k"),
            "v": draw(cell.kv_heads, cell.keys, cell.dv, "v")}
    pairs = (1, 1, cell.queries, cell.keys)
    if cell.backward:
        made["d_output"] = draw(cell.heads, cell.queries, cell.dv)
    if cell.mask == "keep":
        made["keep"] = random.random(pairs, dtype=np.float32) < KEPT
        made["keep"][..., 0] = True   # no row is empty: what that means differs between libraries
    if cell.mask == "bias":
        made["bias"] = random.standard_normal(pairs, dtype=np.float32)
    if cell.mask == "padded":
        made["key_lengths"] = np.full(cell.batch, cell.key_length, np.int64)
    return made


def visible_pairs(cell, inputs, rows=slice(None)):
    """[1, 1, rows, Tk] of bool: the cell's mask as an array, whatever its kind."""
    first, end = (bound[rows, None] for bound in cell.key_ranges())
    keys = np.arange(cell.keys)
    visible = ((first <= keys) & (keys < end))[None, None]
    return visible & inputs["keep"][:, :, rows] if "keep" in inputs else visible


def mask_array(cell, inputs):
    """The mask for a library that knows no window and no lengths: bool, additive or None."""
    if cell.mask in ("none", "causal"):
        return None
    if cell.mask == "bias":
        return inputs["bias"]
    if cell.mask == "padded":   # the same for all rows
        return np.ascontiguousarray(visible_pairs(cell, inputs, slice(0, 1)))
    return np.ascontiguousarray(visible_pairs(cell, inputs))


def rows_to_check(cell):
    """All rows, or as many as are affordable from the beginning, the middle and the end."""
    per_row = cell.batch * cell.heads * cell.keys * (cell.d + cell.dv)
    third = max(1, int(MAX_WORK / per_row) // 3)
    if 3 * third >= cell.queries:
        return np.arange(cell.queries)
    middle = (cell.queries - third) // 2
    return np.concatenate([np.arange(third), np.arange(middle, middle + third),
                           np.arange(cell.queries - third, cell.queries)])


def philox(counter, key):
    """Philox4x32-10 of a counter of four uint32 arrays and a key of two numbers."""
    counter = [np.asarray(word, np.uint64) for word in counter]
    key = list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & 0xFFFFFFFF,
                   a >> 32 ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(word + step) & 0xFFFFFFFF for word, step in zip(key, (0x9E3779B9, 0xBB67AE85))]
    return counter


def kept(cell, head, rows):
    """[rows, Tk]: 0 where heed drops a weight, else what it is multiplied with. docs/numerics.md"""
    threshold = round(65536 * cell.dropout)
    keys = np.arange(cell.keys)
    words = philox(np.broadcast_arrays(rows[:, None], keys // 8, head, 0), (SEED, 0))
    word = np.choose(keys % 8 // 2, words)
    draw = np.where(keys % 2 == 0, word & 0xFFFF, word >> 16)
    return (draw >= threshold) * 65536 / (65536 - threshold)


def truth(cell, inputs, rows, dropped=True):
    """Output [B, H, rows, Dv] and weights [B, H, rows, Tk] by the definition, in float64.

    Peers draw differently under dropout: what they compute without it is compared, dropped=False.

    Of a cell with gradients the rows of dQ in place of the output: dK and dV sum over all rows.
    """
    q, k, v = (inputs[name].astype(np.float64) for name in "qkv")
    hidden = ~visible_pairs(cell, inputs, rows)[0, 0]
    output = np.empty((cell.batch, cell.heads, len(rows), cell.d if cell.backward else cell.dv))
    weights = np.empty((cell.batch, cell.heads, len(rows), cell.keys)) if cell.weights else None
    for b in range(cell.batch):
        for h in range(cell.heads):
            kv = h // (cell.heads // cell.kv_heads)
            scores = q[b, h, rows] @ k[b, kv].T / np.sqrt(cell.d)
            if "bias" in inputs:
                scores += inputs["bias"][0, 0, rows]
            scores[hidden] = -np.inf
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            if cell.dropout and dropped:
                scores *= kept(cell, b * cell.heads + h, rows)
            output[b, h] = scores @ v[b, kv] if not cell.backward else _dq(
                scores, k[b, kv], v[b, kv], inputs["d_output"][b, h, rows].astype(np.float64))
            if weights is not None:
                weights[b, h] = scores
    return output, weights


def _dq(weights, k, v, d_output):
    d_weights = d_output @ v.T
    along = (weights * d_weights).sum(axis=-1, keepdims=True)
    return weights * (d_weights - along) @ k / np.sqrt(k.shape[-1])


def largest_error(results, true):
    """max |o - o*| over output and weights; a NaN or a wrong shape is infinitely wrong."""
    most = 0.0
    for result, expected in zip(results, true):
        if expected is None:
            continue
        if result is None or result.shape != expected.shape:
            return float("inf")
        error = float(np.abs(result - expected).max())
        most = max(most, float("inf") if np.isnan(error) else error)
    return most
