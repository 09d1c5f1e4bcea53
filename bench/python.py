"""What a call from Python costs beside the same call in C++, in one process, in turn.

    build/peers/bin/python bench/python.py                # all parts; --check: exit code 1 if a bound does not hold
    build/peers/bin/python bench/python.py --parts cells

Three parts. `cells`: heed.attention on NumPy arrays beside heed::attention_forward on the same memory, through a loop in
C++ (bench/c_abi.h). `arrays`: the smallest call with each kind of arrays. `torch`: heed.torch beside PyTorch's function
at 12 heads of 16 tokens. Told are least times over many short samples, in microseconds: noise only adds.

--check wants heed.attention(.., out=) within 3 us of C++ in cells below 100 us, and heed.torch faster than PyTorch. The
least times of longer calls differ by more than that, either way, with the places in memory that a process happens to get.

It needs heed, PyTorch for the last two parts, and the library that `cmake --build --preset release --target
heed_bench_abi` makes. OMP_NUM_THREADS=1 keeps PyTorch to one thread before this program can.
"""

import argparse
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALLOWED = 3e-6     # seconds that Python may add to a call
MEANT = 100e-6     # seconds of the longest call that is checked
SAMPLE = 1e-3      # seconds that a sample lasts at least
LONGEST = 4        # seconds for all samples of a call, of which there are never fewer than 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="cells,arrays,torch", help="some of these, with commas between")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200, help="samples of each call, fewer of long ones")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def repeated(call):
    """call, any number of times."""
    def run(times):
        for _ in range(times):
            call()
    return run


def least_times(calls, rounds):
    """Seconds of a call, the least over all rounds, by the names of `calls`: functions of a number of times."""
    times, best = {}, dict.fromkeys(calls, float("inf"))
    for name, run in calls.items():
        times[name] = 1
        while timed(run, times[name]) < SAMPLE:
            times[name] *= 2
    for i in range(max(10, min(rounds, int(LONGEST / max(timed(calls[name], times[name]) for name in calls))))):
        for name in list(calls)[::1 if i % 2 else -1]:
            best[name] = min(best[name], timed(calls[name], times[name]) / times[name])
    return best


def timed(run, times):
    begin = time.perf_counter()
    run(times)
    return time.perf_counter() - begin


def cells(chosen):
    """NumPy beside C++. The cells that took too long."""
    import numpy as np
    from compare.cells import Cell
    from compare.heed_library import Heed
    from compare.tensors import inputs_of

    import heed
    os.environ.setdefault("HEED_BENCH_ABI", str(ROOT / "build/release/bench/libheed_bench_abi.so"))
    library, late = Heed(chosen.threads), []
    print(f"{'':28}{'C++':>10}{'out=':>10}{'':>9}{'new array':>10}", flush=True)
    for cell in (Cell(1, 1, 4, 8), Cell(1, 1, 4, 8, mask="causal"), Cell(1, 12, 16, 64), Cell(1, 8, 1, 64, keys=128),
                 Cell(2, 8, 16, 32, layout="bthd"), Cell(1, 8, 128, 64), Cell(1, 8, 512, 64), Cell(1, 8, 2048, 64),
                 Cell(1, 8, 2048, 64, mask="causal")):
        inputs = inputs_of(cell)
        once, results = library.prepare(cell, inputs)
        once()
        q, k, v = (inputs[name] for name in "qkv")
        options = {"causal": cell.is_causal, "threads": chosen.threads}
        assert np.array_equal(heed.attention(q, k, v, **options), results()[0]), "not the same bits"
        out = results()[0]
        best = least_times({"C++": library.repeated,
                            "out": repeated(lambda: heed.attention(q, k, v, out=out, **options)),
                            "new": repeated(lambda: heed.attention(q, k, v, **options))}, chosen.rounds)
        more = best["out"] - best["C++"]
        if best["C++"] < MEANT and more > ALLOWED:
            late.append(f"{cell.name}: {1e6 * more:.2f} us more than C++; expected at most {1e6 * ALLOWED:.0f}")
        print(f"{cell.name:28}{1e6 * best['C++']:10.2f}{1e6 * best['out']:10.2f}{1e6 * more:+9.2f}{1e6 * best['new']:10.2f}",
              flush=True)
    return late


def arrays(chosen):
    """The smallest call, with each kind of arrays."""
    import numpy as np
    import torch

    import heed
    import heed.torch
    torch.set_num_threads(chosen.threads)
    shape, options = (1, 1, 1, 8), {"threads": chosen.threads}
    ones = {"NumPy": np.ones(shape, np.float32), "PyTorch": torch.ones(shape)}

    def on(x, function=heed.attention, **more):
        return repeated(lambda: function(x, x, x, **options, **more))
    best = least_times({f"heed.attention, {kind}": on(x) for kind, x in ones.items()} | {
        "heed.attention, NumPy, out=": on(ones["NumPy"], out=np.empty(shape, np.float32)),
        "heed.torch.attention": on(ones["PyTorch"], heed.torch.attention)}, chosen.rounds)
    print_all(f"arrays of {shape}", best)
    return []


def torch(chosen):
    """heed.torch beside PyTorch. Whether it is slower."""
    import numpy as np
    import torch

    import heed
    import heed.torch
    torch.set_num_threads(chosen.threads)
    q = torch.randn(1, 12, 16, 64)
    bthd = torch.randn(1, 16, 12, 64).transpose(1, 2)
    recorded = torch.randn(1, 12, 16, 64, requires_grad=True)
    x, out = q.numpy(), np.empty(q.shape, np.float32)
    functions = {"heed.torch": heed.torch.scaled_dot_product_attention,
                 "PyTorch": torch.nn.functional.scaled_dot_product_attention}
    tensors = {"": q, ", transposed [B, T, H, D]": bthd, ", recorded by autograd": recorded}

    def on(function, tensor):
        return repeated(lambda: function(tensor, tensor, tensor))
    best = least_times({name + kind: on(function, tensor) for kind, tensor in tensors.items()
                        for name, function in functions.items()} | {
        "torch.ops.heed, recorded by autograd": repeated(lambda: torch.ops.heed.attention_forward(*[recorded] * 3, *[None] * 11)),
        "heed.attention, NumPy, out=": repeated(lambda: heed.attention(x, x, x, out=out, threads=chosen.threads))},
        chosen.rounds)
    print_all(f"{tuple(q.shape)}, PyTorch {torch.__version__}", best)
    slower = best["heed.torch"] >= best["PyTorch"]
    return [f"heed.torch is slower than PyTorch at {tuple(q.shape)}"] if slower else []


def print_all(title, best):
    print(f"\n{title}")
    for name, seconds in best.items():
        print(f"  {name:38}{1e6 * seconds:8.2f}", flush=True)


def main():
    chosen = arguments()
    os.environ.setdefault("OMP_NUM_THREADS", str(chosen.threads))
    parts = {"cells": cells, "arrays": arrays, "torch": torch}
    unknown = set(chosen.parts.split(",")) - set(parts)
    if unknown:
        sys.exit(f"--parts names {', '.join(unknown)}; expected some of {', '.join(parts)}")
    print(f"least of {chosen.rounds} samples, of long calls of fewer, microseconds, {chosen.threads} threads")
    failures = [failure for name in chosen.parts.split(",") for failure in parts[name](chosen)]
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(1 if chosen.check and failures else 0)


if __name__ == "__main__":
    main()
