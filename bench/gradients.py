"""What each gradient costs, and what leaving it out saves: heed.attention_backward by what is asked for.

S = Q K' is computed for every gradient, dP = dO V' for dQ and dK, and one more product for each of dQ, dK
and dV: five for all three. Samples in turn, least times; dropout beside the forward pass without it. --check:
exit code 1 if a call takes more than its products' share of the time of all, or dropout more than 1.15 of
the forward pass without it; a tenth is allowed for noise, and for what is there whatever is asked for.

    pip install . && python bench/gradients.py --rounds 15 --check
"""

import argparse
import sys
import time

import numpy as np

import heed

PRODUCTS = {("dq", "dk", "dv"): 5, ("dq", "dk"): 4, ("dq", "dv"): 4, ("dk", "dv"): 4, ("dq",): 3, ("dk",): 3,
            ("dv",): 2}


def least_times(calls, rounds):
    """The least time of each call, in ms; calls take turns, forwards and backwards."""
    least = {name: float("inf") for name in calls}
    for number in range(rounds + 1):
        for name, call in list(calls.items())[::1 if number % 2 else -1]:
            begin = time.perf_counter()
            call()
            took = 1e3 * (time.perf_counter() - begin)
            if number:   # the first round warms up
                least[name] = min(least[name], took)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--check", action="store_true", help="exit with 1 if something costs too much")
    chosen = parser.parse_args()
    random = np.random.default_rng(1)
    q, k, v, g = (random.standard_normal((1, 8, chosen.n, chosen.d), dtype=np.float32) for _ in range(4))
    seen = heed.attention(q, k, v, return_lse=True, threads=1)

    def backward(names):
        return lambda: heed.attention_backward(q, k, v, seen.output, seen.lse, g, gradients=names, threads=1)
    calls = {names: backward(names) for names in PRODUCTS}
    calls["forward"] = lambda: heed.attention(q, k, v, out=seen.output, threads=1)
    calls["forward, dropout 0.1"] = lambda: heed.attention(q, k, v, out=seen.output, dropout_p=0.1, seed=1, threads=1)
    took = least_times(calls, chosen.rounds)
    everything, failed = took[tuple(PRODUCTS)[0]], []
    print(f"(1, 8, {chosen.n}, {chosen.d}), float32, one thread\n{'asked for':24}{'ms':>9}{'of all':>9}{'products':>10}")
    for names, products in PRODUCTS.items():
        share = took[names] / everything
        print(f"{', '.join(names):24}{took[names]:9.1f}{share:9.2f}{products:>8}/5")
        failed += [f"{', '.join(names)}: {share:.2f} of all"] * (share > 1.1 * products / 5)
    for name in ("forward", "forward, dropout 0.1"):
        share = took[name] / took["forward"]
        print(f"{name:24}{took[name]:9.1f}{share:9.2f}")
        failed += [f"{name}: {share:.2f} of the forward pass"] * (share > 1.15)
    for line in failed:
        print("too much:", line)
    return 1 if chosen.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
