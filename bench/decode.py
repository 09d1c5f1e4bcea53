"""Decoding one token: heed beside PyTorch and NumPy, and beside a plain read of the same bytes, in turn.

    build/peers/bin/python bench/decode.py --threads 1
    build/peers/bin/python bench/decode.py --threads 2 --dtype bfloat16 --check

One query row in 32 heads of 128 against 4,096 keys, of 32 and of 8 KV heads. Every sample takes another of several
caches, which together are larger than the caches of the CPU, so that keys and values come from memory. Told are the least
time and the median, GB/s of keys and values, and ratios to heed's least time. PyTorch has the keys of a group spread out by
enable_gqa; NumPy is matmul and exp on the same views. The read is a sum in PyTorch over one flat tensor of the same bytes,
as integers of 64 bits, split over the same number of threads: what memory gave in the same rounds. llama.cpp stands beside
where it is installed, on the same memory (ggml.py says how). With --pages heed also decodes from a KvCache with pages of so many
keys. Before each sample the threads of the last library get time to fall asleep (idle ones
spin for a while), and calls are made untimed until those of this one are awake and spread over the CPUs: a model calls layer after layer. With --check the exit code is 1 where heed is slower than FLOORS asks: on one thread beside PyTorch and NumPy, on all beside the read.
"""

import argparse
import itertools
import os
import statistics
import sys
import time

import ggml
import numpy as np
import torch

import heed
import heed.torch  # noqa: F401  PyTorch's 16-bit tensors

HEADS, KEYS, SIZE = 32, 4096, 128
ASLEEP = 0.05          # seconds: longer than idle threads spin (those of OpenBLAS for 2^26 cycles)
SPREAD = 0.1           # seconds of untimed calls: a woken thread may start on the CPU of who woke it, for some ticks
LARGER = 500_000_000   # bytes, more than any cache of a CPU

# Least ratios of another's least time to heed's, for (KV heads, other); a plain read in 0.85 of heed's time is 85 % of
# what memory gives.
FLOORS = {(8, "torch"): 4.0, (32, "torch"): 2.0, (32, "numpy"): 1.0}
FLOOR_OF_READ = 0.85


def bind(threads):
    """All libraries to as many CPUs and threads. NumPy's OpenBLAS asks the environment when it is loaded, so the program begins
    anew with that."""
    cpus = sorted(os.sched_getaffinity(0))
    if os.environ.get("OPENBLAS_NUM_THREADS") != str(threads) or len(cpus) > threads:
        os.sched_setaffinity(0, cpus[:threads])   # what the new program begins with, and all its threads
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)})
    torch.set_num_threads(threads)


def by_numpy(q, k, v):
    """softmax(q k' / sqrt(D)) v, heads of a group as rows."""
    t = np.matmul(q.reshape(1, k.shape[1], -1, SIZE), k.swapaxes(-1, -2)) * np.float32(SIZE**-0.5)
    p = np.exp(t - t.max(-1, keepdims=True))
    return np.matmul(p / p.sum(-1, keepdims=True), v)


def from_pages(q, k, v, page_keys, threads):
    """Decoding sample i from a cache of all samples."""
    kv_heads, count = k[0].shape[1], len(k)
    cache = heed.KvCache(kv_heads=kv_heads, head_size=SIZE, dtype=str(q.dtype).removeprefix("torch."),
                         pages=count * -(-KEYS // page_keys), page_keys=page_keys)
    names = [cache.create() for _ in range(count)]
    for name, keys, values in zip(names, k, v):
        cache.append(name, keys, values)
    return lambda i: heed.attention_decode(q, cache, names[i], threads=threads)


def calls_of(dtype, kv_heads, caches, threads, pages):
    """A function of (number of a sample) for each library."""
    def drawn(*shape):
        return [torch.randn(shape).to(dtype) for _ in range(caches)]
    q = torch.randn(1, HEADS, 1, SIZE).to(dtype)
    k, v = drawn(1, kv_heads, KEYS, SIZE), drawn(1, kv_heads, KEYS, SIZE)
    flat = [torch.ones(2 * kv_heads * KEYS * SIZE * k[0].element_size() // 8, dtype=torch.int64) for _ in range(caches)]
    grouped = kv_heads != HEADS
    with torch.no_grad():
        wanted = torch.nn.functional.scaled_dot_product_attention(q.double(), k[0].double(), v[0].double(),
                                                                  enable_gqa=grouped)
        got = heed.attention(q, k[0], v[0], threads=threads)
        bound = {torch.float32: 1e-5, torch.float16: 2.0**-13, torch.bfloat16: 2.0**-10}[dtype]
        assert (got.double() - wanted).abs().max() <= bound, "not the same result"
    out = torch.empty_like(q)
    calls = {"heed": lambda i: heed.attention(q, k[i], v[i], out=out, threads=threads),
             "torch": lambda i: torch.nn.functional.scaled_dot_product_attention(q, k[i], v[i], enable_gqa=grouped)}
    if dtype == torch.float32:
        arrays = [(a.numpy(), b.numpy()) for a, b in zip(k, v)]
        calls["numpy"] = lambda i: by_numpy(q.numpy(), *arrays[i])
    if ggml.libraries():
        calls["llama.cpp"] = ggml.Attention(q.float(), k, v, threads)
        calls["llama.cpp"](0)
        found = calls["llama.cpp"].output.transpose(1, 2).double()
        assert (found - wanted).abs().max() <= 2.0**-7, "not the same result"
    for page_keys in pages:
        calls[f"{page_keys} a page"] = from_pages(q, k, v, page_keys, threads)
        assert torch.equal(calls[f"{page_keys} a page"](0), got), "not the bits of dense tensors"
    calls["read"] = lambda i: flat[i].sum()
    return calls


def too_slow(kv_heads, least, threads):
    """What of the floors does not hold, of least times by name."""
    wanted = {name: floor for (heads, name), floor in FLOORS.items() if heads == kv_heads}
    if threads > 1:
        wanted = {"read": FLOOR_OF_READ}
    return [f"{name} / heed {least[name] / least['heed']:.2f}, floor {floor}" for name, floor in wanted.items()
            if name in least and least[name] / least["heed"] < floor]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pages", type=int, nargs="*", default=[], help="keys of a page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a floor does not hold")
    chosen = parser.parse_args()
    failed = False
    bind(chosen.threads)
    dtype = getattr(torch, chosen.dtype)
    for kv_heads in (32, 8):
        size = 2 * kv_heads * KEYS * SIZE * torch.empty(0, dtype=dtype).element_size()
        caches = max(4, LARGER // size)
        calls, took = calls_of(dtype, kv_heads, caches, chosen.threads, chosen.pages), {}
        with torch.no_grad():
            for number in range(chosen.rounds + 1):
                for name, call in list(calls.items())[::1 if number % 2 else -1]:
                    time.sleep(ASLEEP)
                    spread, sample = time.perf_counter() + SPREAD, itertools.count(number)
                    while time.perf_counter() < spread:
                        call(next(sample) % caches)
                    begin = time.perf_counter()
                    call(next(sample) % caches)
                    if number:   # the first round warms up
                        took.setdefault(name, []).append(time.perf_counter() - begin)
        best = min(took["heed"])
        print(f"1 x {KEYS}, {HEADS}/{kv_heads} heads, d {SIZE}, {chosen.dtype}, threads {chosen.threads}: {size / 1e6:.0f} MB")
        for name, samples in took.items():
            least = min(samples)
            print(f"  {name:12}{1e3 * least:9.3f} ms{1e3 * statistics.median(samples):9.3f} median"
                  f"{size / least / 1e9:8.1f} GB/s{least / best:8.2f}")
        for line in too_slow(kv_heads, {name: min(samples) for name, samples in took.items()}, chosen.threads):
            print(f"  FAILS  {line}")
            failed = True
    return 1 if failed and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
