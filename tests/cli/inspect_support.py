"""What the tests of heed inspect share: inputs, its JSON, scores and weights in NumPy."""

import fcntl
import json
import math
import os
import pty
import struct
import subprocess
import termios

import numpy as np

from cli_support import HEED, draw, heed_ok, save_file


def save(folder, **tensors):
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()},
              folder / "qk.safetensors")
    return folder / "qk.safetensors"


def inspect(path, *flags, **more):
    told = json.loads(heed_ok("inspect", path, *flags, "--json", **more))
    assert len(told["found"]) == told["layers"] * told["heads"] > 0   # tests look at each
    return told


def in_terminal(width, *arguments):
    """What a terminal of that width is shown."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with subprocess.Popen([HEED, "inspect", *map(str, arguments)], stdout=theirs,
                          env={**os.environ, "NO_COLOR": "1"}) as run:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 4096)
            except OSError:  # the program has ended
                break
        assert run.wait() == 0
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


def scores_of(q, k, scale=None):
    group = q.shape[1] // k.shape[1]
    k = np.repeat(k, group, axis=1).astype(np.float64)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k) * scale


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def sentences(found):
    return " / ".join(remark["sentence"] for remark in found["remarks"])


def suggestions(found):
    return " / ".join(remark["suggestion"] for remark in found["remarks"])


def warned(found):
    return any(remark["severity"] == "warning" for remark in found["remarks"])


def healthy(seed=20, size=64, rows=40):
    return draw(seed, 1, 1, rows, size), draw(seed + 1, 1, 1, rows, size)
