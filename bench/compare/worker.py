"""The process of one library: prepares a cell, makes calls when told to, and times them.

One library to a process, so that two OpenMP runtimes or allocators never meet. Messages are tuples
through a pipe: the name of a method of Worker and its arguments; the answer is ("ok", value),
("unsupported", reason) or ("failed", reason).
"""

import ctypes
import gc
import os
import pathlib
import re
import signal
import threading
import time

SAMPLE_SECONDS = 5e-3   # a sample repeats its call until it lasts so long
WARM_SECONDS = 20e-3    # a longer call brings its data into the caches in little of its time
PR_SET_PDEATHSIG = 1


def resident(name):
    """Bytes of VmRSS or VmHWM of this process."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"{name}:\s*(\d+)", status)[1])


def added_memory(call):
    """Bytes of resident pages that a first call adds at its highest, its results included. In a thread
    of its own, which has kept no memory of calls before."""
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")   # the peak begins anew
    before = resident("VmRSS")
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return max(0, resident("VmHWM") - before)


class Worker:
    def __init__(self, library, threads):
        # Imported here, when environment and CPUs are set.
        if library == "heed":
            from .heed_library import Heed
            self.library = Heed(threads)
        else:
            from . import peers
            self.library = peers.load(library, threads)
        self.call = self.results = None

    def facts(self):
        facts = getattr(self.library, "facts", None)
        return facts() if facts else {"version": self.library.version}

    def prepare(self, cell):
        """Makes the inputs and one call; returns how many calls a sample has, and that call's memory."""
        from .tensors import inputs_of
        self.call = self.results = None
        self.call, self.results = self.library.prepare(cell, inputs_of(cell))
        self.memory = added_memory(self.call)
        calls = 1
        while True:
            seconds = self._time(calls)
            if seconds >= SAMPLE_SECONDS / 2:
                break
            calls *= 2
        self.calls = max(1, round(calls * SAMPLE_SECONDS / seconds))
        self.warms = seconds / calls < WARM_SECONDS
        return self.calls, self.memory

    def sample(self):
        """Seconds of a call, the mean over the calls of a sample."""
        if self.warms:
            self.call()   # untimed: the caches hold the data of another library
        return self._time(self.calls) / self.calls

    def _time(self, calls):
        call = self.call
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - begin

    def rows(self, rows):
        """These query rows of the last output and weights, and a hash of all of the output."""
        import hashlib

        import numpy as np
        results = [None if array is None else np.asarray(array) for array in self.results()]
        digest = hashlib.sha256(np.ascontiguousarray(results[0])).hexdigest()[:16]
        return [None if array is None else array[:, :, rows] for array in results], digest

    def fma_peak(self, dtype="float32"):
        return self.library.fma_peak(dtype)

    def seconds_in_c(self, seconds):
        return self.library.seconds_in_c(seconds)

    def drop(self):
        self.call = self.results = None
        gc.collect()


def answer(worker, message):
    from .cells import Unsupported
    name, *arguments = message
    try:
        return "ok", getattr(worker, name)(*arguments)
    except Unsupported as reason:
        return "unsupported", str(reason)
    except Exception as error:   # whatever a library throws, the run goes on and says so
        return "failed", f"{type(error).__name__}: {error}".splitlines()[0][:200]


def serve(pipe, library, threads, cpus, environment):
    """Runs in the child: one worker until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)   # the parent ends it
    # A stopped child cannot see that its pipe was closed: the kernel ends it with its parent.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.sched_setaffinity(0, cpus)
    os.environ.update(environment)
    os.dup2(2, 1)   # what libraries print is no result
    gc.disable()    # and no collection falls into a sample
    try:
        worker = Worker(library, threads)
        pipe.send(("ok", worker.facts()))
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}".splitlines()[0][:200]))
        return
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        pipe.send(answer(worker, message))
