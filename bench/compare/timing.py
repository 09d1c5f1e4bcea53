"""Rounds: each library takes one sample in turn, while all others are stopped."""

import dataclasses
import multiprocessing
import os
import pathlib
import random
import signal
import statistics
import sys
import time

from . import tensors

FEWEST_ROUNDS = 3
ANSWER_SECONDS = 180   # after which a library counts as hanging
STOP_SECONDS = 1       # after which a process that does not stop is left alone
# Errors of standard-normal tensors that are no rounding: outputs reach 5, and 2^-8 of that is 0.02.
WRONG = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-1}
UNSTABLE = 1.05        # median / minimum from which a timing is marked
PEAK_MOVED = 1.03      # largest / least peak above which the machine was disturbed


@dataclasses.dataclass
class Run:
    """What one library did on one cell."""

    samples: list = dataclasses.field(default_factory=list)   # seconds of a call
    calls: int = 0        # in a sample
    memory: int = 0       # bytes that a first call adds, its results included
    error: float = None   # largest, against float64
    hash: str = ""        # of the output's bytes
    reason: str = ""      # why there is no time
    failed: bool = False  # the library should have been able to, so somebody should know
    in_c: float = None    # heed's tiny calls: seconds when the loop over calls is in C

    @property
    def minimum(self):
        return min(self.samples)

    @property
    def median(self):
        return statistics.median(self.samples)

    @property
    def valid(self):
        """No error, no time."""
        return bool(self.samples) and self.error is not None and not self.reason

    def fail(self, failure):
        self.reason, self.failed = str(failure), not isinstance(failure, Lacks)

    @property
    def stable(self):
        return self.median < UNSTABLE * self.minimum


@dataclasses.dataclass
class Row:
    cell: object
    threads: int
    runs: dict = dataclasses.field(default_factory=dict)   # by library; also "heed, one thread"
    peaks: list = dataclasses.field(default_factory=list)  # GFLOP/s, before and after the rounds
    uncapped_peak: float = 0.0                             # the same without the cell's max_isa
    rows_checked: int = 0

    @property
    def heed(self):
        return self.runs["heed"]

    def ratio(self, library):
        """How many times as long as heed's best call its best call takes; None if it has none."""
        run = self.runs.get(library)
        if run is None or not run.valid or not self.heed.valid:
            return None
        return run.minimum / self.heed.minimum

    def best_peer(self):
        peers = [name for name, run in self.runs.items()
                 if run.valid and not name.startswith("heed")]
        return min(peers, key=lambda name: self.runs[name].minimum, default=None)

    def lost_peer(self):
        """One that failed, and might have been the best; one that is wrong is no peer."""
        return next((name for name, run in self.runs.items() if run.failed and not name.startswith("heed")
                     and (run.error is None or run.error <= WRONG[self.cell.dtype])), None)

    @property
    def peak(self):
        return max(self.peaks, default=0.0)

    @property
    def peak_moved(self):
        """The machine was not always as fast in the last rounds, so a share of its peak says little."""
        return max(self.peaks[-2:], default=0.0) > PEAK_MOVED * min(self.peaks[-2:], default=0.0)

    @property
    def gflops(self):
        return self.cell.flops / self.heed.minimum * 1e-9


class Failed(Exception):
    """A library that did not do what it was asked; the text says why."""


class Lacks(Failed):
    """A library that has no such operation."""


class Child:
    """A library's process, stopped unless it is asked something: no thread of it can spin."""

    def __init__(self, library, threads, max_isa=""):
        cpus = sorted(os.sched_getaffinity(0))[-threads:]
        environment = {"OMP_NUM_THREADS": str(threads)}
        if max_isa:   # read when heed chooses its kernels, so it takes a process of its own
            environment["HEED_MAX_ISA"] = max_isa
        context = multiprocessing.get_context("spawn")
        from .worker import serve
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, daemon=True,
                                       args=(theirs, library, threads, cpus, environment))
        self.process.start()
        theirs.close()
        self.failure = ""
        try:
            self.facts = self._answer()
        except Failed as failure:
            self.facts, self.failure = {}, str(failure)
            self.end()

    def ask(self, *message):
        if self.failure:
            raise Failed(self.failure)
        os.kill(self.process.pid, signal.SIGCONT)
        self.pipe.send(message)
        return self._answer()

    def _answer(self):
        try:
            if not self.pipe.poll(ANSWER_SECONDS):
                self.end()
                self.failure = f"no answer in {ANSWER_SECONDS} s"
                raise Failed(self.failure)
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(5)
            self.failure = f"its process ended with {self.process.exitcode}"
            raise Failed(self.failure) from None
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGSTOP)
            self._wait_until_stopped()
        if kind != "ok":
            raise (Lacks if kind == "unsupported" else Failed)(value)
        return value

    def _wait_until_stopped(self):
        """A thread inside the kernel stops when it comes out: one of JAX's spends 15 ms there, giving
        back the memory of a call, on the core that the next library is to have."""
        end = time.monotonic() + STOP_SECONDS
        while time.monotonic() < end:
            try:
                if all(stat.read_text().rpartition(")")[2].split()[0] in "TtZX"
                       for stat in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat")):
                    return
            except OSError:   # a thread that has just ended
                continue
            time.sleep(1e-3)

    def end(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Crew:
    """The children of one number of threads, and one-thread heed beside them; made when needed."""

    def __init__(self, threads, peers):
        self.threads, self.peers, self.children, self.missing = threads, peers, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children.values():
            if not child.failure:
                child.end()

    def child(self, name, max_isa=""):
        """heed, "heed, one thread" or a peer; one that crashed or hung starts anew."""
        isa = max_isa if name.startswith("heed") else ""
        known = self.children.get((name, isa))
        if known is None or (known.failure and known.facts):
            threads = 1 if name == "heed, one thread" else self.threads
            known = self.children[name, isa] = Child(name.split(",")[0], threads, isa)
            if not known.facts:
                self.missing[name] = known.failure
        return known

    def measure(self, cell, seconds, in_c=False):
        """A row: every library that can, prepared, timed in rounds, compared with float64."""
        row = Row(cell, self.threads)
        alone = ["heed, one thread"] if cell.scaling and self.threads > 1 else []
        able = {}
        for name in ["heed", *alone, *self.peers]:
            run = row.runs[name] = Run()
            try:
                child = self.child(name, cell.max_isa)
                run.calls, run.memory = child.ask("prepare", cell)
                able[name] = child
            except Failed as failure:
                run.fail(failure)
        try:
            self.sample(row, able, seconds)
            if in_c and "heed" in able:
                row.heed.in_c = able["heed"].ask("seconds_in_c", min(seconds, 0.5))
        except Failed as failure:   # heed's own process ended
            row.heed.fail(failure)
        self._compare(row, able)
        return row, able

    def sample(self, row, able, seconds):
        """Adds rounds to the row, each in an order of its own: nobody always follows the same."""
        row.peaks.append(self._peak(able, row.cell))
        begin, rounds, order, shuffled = time.monotonic(), 0, list(able), random.Random(0)
        while order and (rounds < FEWEST_ROUNDS or time.monotonic() - begin < seconds):
            for name in order:
                run = row.runs[name]
                if not run.reason:
                    try:
                        run.samples.append(able[name].ask("sample"))
                    except Failed as failure:
                        run.fail(failure)
            shuffled.shuffle(order)
            rounds += 1
        row.peaks.append(self._peak(able, row.cell))
        row.uncapped_peak = row.peak
        if row.cell.max_isa and "heed" in able:
            row.uncapped_peak = self.child("heed").ask("fma_peak")

    def sample_again(self, row, able, seconds):
        """More rounds for a row that has some; if heed's process ends, those before stand."""
        try:
            self.sample(row, able, seconds)
            if row.heed.in_c:
                row.heed.in_c = min(row.heed.in_c, able["heed"].ask("seconds_in_c", min(seconds, 0.5)))
        except Failed as failure:
            print(f"heed, second chance: {failure}", file=sys.stderr)

    @staticmethod
    def _peak(able, cell):
        return able["heed"].ask("fma_peak", cell.dtype) if "heed" in able else 0.0

    @staticmethod
    def _compare(row, able):
        cell = row.cell
        rows = tensors.rows_to_check(cell)
        row.rows_checked = len(rows)
        inputs = tensors.inputs_of(cell)
        true = tensors.truth(cell, inputs, rows)
        undropped = tensors.truth(cell, inputs, rows, dropped=False) if cell.dropout else true
        for name, child in able.items():
            run = row.runs[name]
            try:
                results, run.hash = child.ask("rows", rows)
            except Failed as failure:
                run.fail(run.reason or failure)
                continue
            run.error = tensors.largest_error(results, true if name.startswith("heed") else undropped)
            if run.error > WRONG[cell.dtype]:
                run.fail(f"wrong by {run.error:.1e}")
