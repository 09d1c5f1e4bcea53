"""Time against how sharp scores are: where weights and their products with V become subnormal, CPUs may take much longer.

    .venv/bin/python bench/sharp.py

One thread, float32, 2 heads of 64, 1,024 queries on as many keys, normal q, k and v; q is scaled so that scores have the
standard deviations told, in natural units. Calls of all of them take turns; told is the least time of a call, in ms, and last
that of scores of deviation 8 with v scaled by 1e-36, whose products are subnormal throughout. The numbers are exact in every case.
"""

import argparse
import time

import numpy as np

import heed

SHAPE = (1, 2, 1024, 64)
DEVIATIONS = (1, 8, 20, 40, 80)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    chosen = parser.parse_args()
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal(SHAPE, dtype=np.float32) for _ in range(3))
    cases = {f"deviation {deviation}": (np.float32(deviation) * q, v) for deviation in DEVIATIONS}
    cases["deviation 8, tiny v"] = (np.float32(8) * q, np.float32(1e-36) * v)
    out, least = np.empty_like(v), dict.fromkeys(cases, float("inf"))
    for _ in range(chosen.rounds):
        for name, (queries, values) in cases.items():
            begin = time.perf_counter()
            heed.attention(queries, k, values, out=out, threads=1)
            least[name] = min(least[name], time.perf_counter() - begin)
    for name, seconds in least.items():
        print(f"{name:<22}{1e3 * seconds:8.2f}")


if __name__ == "__main__":
    main()
