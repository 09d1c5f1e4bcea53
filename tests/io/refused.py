"""Files that heed refuses, or NumPy, or the safetensors library: their bytes by name, in a table for each of who does."""

import inspect
import io
import json
import struct
import warnings
import zipfile
import zlib


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
LOCAL, CENTRAL, END, WIDE_END, LOCATOR = b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7"
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


def end_of_zip64(archive, size=44, more=b""):
    """The archive of one member with the records of zip64 that say what its end record says."""
    at, start = archive.index(END), archive.index(CENTRAL)
    record = struct.pack("<4sQHHIIQQQQ", WIDE_END, size, 45, 45, 0, 0, 1, 1, at - start, start)
    return archive[:at] + record + more + struct.pack("<4sIQI", LOCATOR, 0, at, 1) + archive[at:]


def with_hole_in_zip64(archive, before):
    """Bytes of nobody before one of the records of zip64; the locator knows where that of the end is."""
    wide = end_of_zip64(archive)
    at = wide.index(before)
    wide = wide[:at] + b"hole" + wide[at:]
    return damaged(wide, wide.index(LOCATOR) + 8, number(wide.index(WIDE_END)))


def with_comment(archive, comment):
    return archive[:-2] + struct.pack("<H", len(comment)) + comment


def described(numbers):
    """An archive whose member says that CRC-32 and sizes come after its data, as these bytes do."""
    archive = changed(STORED, FLAGS, b"\x08", LOCAL, CENTRAL)
    at = archive.index(CENTRAL)
    return changed(archive[:at] + numbers + archive[at:], DIRECTORY, number(at + len(numbers)), END)


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
    "two_ends.npz": with_comment(STORED, bytes(46) + STORED[STORED.index(END):]),
    "before_the_end_of_zip64.npz": with_hole_in_zip64(STORED, WIDE_END),
    "before_the_locator.npz": with_hole_in_zip64(STORED, LOCATOR),
    "magic.npy": b"\x93NUMPX" + MEMBER[6:],
    "cut_length.npy": MEMBER[:9],
    "cut_header.npy": MEMBER[:40],
    "zero_byte.npy": npy(header() + "\0"),
    "no_dictionary.npy": npy("['<f4', False, (4,)]"),
    "ended.npy": npy("{'descr': '<f4', 'fortran_order': False"),
    "no_comma.npy": npy("{'descr': '<f4', 'fortran_order': False 'shape': (4,)}"),
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
    "ended.safetensors": safe(b'{"x":', b""),
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
    "zip64_count.npz": changed(end_of_zip64(STORED), COUNT, b"\2\0", END),
    "two_of_zip64.npz": npz("x.npy", extra=struct.pack("<HHHH", 1, 0, 1, 0)),
    "no_descriptor.npz": described(b""),
    "descriptor.npz": described(bytes(12)),
    "two_names.npz": npz("x.npy", extra=struct.pack("<HHBI", 0x7075, 10, 1, zlib.crc32(b"x.npy")) + b"y.npy"),
    "above.npz": npz("../x.npy"),
    "absolute.npz": npz("/x.npy"),
    "drive.npz": npz("C:q.npy"),
    "backslash.npz": npz("\\q.npy"),
    "above_by_backslash.npz": npz("a\\..\\q.npy"),
    "zero_byte.npz": npz("x.npy_y").replace(b"x.npy_y", b"x.npy\0y"),
    "zero_byte_before_suffix.npz": npz("x.npy_.npy").replace(b"x.npy_.npy", b"x.npy\0.npy"),
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

# heed refuses records of zip64 that have data of their own. zipfile takes them with the mend of CVE-2025-8291; without it, it looks
# for the record where the last of these data are.
MENDED = "Corrupt zip64 end of central directory record" in inspect.getsource(zipfile._EndRecData64)
(HEED_REFUSES if MENDED else BOTH_REFUSE)["zip64_of_45.npz"] = end_of_zip64(STORED, size=45, more=b"x")

# heed is laxer: each is read by heed and refused by the other. No element is another one by it: NumPy's text may not be
# indented after an empty line, and zipfile minds versions above 6.3, flags (patched data, strong encryption of what is
# not encrypted) that change nothing of stored bytes, and a comment that ends as an end record begins.
OTHER_REFUSES = {
    "comment.npz": with_comment(STORED, END),
    "indented.npy": npy("\n " + header()),
    "version.npz": changed(STORED, VERSION, b"\x40", CENTRAL),
    "patched.npz": changed(STORED, FLAGS, b"\x20", CENTRAL),
    "strong_encryption.npz": changed(STORED, FLAGS, b"\x40", CENTRAL),
}
