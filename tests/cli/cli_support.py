"""What the tests of the command line share: calling heed, writing inputs, attention in NumPy."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEED = os.environ.get("HEED_BIN", str(ROOT / "build/release/cli/heed"))

# Under AddressSanitizer a study that trains takes minutes; training_test runs the same code there.
SANITIZED = b"__asan_init" in pathlib.Path(HEED).read_bytes()


def memory_is_known():
    """Whether this system tells the largest memory of a process, and lets it begin anew."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        return "VmHWM" in pathlib.Path("/proc/self/status").read_text()
    except OSError:
        return False


def heed(*arguments, folder=None, env=None, limit=600, **more):
    """Runs heed, text in and out, in a folder and an environment without heed's variables."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("HEED_", "OMP_"))}
    return subprocess.run([HEED, *map(str, arguments)], cwd=folder, env={**environment, **(env or {})},
                          capture_output=True, text=True, timeout=limit, **more)


def heed_ok(*arguments, folder=None, **more):
    done = heed(*arguments, folder=folder, **more)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def no_new_threads():
    """For preexec_fn: no address space holds the stack of a thread, so the system refuses each, to
    root too."""
    resource.setrlimit(resource.RLIMIT_STACK, (2**50, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def peak_bytes(*arguments, folder=None, code=0):
    """What heed held at most, in a process that ends with this code. A small process starts it: what this one holds would count."""
    starts = ("import resource, subprocess, sys; "
              "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode; "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, code)")
    done = subprocess.run([sys.executable, "-c", starts, HEED, *map(str, arguments)], cwd=folder, capture_output=True, text=True,
                          check=True)
    held, ended = map(int, done.stdout.split())
    assert ended == code
    return held


def snapshot(folder):
    """Names, kinds and contents of everything in a folder."""
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None
            for path in pathlib.Path(folder).rglob("*")}


def halt(process, number):
    """Halts a process: is it still there, does it compute, since threads are started when all is read, and has main
    set what handles the signal, which else ends it by itself?"""
    os.kill(process, signal.SIGSTOP)
    if os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code != os.CLD_STOPPED:
        return False, False, False
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines())
    return True, int(status["Threads"]) > 1, bool(int(status["SigCgt"], 16) >> (number - 1) & 1)


@contextlib.contextmanager
def halted_at_work(run):
    """Halts a run of several threads while it computes, however long it takes; it goes on afterwards."""
    while True:
        there, at_work, _ = halt(run.pid, signal.SIGINT)
        assert there, "the run ended before it was seen at work"
        if at_work:
            break
        run.send_signal(signal.SIGCONT)
        time.sleep(0.001)
    try:
        yield
    finally:
        run.send_signal(signal.SIGCONT)


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operands(batch=2, heads=4, kv_heads=2, queries=5, keys=7, d=8, d_v=6, seed=1):
    return {"q": draw(seed, batch, heads, queries, d), "k": draw(seed + 1, batch, kv_heads, keys, d),
            "v": draw(seed + 2, batch, kv_heads, keys, d_v)}


def save_bf16(path, tensors):
    """A .safetensors file of bfloat16 tensors, written by hand: NumPy has no such type."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = np.asarray(values, dtype=ml_dtypes.bfloat16).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(np.shape(values)),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def load_raw_safetensors(path):
    """Header and data of a .safetensors file, whatever its types."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def load(path):
    """The tensors of a result file; a .npy file's one is called output."""
    path = str(path)
    if path.endswith(".safetensors"):
        return load_file(path)
    if path.endswith(".npy"):
        return {"output": np.load(path, allow_pickle=False)}
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def save(path, tensors):
    save_file(tensors, path) if str(path).endswith(".safetensors") else np.savez(path, **tensors)


def per_batch(value, batch):
    return np.broadcast_to(np.asarray(value), (batch,))[:, None, None, None]


def attention(q, k, v, *, scale=None, normalize_qk=False, softcap=None, alibi=None, bias=None,
              causal=False, query_start=0, window=(None, None), key_lengths=None, query_lengths=None,
              keep=None, drop=None, sinks=None):
    """The definition in float64, [B, H, T, D]: output, lse, weights."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, heads, queries, d = q.shape
    group = heads // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    keys = k.shape[2]
    t = q @ k.swapaxes(-1, -2)
    if normalize_qk:
        t = t / (np.linalg.norm(q, axis=-1)[..., :, None] * np.linalg.norm(k, axis=-1)[..., None, :])
    default = 1.0 if normalize_qk else d ** -0.5
    factor = np.asarray(default if scale is None else scale, np.float64)
    t = t * (factor[:, None, None] if factor.ndim else factor)
    if softcap is not None:
        t = softcap * np.tanh(t / softcap)
    p = np.arange(queries)[:, None] + per_batch(query_start, batch)
    j = np.arange(keys)[None, :]
    if alibi is not None:
        t = t - np.asarray(alibi, np.float64)[:, None, None] * np.abs(p - j)
    if bias is not None:
        t = t + bias
    seen = np.ones((batch, heads, queries, keys), bool)
    left, right = window
    if causal:
        seen &= j <= p
    if left is not None:
        seen &= j >= p - left
    if right is not None:
        seen &= j <= p + right
    if key_lengths is not None:
        seen &= j < per_batch(key_lengths, batch)
    if query_lengths is not None:
        seen &= np.arange(queries)[:, None] < per_batch(query_lengths, batch)
    if keep is not None:
        seen &= np.asarray(keep).astype(bool)
    if drop is not None:
        seen &= ~np.asarray(drop).astype(bool)
    t = np.where(seen, t, -np.inf)
    extra = np.full((batch, heads, queries, 1), -np.inf)
    if sinks is not None:
        extra[:] = np.asarray(sinks, np.float64)[:, None, None]
    most = np.maximum(np.concatenate([t, extra], -1).max(-1, keepdims=True), -1e300)
    e = np.where(seen, np.exp(t - most), 0.0)
    total = e.sum(-1, keepdims=True) + np.exp(extra - most)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + most)[..., 0]
    empty = ~seen.any(-1, keepdims=True)
    weights = np.where(empty, 0.0, e / np.where(total == 0, 1.0, total))
    if sinks is None:
        lse = np.where(empty[..., 0], -np.inf, lse)
    return weights @ v, lse, weights
