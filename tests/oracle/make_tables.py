#!/usr/bin/env python3
"""Writes functions.inc and references.inc: 50-digit truths that the oracle is held against.

functions.inc   +, -, *, /, sqrt, exp, log, tanh of double-doubles, by mpmath.
references.inc  whole attentions by mpmath; each is computed by NumPy longdouble too, in another
                order of steps, and the script fails if the two disagree.

    cd tests/oracle && ../../.venv/bin/python make_tables.py    # .venv is made by ./dev setup
"""

import math
import random

import mpmath
import numpy as np

mpmath.mp.dps = 50
mpf = mpmath.mpf
MASK = (1 << 64) - 1


def split(x):
    """x as hi + lo, two hexadecimal doubles."""
    hi = float(x)
    lo = float(x - mpf(hi)) if math.isfinite(hi) else 0.0
    return f"{hi.hex()}, {lo.hex()}"


def functions():
    draw = random.Random(20261121)

    def number(low, high):
        hi = math.ldexp(draw.uniform(1, 2) * draw.choice((-1, 1)), draw.randint(low, high))
        lo = hi * draw.uniform(-1, 1) * 2.0**-54
        return mpf(hi) + mpf(lo)

    rows = []
    for op, f in (
        ("+", lambda a, b: a + b),
        ("-", lambda a, b: a - b),
        ("*", lambda a, b: a * b),
        ("/", lambda a, b: a / b),
    ):
        for _ in range(25):
            a, b = number(-30, 30), number(-30, 30)
            rows.append((op, a, b, f(a, b)))
    for op, f, low, high in (
        ("r", lambda a: mpmath.sqrt(abs(a)), -60, 60),
        ("e", mpmath.exp, -20, 8),
        ("l", lambda a: mpmath.log(abs(a)), -60, 60),
        ("t", mpmath.tanh, -30, 4),
    ):
        for _ in range(25):
            a = number(low, high)
            rows.append((op, a, mpf(0), f(a)))
    with open("functions.inc", "w") as out:
        for op, a, b, r in rows:
            out.write(f"{{'{op}', {{{split(a)}}}, {{{split(b)}}}, {{{split(r)}}}}},\n")


class Stream:
    """splitmix64, as in oracle_test.cc"""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def number(self, wide):
        """in [-2, 2), a float32 or, if wide, a float64"""
        bits = 53 if wide else 24
        return (self.next() >> (64 - bits)) * 2.0 ** (2 - bits) - 2.0


NORMALIZE, SOFTCAP, ALIBI, BIAS, CAUSAL, WINDOW, LENGTH, KEEP, SINKS, SCALE, DROP, DROPOUT, SCORE_MOD, QUERY_LENGTH, HEAD_SCALE = (
    1 << n for n in range(15)
)
B, H, HK, TQ, TK, D, DV = 2, 4, 2, 3, 5, 3, 2
KEY_LENGTH, QUERY_LENGTHS, HEAD_SCALES = 3, (2, 1), (0.5, -0.75, 1.25, 1.0)
SEED, THRESHOLD = 0x123456789ABCDEF, 16384   # of dropout, rate 1/4


def inputs(flags, wide):
    """q, k, v, and bias, keep, drop or None."""
    s = Stream(flags * 2 + wide)
    shape = lambda *n: np.array([s.number(wide) for _ in range(math.prod(n))]).reshape(n)
    q, k, v = shape(B, H, TQ, D), shape(B, HK, TK, D), shape(B, HK, TK, DV)
    bias = shape(TQ, TK) if flags & BIAS else None
    keep = shape(TQ, TK) >= -1 if flags & KEEP else None
    drop = shape(H, 1, TK) >= 1 if flags & DROP else None
    return q, k, v, bias, keep, drop


def kept(b, h, i, j):
    """Dropout by place: Philox4x32 with ten rounds, docs/numerics.md."""
    low = (1 << 32) - 1
    c, key = [i, j // 8, b * H + h, 0], [SEED & low, SEED >> 32]
    for _ in range(10):
        x, y = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(y >> 32) ^ c[1] ^ key[0], y & low, (x >> 32) ^ c[3] ^ key[1], x & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    draw = c[j % 8 // 2] >> 16 * (j % 2) & 0xFFFF
    return 0.0 if draw < THRESHOLD else 65536 / (65536 - THRESHOLD)


def case(flags, wide):
    q, k, v, bias, keep, drop = inputs(flags, wide)
    fixed = (lambda x: float(x)) if wide else (lambda x: float(np.float32(x)))
    usual = fixed(-0.75 if flags & SCALE else 3.0 if flags & NORMALIZE else 1 / math.sqrt(D))

    def visible(b, h, i, j):
        p = i + (1 if flags & (CAUSAL | WINDOW | ALIBI) else 0)
        return not (
            (flags & QUERY_LENGTH and i >= QUERY_LENGTHS[b])
            or (flags & SCORE_MOD and (b + h + i + j) % 5 == 4)
            or (flags & CAUSAL and j > p)
            or (flags & WINDOW and not p - 1 <= j <= p + 1)
            or (flags & LENGTH and j >= KEY_LENGTH)
            or (keep is not None and not keep[i, j])
            or (drop is not None and drop[h, 0, j])
        )

    def attend(real, exp, log, tanh, sqrt, two_pass):
        rows = []
        for b in range(B):
            for h in range(H):
                scale = HEAD_SCALES[h] if flags & HEAD_SCALE else usual
                for i in range(TQ):
                    seen, t, A = [], [], []
                    for j in range(TK):
                        if not visible(b, h, i, j):
                            continue
                        Q = [real(x) for x in q[b, h, i]]
                        K = [real(x) for x in k[b, h // (H // HK), j]]
                        x = real(scale) * sum((a * c for a, c in zip(Q, K)), real(0))
                        partial = [float(sum((a * c for a, c in zip(Q[:n], K)), real(0))) for n in range(1, D + 1)]
                        R = math.sqrt(sum(s * s for s in partial))  # a chain has 128 products, D is less
                        a = abs(scale) * max(float(sum(abs(a * c) for a, c in zip(Q, K))), 3 * R / (4 + D / 64))
                        if flags & NORMALIZE:
                            r = 1 / (sqrt(sum(c * c for c in Q)) * sqrt(sum(c * c for c in K)))
                            x, a = x * r, a * float(r)
                            a += 2.5 * abs(float(x))
                        if flags & SOFTCAP:
                            cap = real(2.5)
                            steep = min(1, 2 / math.cosh(float(x / cap)) ** 2)
                            x = cap * tanh(x / cap)
                            a = min(a, steep * a + abs(float(x)))
                        if flags & ALIBI:
                            term = real(fixed((h + 1) / 8)) * abs(i + 1 - j)
                            x, a = x - term, a + abs(float(term))
                        if bias is not None:
                            x, a = x + real(bias[i, j]), a + abs(bias[i, j])
                        if flags & SCORE_MOD:
                            x = x / 2 + real(j - i) / 4 + real(2 * h - b) / 16
                            a = a / 2 + abs(float(x))
                        seen.append(j), t.append(x), A.append(a)
                    sink = real(0.25 * h - 0.5) if flags & SINKS else None
                    V = [[real(x) for x in v[b, h // (H // HK), j]] for j in seen]
                    if not t:
                        rows.append((sink if sink is not None else real("-inf"), [real(0)] * DV, None))
                        continue
                    # mpmath: plain exponentials; longdouble: about the maximum
                    m = max(t) if two_pass else real(0)
                    e = [exp(x - m) for x in t]
                    l = sum(e) + (exp(sink - m) if sink is not None else 0)
                    keeps = [kept(b, h, i, j) if flags & DROPOUT else 1.0 for j in seen]
                    # real(): 4/3 is rounded to a double, as the library and the oracle have it
                    o = [sum((x * real(r) * c[n] for x, r, c in zip(e, keeps, V)), real(0)) / l for n in range(DV)]
                    P = [float(x / l) for x in e]
                    kappa = sum(p * a for p, a in zip(P, A))
                    if sink is not None:
                        kappa += float(exp(sink - m) / l) * abs(float(sink))
                    u, C, N = 2.0 ** (-53 if wide else -24), 4 + D / 64, 32 + TK / 1536 + (2 if flags & DROPOUT else 0)
                    bound = []
                    for n in range(DV):
                        W = [abs(float(c[n])) for c in V]
                        mean = sum(r * p * w for r, p, w in zip(keeps, P, W))
                        spread = sum(r * p * (1 + kappa + a) * w for r, p, a, w in zip(keeps, P, A, W))
                        bound.append(u * (abs(float(o[n])) + C * spread + N * mean))
                    rows.append((m + log(l), o, bound))
        return rows

    def square_root(x):
        return mpmath.sqrt(x)

    exact = attend(mpf, mpmath.exp, mpmath.log, mpmath.tanh, square_root, False)
    check = attend(np.longdouble, np.exp, np.log, np.tanh, np.sqrt, True)
    for (lse, o, _), (lse2, o2, _) in zip(exact, check):
        if mpmath.isinf(lse):
            assert np.isinf(lse2)
            continue
        for x, y in zip([lse] + o, [lse2] + o2):
            y = mpf(float(y)) + mpf(float(y - np.longdouble(float(y))))
            assert abs(x - y) <= 2e-18 * (1 + abs(x)), (x, y)
    return exact


def sets_of_flags():
    sets = [0, SCALE, NORMALIZE, SOFTCAP, ALIBI, BIAS, CAUSAL, WINDOW, LENGTH, KEEP, SINKS, DROP]
    sets += [NORMALIZE | SOFTCAP | ALIBI | SINKS, BIAS | CAUSAL | KEEP, SCALE | SOFTCAP | WINDOW | DROP]
    sets += [(1 << 11) - 1 - WINDOW, ALIBI | WINDOW | LENGTH | SINKS]
    sets += [DROPOUT, SCORE_MOD, QUERY_LENGTH, HEAD_SCALE, DROPOUT | SINKS | CAUSAL, BIAS | SCORE_MOD | QUERY_LENGTH | HEAD_SCALE]
    return sets


def references():
    with open("references.inc", "w") as out:
        for flags in sets_of_flags():
            for wide in (0, 1):
                for n, (lse, o, bound) in enumerate(case(flags, wide)):
                    lse_text = "-kInf, 0" if mpmath.isinf(lse) else split(lse)
                    bound = bound or [0.0] * DV
                    values = ", ".join(f"{{{split(x)}}}" for x in o)
                    bounds = ", ".join(float(x).hex() for x in bound)
                    if n % 4 == 0 or DROP < flags < DROPOUT:  # every fourth row tells enough
                        out.write(f"{{{flags}, {wide}, {n}, {{{lse_text}}}, {{{values}}}, {{{bounds}}}}},\n")


if __name__ == "__main__":
    functions()
    references()
