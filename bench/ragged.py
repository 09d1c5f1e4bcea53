"""Sequences of very different lengths in one call, beside each of them alone.

    .venv/bin/python bench/ragged.py --threads 1 --check
    .venv/bin/python bench/ragged.py --threads 2 --queries 64

32 sequences of 100 to 4,000 keys, packed end to end, 32 heads of 128 on 8 of keys and values, one query row each as in
decoding (--queries: as many). In each round the packed call and all sequences alone, one after another, take turns; told are
the least time of the call, the sum of the least times of the sequences on one thread each, over the number of threads, and their
ratio. With --check the exit code is 1 if the call takes more than 1.1 times that.
"""

import argparse
import sys
import time

import numpy as np

import heed

SEQUENCES, LEAST, MOST = 32, 100, 4000
HEADS, KV_HEADS, SIZE = 32, 8, 128
BOUND = 1.1


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--queries", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the call takes more than 1.1 times its parts")
    chosen = parser.parse_args()
    random = np.random.default_rng(1)
    lengths = random.integers(LEAST, MOST + 1, SEQUENCES)
    lengths[:2] = LEAST, MOST
    keys = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.arange(SEQUENCES + 1) * chosen.queries
    q = random.standard_normal((1, HEADS, rows[-1], SIZE), dtype=np.float32)
    k, v = (random.standard_normal((1, KV_HEADS, keys[-1], SIZE), dtype=np.float32) for _ in range(2))
    out = np.empty_like(q)

    def packed():
        heed.attention(q, k, v, packing=(rows, keys), out=out, threads=chosen.threads)

    def alone(n):
        mine, seen = slice(rows[n], rows[n + 1]), slice(keys[n], keys[n + 1])
        heed.attention(q[:, :, mine], k[:, :, seen], v[:, :, seen], out=out[:, :, mine], threads=1)

    packed()
    together = out.copy()
    calls, parts = [], [[] for _ in range(SEQUENCES)]
    for _ in range(chosen.rounds):
        calls.append(timed(packed))
        for n, samples in enumerate(parts):
            samples.append(timed(lambda n=n: alone(n)))
    assert (out == together).all(), "not the bits of each sequence alone"
    least, parted = min(calls), sum(min(samples) for samples in parts) / chosen.threads
    size = 2 * keys[-1] * KV_HEADS * SIZE * 4
    print(f"{SEQUENCES} sequences of {LEAST} to {MOST} keys, {chosen.queries} rows each, threads {chosen.threads}: {size / 1e6:.0f} MB")
    print(f"  one call   {1e3 * least:8.2f} ms  {size / least / 1e9:6.1f} GB/s")
    print(f"  the parts  {1e3 * parted:8.2f} ms  {size / parted / 1e9:6.1f} GB/s")
    print(f"  call/parts {least / parted:8.2f}")
    return 1 if chosen.check and least > BOUND * parted else 0


if __name__ == "__main__":
    sys.exit(main())
