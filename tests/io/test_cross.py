"""NumPy and the safetensors library read what heed writes, and heed reads what they write.

Also: every refusal of the readers in src/io stands in refused.py by an example that they refuse too or read, but for want
of memory and for members within each other, of which versions of Python think otherwise; and so does what heed reads and
they refuse. All are checked, so that the lists are true.
HEED_IO_CONVERT names the program io_convert, if not that of build/release.
"""

import io
import itertools
import os
import pathlib
import struct
import subprocess
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/rules"))

import messages  # noqa: E402
from refused import BOTH_REFUSE, HEED_REFUSES, OTHER_REFUSES, entry, safe

CONVERT = os.environ.get("HEED_IO_CONVERT", ROOT / "build/release/tests/io/io_convert")
DTYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
SHAPES = [(), (0,), (1,), (5,), (2, 3), (3, 0, 2), (2, 3, 4), (1, 2, 1, 3, 2)]


def convert(source, target, *flags):
    """Returns heed's exit code and message."""
    run = subprocess.run([CONVERT, source, target, *flags], capture_output=True, text=True)
    assert run.stdout == "" and run.stderr.count("\n") == (run.returncode != 0)
    return run.returncode, run.stderr


def converted(source, target):
    code, message = convert(source, target)
    assert code == 0, message
    return target


def sample(dtype, shape):
    """Every bit pattern is welcome, NaN too; a bool holds 0 or 1."""
    random = np.random.default_rng(len(shape) + 17)
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    if dtype == np.bool_:
        return random.integers(0, 2, size=shape).astype(bool)
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype=dtype).reshape(shape)


def same(a, b):
    """Equal type, shape and bits, whatever the byte order."""
    a, b = np.asarray(a), np.asarray(b)
    native = [np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("=")).reshape(x.shape) for x in (a, b)]
    assert native[0].dtype == native[1].dtype and a.shape == b.shape
    assert native[0].tobytes() == native[1].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_npy_of_numpy_comes_back(tmp_path, dtype, order, layout):
    for number, shape in enumerate(SHAPES):
        array = np.asarray(sample(np.dtype(dtype).newbyteorder(order), shape), order=layout)
        source, target = tmp_path / f"{number}.npy", tmp_path / f"{number}-out.npy"
        np.save(source, array)
        same(np.load(converted(source, target), allow_pickle=False), array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions_of_numpy_are_read(tmp_path, version):
    array = sample("f4", (3, 5))
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    same(np.load(converted(tmp_path / "x.npy", tmp_path / "y.npy")), array)


def test_npy_written_by_heed_is_the_file_that_numpy_writes(tmp_path):
    for number, (dtype, shape) in enumerate(itertools.product(DTYPES, SHAPES)):
        source, target = tmp_path / f"{number}.npy", tmp_path / f"{number}-out.npy"
        np.save(source, sample(dtype, shape))
        ours, theirs = converted(source, target).read_bytes(), source.read_bytes()
        # NumPy leaves room for the first axis to grow; the dictionary and the data are equal.
        assert ours[:8] == theirs[:8] and len(ours[: ours.index(b"\n") + 1]) % 64 == 0
        assert ours[10:].split(b"\n", 1)[0].rstrip() == theirs[10:].split(b"\n", 1)[0].rstrip()
        assert ours.split(b"\n", 1)[1] == theirs.split(b"\n", 1)[1]


def arrays():
    result = {f"{d.strip('?') or 'b'}/{i}": sample(d, s) for d in DTYPES for i, s in enumerate(SHAPES)}
    result["größe"] = sample("f4", (2,))
    return result


class Unseekable(io.RawIOBase):
    """A target as a pipe is one: zipfile then writes sizes after the data."""

    def __init__(self):
        self.bytes = bytearray()

    def writable(self):
        return True

    def seekable(self):
        return False

    def write(self, data):
        self.bytes += data
        return len(data)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_numpy_comes_back(tmp_path, save):
    wanted = arrays()
    save(tmp_path / "x.npz", **wanted)
    stream = Unseekable()
    save(stream, **wanted)
    (tmp_path / "streamed.npz").write_bytes(stream.bytes)
    for name in ("x.npz", "streamed.npz"):
        with np.load(converted(tmp_path / name, tmp_path / "y.npz"), allow_pickle=False) as got:
            assert set(got.files) == set(wanted)
            for key, array in wanted.items():
                same(got[key], array)
    assert zipfile.ZipFile(tmp_path / "y.npz").testzip() is None


def test_npz_of_large_zeros_inflates(tmp_path):
    array = np.zeros((1000, 1000), "f8")
    np.savez_compressed(tmp_path / "x.npz", zeros=array)
    same(np.load(converted(tmp_path / "x.npz", tmp_path / "y.npz"))["zeros"], array)


def test_npz_without_arrays_is_legal(tmp_path):
    np.savez(tmp_path / "x.npz")
    assert np.load(converted(tmp_path / "x.npz", tmp_path / "y.npz")).files == []


def test_safetensors_comes_back(tmp_path):
    wanted = arrays()
    metadata = {"format": "np", "größe": "5\n"}
    safetensors.numpy.save_file(wanted, tmp_path / "x.safetensors", metadata)
    target = converted(tmp_path / "x.safetensors", tmp_path / "y.safetensors")
    with safetensors.safe_open(target, "np") as file:
        assert file.metadata() == metadata
        assert set(file.keys()) == set(wanted)
        for key, array in wanted.items():
            same(file.get_tensor(key), array)
    header = struct.unpack("<Q", target.read_bytes()[:8])[0]
    assert header % 8 == 0


def test_bfloat16_bits_come_back(tmp_path):
    bits = np.arange(65536, dtype="u2").view(ml_dtypes.bfloat16).reshape(256, 256)
    header = {"x": entry("BF16", [256, 256], [0, 131072])}
    (tmp_path / "x.safetensors").write_bytes(safe(header, bits.tobytes()))
    target = converted(tmp_path / "x.safetensors", tmp_path / "y.safetensors")
    [(name, got)] = safetensors.deserialize(target.read_bytes())
    assert (name, got["dtype"], got["shape"]) == ("x", "BF16", [256, 256])
    assert bytes(got["data"]) == bits.tobytes()
    code, message = convert(target, tmp_path / "y.npy")
    assert code == 2 and "bfloat16 has no name in .npy" in message


def test_formats_convert_into_each_other(tmp_path):
    wanted = arrays()
    np.savez(tmp_path / "x.npz", **wanted)
    safe = converted(tmp_path / "x.npz", tmp_path / "x.safetensors")
    for key, array in safetensors.numpy.load_file(safe).items():
        same(array, wanted[key])
    with np.load(converted(safe, tmp_path / "y.npz")) as back:
        for key, array in wanted.items():
            same(back[key], array)


PIECES = ["a", "Q", "layers.0.", "attn/", "ключ", "é", " ", "0", "_", "x" * 40, "\U0001F511", "%s"]
ORDERS = [order + dtype for order in "<>" for dtype in DTYPES]


def drawn(random):
    """Up to six arrays of any type, byte order, shape and layout, under names that both formats can hold."""
    found = {}
    for _ in range(random.integers(7)):
        name = "".join(random.choice(PIECES, random.integers(1, 6)))
        shape = tuple(random.integers(0, 5, random.integers(5)))
        array = sample(random.choice(ORDERS), shape)
        found[name] = np.asarray(array, order=random.choice(["C", "F"]))
    return found


def saved(arrays, path, random):
    if path.suffix == ".npz":
        (np.savez if random.random() < 0.5 else np.savez_compressed)(path, **arrays)
    else:
        safetensors.numpy.save_file({name: np.ascontiguousarray(x, x.dtype.newbyteorder("=")).reshape(x.shape)
                                     for name, x in arrays.items()}, path)


def loaded(path):
    return dict(np.load(path, allow_pickle=False)) if path.suffix == ".npz" else safetensors.numpy.load_file(path)


@pytest.mark.parametrize("target", ["npz", "safetensors"])
@pytest.mark.parametrize("source", ["npz", "safetensors"])
def test_drawn_archives_come_back(tmp_path, source, target):
    """100 of each: written by the one library, read and written by heed, read by that of the other format."""
    for seed in range(100):
        random = np.random.default_rng(seed)
        wanted = drawn(random)
        saved(wanted, tmp_path / f"x.{source}", random)
        got = loaded(converted(tmp_path / f"x.{source}", tmp_path / f"y.{target}"))
        assert set(got) == set(wanted), seed
        for name, array in wanted.items():
            same(got[name], array)


def other_reads(path):
    try:
        if path.suffix == ".npy":
            np.load(path, allow_pickle=False)
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                for name in archive.files:
                    archive[name]
        else:
            safetensors.deserialize(path.read_bytes())
    except Exception:  # of many types
        return False
    return True


@pytest.mark.parametrize(
    "name, heed_reads, other",
    [(n, False, False) for n in BOTH_REFUSE]
    + [(n, False, True) for n in HEED_REFUSES]
    + [(n, True, False) for n in OTHER_REFUSES],
)
def test_what_is_refused_by_whom(tmp_path, name, heed_reads, other):
    path = tmp_path / name
    path.write_bytes({**BOTH_REFUSE, **HEED_REFUSES, **OTHER_REFUSES}[name])
    code, message = convert(path, tmp_path / "out.safetensors")
    assert code == (0 if heed_reads else 3), message
    assert other_reads(path) == other


def test_each_refusal_of_the_readers_has_an_example(tmp_path):
    """What only writers say is left out, and what libzip says before, or has no memory for."""
    elsewhere = {"an overlap of": "members within each other", "cannot allocate memory to read the archive": "no memory",
                 "bfloat16 has no name in .npy; convert to float32 or write .safetensors": "written", "axes; .npy holds at most 64": "written",
                 "bytes; .safetensors holds at most 100000000": "written", "cannot write the archive:": "written",
                 'no tensor can be called "__metadata__" in .safetensors': "written"}
    sources = {str(path.relative_to(ROOT)): path.read_text() for kind in ("npy", "npz", "safetensors", "zip")
               for path in (ROOT / "src/io").glob(f"{kind}*.cc")}
    words = {words for _, _, words in messages.refusals(sources)} - {*messages.UNQUOTED}
    told = ""
    for name, content in {**BOTH_REFUSE, **HEED_REFUSES}.items():
        (tmp_path / name).write_bytes(content)
        told += convert(tmp_path / name, tmp_path / "out.safetensors")[1]
    assert len(sources) > 6 and len(words) > 50
    assert {one for one in words if one not in told} == {*elsewhere}


def test_trailing_bytes_are_ignored_when_allowed(tmp_path):
    for name in ("trailing.npy", "trailing.safetensors"):
        path = tmp_path / name
        path.write_bytes({**BOTH_REFUSE, **HEED_REFUSES}[name])
        assert convert(path, tmp_path / "out.safetensors", "--allow-trailing")[0] == 0
        whole = path.with_stem("whole")
        whole.write_bytes(path.read_bytes()[:-1])   # 17 bytes of data where 16 belong
        assert convert(whole, tmp_path / "whole.safetensors")[0] == 0
        assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
