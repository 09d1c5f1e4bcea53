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


NORMALIZE, SOFTCAP, ALIBI, BIAS, CAUSAL, WINDOW, LENGTH, KEEP, SINKS, SCALE, DROP = (
    1 << n for n in range(11)
)
B, H, HK, TQ, TK, D, DV = 2, 4, 2, 3, 5, 3, 2


def case(flags, wide):
    s = Stream(flags * 2 + wide)
    shape = lambda *n: np.array([s.number(wide) for _ in range(math.prod(n))]).reshape(n)
    q, k, v = shape(B, H, TQ, D), shape(B, HK, TK, D), shape(B, HK, TK, DV)
    bias = shape(TQ, TK) if flags & BIAS else None
    keep = shape(TQ, TK) >= -1 if flags & KEEP else None
    drop = shape(H, 1, TK) >= 1 if flags & DROP else None
    fixed = (lambda x: float(x)) if wide else (lambda x: float(np.float32(x)))
    scale = fixed(-0.75 if flags & SCALE else 3.0 if flags & NORMALIZE else 1 / math.sqrt(D))

    def visible(h, i, j):
        p = i + (1 if flags & (CAUSAL | WINDOW | ALIBI) else 0)
        return not (
            (flags & CAUSAL and j > p)
            or (flags & WINDOW and not p - 1 <= j <= p + 1)
            or (flags & LENGTH and j >= TK - 2)
            or (keep is not None and not keep[i, j])
            or (drop is not None and drop[h, 0, j])
        )

    def attend(real, exp, log, tanh, sqrt, two_pass):
        rows = []
        for b in range(B):
            for h in range(H):
                for i in range(TQ):
                    seen, t, A = [], [], []
                    for j in range(TK):
                        if not visible(h, i, j):
                            continue
                        Q = [real(x) for x in q[b, h, i]]
                        K = [real(x) for x in k[b, h // (H // HK), j]]
                        x = real(scale) * sum((a * c for a, c in zip(Q, K)), real(0))
                        a = abs(scale) * float(sum(abs(a * c) for a, c in zip(Q, K)))
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
                    o = [sum(x * c[n] for x, c in zip(e, V)) / l for n in range(DV)]
                    P = [float(x / l) for x in e]
                    kappa = sum(p * a for p, a in zip(P, A))
                    if sink is not None:
                        kappa += float(exp(sink - m) / l) * abs(float(sink))
                    u, C, N = 2.0 ** (-53 if wide else -24), 4 + D / 64, 32 + TK / 1536
                    bound = []
                    for n in range(DV):
                        W = [abs(float(c[n])) for c in V]
                        mean = sum(p * w for p, w in zip(P, W))
                        spread = sum(p * (1 + kappa + a) * w for p, a, w in zip(P, A, W))
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


def references():
    sets = [0, SCALE, NORMALIZE, SOFTCAP, ALIBI, BIAS, CAUSAL, WINDOW, LENGTH, KEEP, SINKS, DROP]
    sets += [NORMALIZE | SOFTCAP | ALIBI | SINKS, BIAS | CAUSAL | KEEP, SCALE | SOFTCAP | WINDOW | DROP]
    sets += [(1 << 11) - 1 - WINDOW, ALIBI | WINDOW | LENGTH | SINKS]
    with open("references.inc", "w") as out:
        for flags in sets:
            for wide in (0, 1):
                for n, (lse, o, bound) in enumerate(case(flags, wide)):
                    lse_text = "-kInf, 0" if mpmath.isinf(lse) else split(lse)
                    bound = bound or [0.0] * DV
                    values = ", ".join(f"{{{split(x)}}}" for x in o)
                    bounds = ", ".join(float(x).hex() for x in bound)
                    if n % 4 == 0 or flags > 1024:  # every fourth row tells enough
                        out.write(f"{{{flags}, {wide}, {n}, {{{lse_text}}}, {{{values}}}, {{{bounds}}}}},\n")


functions()
references()
