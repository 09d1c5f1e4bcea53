"""NumPy and the safetensors library read what heed writes, and heed reads what they write.

Also: every refusal of the readers in src/io, but for want of memory, stands here by an example that they
refuse too or read, and so does what heed reads and they refuse. All are checked, so that the lists are true.
HEED_IO_CONVERT names the program io_convert, if not that of build/release.
"""

import io
import itertools
import json
import os
import pathlib
import struct
import subprocess
import warnings
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


# What is refused by which side.


def npy(dictionary, data=bytes(16), version=b"\1\0"):
    header = dictionary.encode("latin1")
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(header))
    return b"\x93NUMPY" + version + length + header + data


def header(descr="'<f4'", fortran="False", shape="(4,)", more=""):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, {more}}}"


def safe(text, data=bytes(16)):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(4,), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


MEMBER = npy(header())


def npz(*names, method=zipfile.ZIP_STORED, member=MEMBER, extra=b""):
    """An archive of members with these names, each the same array."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there already
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name in names:
                info = zipfile.ZipInfo(name)
                info.compress_type, info.extra = method, extra
                archive.writestr(info, member)
    return buffer.getvalue()


def damaged(archive, at, by):
    """The archive with some bytes changed, those at `at` of it or, if negative, before its end."""
    at %= len(archive)
    return archive[:at] + by + archive[at + len(by):]


# How the headers of a .npz begin, and where each keeps its fields; the central one of a member those two bytes later.
LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
VERSION, FLAGS, METHOD, TIME, CRC, COMPRESSED, SIZE, NAME = 4, 6, 8, 10, 14, 18, 22, 30
COMMENT_LENGTH = 30            # in the central header alone
DISK, COUNT, DIRECTORY_SIZE, DIRECTORY, END_COMMENT_LENGTH = 4, 8, 12, 16, 20
NAMED_X = NAME + len("x.npy")  # what follows the name there


def changed(archive, field, by, *headers):
    """The archive with a field changed in the first header of each of these kinds."""
    for kind in headers:
        archive = damaged(archive, archive.index(kind) + field + (2 if kind == CENTRAL else 0), by)
    return archive


def number(value):
    return struct.pack("<I", value)


STORED, DEFLATED = npz("x.npy"), npz("x.npy", method=zipfile.ZIP_DEFLATED)


def compressed_size(archive):
    return struct.unpack_from("<I", archive, COMPRESSED)[0]


def size_said(archive, size):
    return changed(archive, SIZE, number(size), LOCAL, CENTRAL)


def longer_than_said():
    """A member that is deflated from more than its size, whose CRC-32 is that of as much as its size."""
    longer = npz("x.npy", method=zipfile.ZIP_DEFLATED, member=MEMBER + b"more")
    return changed(size_said(longer, len(MEMBER)), CRC, number(zlib.crc32(MEMBER)), LOCAL, CENTRAL)


def with_gap(archive):
    """Bytes of nobody before the end record."""
    at = archive.index(END)
    return archive[:at] + b"gap!" + archive[at:]


def with_hole(archive):
    """Bytes of nobody before the directory."""
    at = archive.index(CENTRAL)
    return changed(archive[:at] + b"hole" + archive[at:], DIRECTORY, number(at + 4), END)


BOTH_REFUSE = {
    "encrypted.npz": changed(STORED, FLAGS, b"\1", LOCAL, CENTRAL),
    "crc.npz": damaged(STORED, STORED.index(CENTRAL) - 1, b"\7"),
    "local_name.npz": damaged(STORED, NAME, b"y"),
    "directory.npz": changed(STORED, DIRECTORY, b"\1", END),
    "extra.npz": damaged(npz("x.npy", extra=b"\1\2\2\0ab"), npz("x.npy").index(CENTRAL) + 6 + 46 + 5 + 2, b"\x09"),
    "method.npz": changed(STORED, METHOD, b"\x09", LOCAL, CENTRAL),
    "deflated.npz": damaged(DEFLATED, NAMED_X, b"\7"),
    "shorter_than_stored.npz": size_said(STORED, len(MEMBER) - 1),
    "shorter_than_shape.npz": size_said(DEFLATED, len(MEMBER) - 4),
    "ends_early.npz": size_said(npz("x.npy", method=zipfile.ZIP_DEFLATED, member=npy(header(shape="(5,)"))),
                                len(MEMBER) + 4),
    "before.npz": b"#!/bin/sh\n" + STORED,
    "cut.npz": STORED[:-30],
    "no_archive.npz": b"PK\3\4" + bytes(60),
    "gap.npz": with_gap(STORED),
    "magic.npy": b"\x93NUMPX" + MEMBER[6:],
    "cut_length.npy": MEMBER[:9],
    "cut_header.npy": MEMBER[:40],
    "zero_byte.npy": npy(header() + "\0"),
    "no_dictionary.npy": npy("['<f4', False, (4,)]"),
    "no_quotes.npy": npy(header(descr="<f4")),
    "no_tuple.npy": npy(header(shape="(4)")),
    "nested.npy": npy(header(shape="((4,),)")),
    "leading_zero.npy": npy(header(shape="(04,)")),
    "object.npy": npy(header("'|O'")),
    "unknown_key.npy": npy(header(more="'x': 1")),
    "missing_key.npy": npy("{'descr': '<f4', 'shape': (4,)}"),
    "expression.npy": npy(header(shape="(2 + 2,)")),
    "float.npy": npy(header(shape="(4.0,)")),
    "negative.npy": npy(header(shape="(-4,)")),
    "int_as_bool.npy": npy(header(fortran="0")),
    "bool_as_size.npy": npy(header(shape="(True, 4)")),
    "list.npy": npy(header(shape="[4]")),
    "short.npy": npy(header(shape="(5,)")),
    "overflow.npy": npy(header(shape="(4294967296, 4294967296, 4294967296)")),
    "empty_overflow.npy": npy(header(shape="(2305843009213693952, 0)"), b""),
    "large_size.npy": npy(header(shape="(9223372036854775808, 0)"), b""),
    "long_header.npy": npy(header() + " " * 10000),
    "long_suffix_in_3.npy": npy(header(shape="(4L,)"), version=b"\3\0"),
    "version_4.npy": npy(header(), version=b"\4\0"),
    "axes.npy": npy(header(shape="(" + "1," * 65 + ")"), bytes(4)),
    "cut_length.safetensors": bytes(7),
    "cut_header.safetensors": struct.pack("<Q", 3) + b"{}",
    "array.safetensors": safe(b"[]", b""),
    "more.safetensors": safe(b"{}{}", b""),
    "number.safetensors": safe({"x": 1}, b""),
    "missing_field.safetensors": safe({"x": {"dtype": "F32", "shape": [4]}}),
    "double_field.safetensors": safe(b'{"x":{"dtype":"F32",%s' % json.dumps(entry()).encode()[1:] + b"}"),
    "double_metadata.safetensors": safe(b'{"__metadata__":{},"__metadata__":{}}', b""),
    "no_shape.safetensors": safe({"x": {**entry(), "shape": None}}),
    "float_size.safetensors": safe({"x": entry(shape=[4.0])}),
    "one_offset.safetensors": safe({"x": entry(offsets=[0])}),
    "three_offsets.safetensors": safe({"x": entry(offsets=[0, 16, 16])}),
    "dtype.safetensors": safe({"x": entry("F99")}),
    "size.safetensors": safe({"x": entry(shape=[5])}),
    "hole.safetensors": safe({"x": entry(offsets=[1, 17])}, bytes(17)),
    "overlap.safetensors": safe({"x": entry(), "y": entry(offsets=[8, 24])}, bytes(24)),
    "backwards.safetensors": safe({"x": entry(offsets=[16, 0])}),
    "trailing.safetensors": safe({"x": entry()}, bytes(17)),
    "short.safetensors": safe({"x": entry()}, bytes(15)),
    "negative.safetensors": safe({"x": entry(shape=[-4])}),
    "metadata.safetensors": safe({"__metadata__": {"x": 1}}, b""),
    "overflow.safetensors": safe({"x": entry(shape=[2**32, 2**32])}),
    "utf8.safetensors": safe(b'{"\xff": {}}'),
    "length.safetensors": struct.pack("<Q", 100_000_001) + b"{}",
    "zero_byte.safetensors": safe(b"{}\0", b""),
}

# Bits of an element, of types that the format has and heed has not.
WITHOUT = {"F8_E5M2": 8, "F8_E4M3": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
           "C64": 64}

# heed is stricter: each is refused by heed and read by the other.
HEED_REFUSES = {
    "double.npz": npz("x.npy", "x.npy"),
    "hole.npz": with_hole(STORED),
    "two_names.npz": npz("x.npy", extra=struct.pack("<HHBI", 0x7075, 10, 1, zlib.crc32(b"x.npy")) + b"y.npy"),
    "above.npz": npz("../x.npy"),
    "absolute.npz": npz("/x.npy"),
    "drive.npz": npz("C:q.npy"),
    "backslash.npz": npz("\\q.npy"),
    "above_by_backslash.npz": npz("a\\..\\q.npy"),
    "zero_byte.npz": npz("x.npy_y").replace(b"x.npy_y", b"x.npy\0y"),
    "folder.npz": npz("a/", "a/x.npy"),
    "text.npz": npz("x.npy", "x.txt"),
    "bzip2.npz": npz("x.npy", method=zipfile.ZIP_BZIP2),
    "lzma.npz": npz("x.npy", method=zipfile.ZIP_LZMA),
    "local_version.npz": changed(STORED, VERSION, b"\x1e", LOCAL),
    "local_method.npz": changed(STORED, METHOD, b"\x08", LOCAL),
    "local_time.npz": changed(STORED, TIME, b"\1", LOCAL),
    "local_crc.npz": changed(STORED, CRC, number(1), LOCAL),
    "local_compressed.npz": changed(STORED, COMPRESSED, number(1), LOCAL),
    "local_size.npz": changed(STORED, SIZE, number(1), LOCAL),
    "local_extra.npz": damaged(npz("x.npy", extra=b"\1\2\2\0ab"), NAMED_X + 2, b"\x09"),
    "disk.npz": changed(STORED, DISK, b"\1\0\1\0", END),
    "count.npz": changed(STORED, COUNT, b"\2\0\2\0", END),
    "no_directory.npz": changed(STORED, DIRECTORY_SIZE, b"\0", END),
    "member_comment.npz": changed(STORED, COMMENT_LENGTH, b"\1", CENTRAL),
    "end_comment.npz": changed(STORED, END_COMMENT_LENGTH, b"\1", END),
    "before_as_zip.npz": LOCAL + STORED,
    "ratio.npz": size_said(DEFLATED, 1101 * compressed_size(DEFLATED)),
    "longer_than_stored.npz": size_said(STORED, len(MEMBER) + 1),
    "longer_than_shape.npz": npz("x.npy", member=MEMBER + b"more"),
    "longer_than_said.npz": longer_than_said(),
    "trailing.npz": STORED + b"more",
    "trailing.npy": npy(header(), bytes(17)),
    "double_key.npy": npy(header(more="'shape': (4,)")),
    "underscore.npy": npy(header(shape="(1_6,)"), bytes(64)),
    "hexadecimal.npy": npy(header(shape="(0x4,)")),
    "escape.npy": npy(header(descr=r"'<f\x34'")),
    "octal.npy": npy(header(shape="(0o4,)")),
    "binary.npy": npy(header(shape="(0b100,)")),
    "plus.npy": npy(header(shape="(+4,)")),
    "minus.npy": npy(header(shape="(-0,)"), b""),
    "zeros.npy": npy(header(shape="(00,)"), b""),
    "space_before_suffix.npy": npy(header(shape="(4 L,)")),
    "comment.npy": npy(header() + "# more"),
    "continued.npy": npy(header(shape="(4,\\\n)")),
    "parentheses.npy": npy("(" + header() + ")"),
    "prefix.npy": npy(header(descr="u'<f4'")),
    "two_strings.npy": npy(header(descr="'<' 'f4'")),
    "three_quotes.npy": npy(header(descr="'''<f4'''")),
    "order_of_this_machine.npy": npy(header(descr="'=f4'")),
    "no_order.npy": npy(header(descr="'|f4'")),
    "bool.npy": npy(header(descr="'?'"), bytes(4)),
    "time.npy": npy(header(descr="'<m8[s]'"), bytes(32)),
    "bytes.npy": npy(header(descr="'|S4'")),
    "fields.npy": npy(header(descr="[('a', '<f4')]")),
    "native_order.npy": npy(header(descr="'f4'")),
    "long_name.npy": npy(header(descr="'float32'")),
    "complex.npy": npy(header(descr="'<c8'"), bytes(32)),
    "void.npy": npy(header(descr="'<V2'"), bytes(8)),
    "text.npy": npy(header(descr="'<U1'")),
    "start.safetensors": safe(b" {}", b""),
    "double_key.safetensors": safe(b'{"x":%s,"x":%s}' % ((json.dumps(entry()).encode(),) * 2)),
    "unknown_field.safetensors": safe({"x": {**entry(), "more": 1}}),
    "null_metadata.safetensors": safe({"__metadata__": None}, b""),
    "double_metadata_key.safetensors": safe(b'{"__metadata__":{"a":"","a":""}}', b""),
    "entry_as_list.safetensors": safe({"x": [*entry().values()]}),
    "dtype_as_object.safetensors": safe({"x": {**entry(), "dtype": {"F32": None}}}),
    "large_size.safetensors": safe({"x": entry(shape=[2**63, 0], offsets=[0, 0])}, b""),
    "empty_overflow.safetensors": safe({"x": entry(shape=[0, 2**40, 2**40], offsets=[0, 0])}, b""),
    **{f"{name}.safetensors": safe({"x": entry(name, [16], [0, 2 * bits])}, bytes(2 * bits)) for name, bits in WITHOUT.items()},
}

# heed is laxer: each is read by heed and refused by the other. No element is another one by it: NumPy's text may not be
# indented after an empty line, and zipfile minds versions above 6.3 and flags (patched data, strong encryption of what is
# not encrypted) that change nothing of stored bytes.
OTHER_REFUSES = {
    "indented.npy": npy("\n " + header()),
    "version.npz": changed(STORED, VERSION, b"\x40", CENTRAL),
    "patched.npz": changed(STORED, FLAGS, b"\x20", CENTRAL),
    "strong_encryption.npz": changed(STORED, FLAGS, b"\x40", CENTRAL),
}


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


def test_trailing_bytes_are_ignored_when_allowed(tmp_path):
    for name in ("trailing.npy", "trailing.safetensors"):
        path = tmp_path / name
        path.write_bytes({**BOTH_REFUSE, **HEED_REFUSES}[name])
        assert convert(path, tmp_path / "out.safetensors", "--allow-trailing")[0] == 0
