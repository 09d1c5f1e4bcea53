"""Speed of heed's MultiHeadAttention beside PyTorch's nn.MultiheadAttention, sample by sample in turn.

    cmake --build --preset release --target heed_bench_modules
    build/peers/bin/python bench/modules.py [--threads 1] [--rounds 15] [--shape 32,256,384,12]

forward is evaluation: PyTorch without autograd, need_weights=False, the faster of its fast path (eval) and
its functional path (train). step is forward and backward with the gradients of x and of all parameters.
Minimum and median of the rounds; ratio is heed's time over PyTorch's.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "build" / "release" / "bench" / "heed_bench_modules"


BOUND = 1.3


class Heed:
    def __init__(self, shape, threads):
        self.process = subprocess.Popen([PROGRAM, *map(str, shape), str(threads)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def sample(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


class Torch:
    def __init__(self, shape, threads):
        torch.set_num_threads(threads)
        batch, length, d_model, heads = shape
        self.module = torch.nn.MultiheadAttention(d_model, heads, batch_first=True)
        self.x = torch.randn(batch, length, d_model, requires_grad=True)
        self.d_output = torch.randn(batch, length, d_model)

    def sample(self, what):
        x = self.x
        self.module.train(what != "eval forward")
        begin = time.perf_counter()
        if what == "step":
            self.module.zero_grad(set_to_none=True)
            x.grad = None
            self.module(x, x, x, need_weights=False)[0].backward(self.d_output)
        else:
            with torch.no_grad():
                self.module(x, x, x, need_weights=False)
        return time.perf_counter() - begin


def told(seconds):
    return f"{min(seconds) * 1e3:9.1f}{statistics.median(seconds) * 1e3:9.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shape", default="32,256,384,12", help="batch, length, d_model, heads")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 above {BOUND} times PyTorch's least time")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])
    shape = [int(n) for n in arguments.shape.split(",")]
    ours, theirs = Heed(shape, arguments.threads), Torch(shape, arguments.threads)
    asked = [(ours, "forward"), (theirs, "eval forward"), (theirs, "train forward"), (ours, "step"), (theirs, "step")]
    for library, what in asked:
        library.sample(what)
    taken = {pair: [] for pair in asked}
    for _ in range(arguments.rounds):
        for library, what in asked:
            time.sleep(0.01)   # idle threads of an OpenMP runtime stop spinning
            taken[library, what].append(library.sample(what))
    forward = min((taken[theirs, "eval forward"], taken[theirs, "train forward"]), key=min)
    print(f"(batch, length, d_model, heads) = {tuple(shape)}, threads {arguments.threads}, "
          f"{arguments.rounds} rounds, torch {torch.__version__}")
    print(f"{'ms':10}{'heed min':>9}{'median':>9}{'torch min':>10}{'median':>9}{'ratio min':>11}{'median':>9}")
    slow = False
    for name, a, b in (("forward", taken[ours, "forward"], forward), ("step", taken[ours, "step"], taken[theirs, "step"])):
        ratio = min(a) / min(b), statistics.median(a) / statistics.median(b)
        print(f"{name:10}{told(a)}{told(b):>19}{ratio[0]:11.2f}{ratio[1]:9.2f}")
        slow |= ratio[0] > BOUND
    return 1 if arguments.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
