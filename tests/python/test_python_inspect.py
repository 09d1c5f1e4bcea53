"""heed.inspect and heed.study: arrays, the command's numbers, pictures, pages, and what is refused."""

import array
import base64
import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from support import ROOT, close, definition, inputs

import heed
from heed import _command, _html

Q, K, V = (x.astype(np.float64) for x in inputs(queries=8, keys=8))
OUTPUT, LSE, P = definition(Q, K, V, causal=True)
TOKENS = ["<b>", *"abcdef", "&amp;"]


class Five:
    """An integer to Python, of nobody's type."""

    def __index__(self):
        return 5


def test_arrays_are_those_of_the_matrix():
    seen = heed.inspect(Q, K, V, causal=True)
    close(seen.output, OUTPUT, 1e-12)
    close(seen.lse, LSE, 1e-12)
    close(seen.statistics.max_weight, P.max(-1), 1e-12)
    close(seen.column_sums, P.sum(2), 1e-12)
    close(seen.mean_map, P, 1e-12)
    close(seen.weights([5, 1]), P[:, :, [5, 1]], 1e-12)
    assert heed.inspect(Q, K).output is None
    distance = np.arange(8)[None] - np.arange(8)[:, None]
    close(seen.distance_mass, np.stack([(P * (distance == d)).sum((2, 3)) for d in range(-8, 9)], -1), 1e-12)
    scores = (Q @ np.repeat(K, 2, 1).swapaxes(-1, -2) / np.sqrt(Q.shape[-1]))[:, :, distance <= 0]
    bins = [[np.histogram(one, 256, (-32, 32))[0] for one in entry] for entry in scores]
    assert (np.abs(scores) < 32).all() and np.array_equal(seen.score_histogram[..., 1:-1], bins)
    with np.errstate(divide="ignore"):
        lift = np.where(distance <= 0, np.log2(P * np.arange(1, 9)[:, None]), np.nan)
    close(seen.lift_map, lift, 1e-9)


@pytest.mark.parametrize("options", [
    {}, {"scale": 0.3}, {"scale": np.array([0.1, 0.2, 0.3, 0.4])}, {"normalize_qk": True}, {"softcap": 1.5},
    {"alibi": [0.5, 0.25, 0.125, 1.0]}, {"bias": np.linspace(-1, 1, 8)[None, :].repeat(8, 0)},
    {"mask": np.tri(8, dtype=bool)}, {"mask": heed.keep(b"\1\0\1\1\0\1\0\1")}, {"mask": heed.drop(np.tri(8, dtype=np.uint8).T - np.eye(8, dtype=np.uint8))},
    {"mask": heed.add(np.linspace(1, -1, 8)[None, :].repeat(8, 0))}, {"causal": True, "query_start": [0, 3]},
    {"window": (2, None)}, {"window": (None, np.int8(1))}, {"softcap": np.float32(0.5)}, {"key_lengths": [5, 7]}, {"query_lengths": 6, "causal": True},
    {"alibi": [1, 2, 3, 4], "scale": [1, 1, 2, 2]}, {"sinks": (0, 1, 2, 3), "scale": 2}, {"sinks": np.array([0.0, 1.0, 2.0, 3.0])}, {"reproducible": True, "causal": True}, {"threads": 1, "dropout_p": 0.0, "seed": 3, "mask": None},
    {"scale": np.int64(2)}, {"scale": np.array(2)}, {"scale": np.int8(2)}, {"scale": np.longdouble(0.5)}, {"scale": Fraction(1, 2)},
    {"scale": ml_dtypes.bfloat16(0.5)}, {"softcap": Fraction(1, 2)}, {"sinks": [Fraction(1, 2)] * 4},
    {"query_start": Five(), "causal": True}, {"key_lengths": Five()}, {"key_lengths": np.array(5, np.int8)},
    {"query_lengths": np.array([5, 6], np.int32)}, {"window": np.array([1, 2], np.int8)}, {"window": [Five(), None]}, {"threads": Five()},
    {"alibi": array.array("f", [1, 2, 3, 4])}, {"key_lengths": memoryview(np.array([5, 7]))}],
    ids=lambda options: "_".join(options) or "none")
def test_the_command_sees_the_same_weights(options):
    """Every option reaches it: its numbers are those of heed.attention with the options."""
    seen = heed.inspect(Q, K, V, **options)
    rows = heed.attention(Q, K, V, statistics=True, **options).statistics
    for found, entropy, score, visible in zip(seen.found, rows.entropy.reshape(8, 8), rows.max_score.reshape(8, 8),
                                              rows.visible_keys.reshape(8, 8), strict=True):
        assert found["empty_rows"] == (visible == 0).sum()
        close(found["entropy"]["mean"], entropy[visible > 0].mean(), 1e-9)
        close(found["max_score"]["quantiles"][4], score[visible > 0].max(), 1e-9)


def test_numbers_are_those_of_the_command(tmp_path):
    """Of a file that NumPy wrote."""
    np.savez(tmp_path / "qk.npz", q=Q, k=K)
    done = subprocess.run([_command.PROGRAM, "inspect", "qk.npz", "--causal", "--json"], cwd=tmp_path, capture_output=True)
    seen = heed.inspect(Q, K, causal=True)
    assert seen.found == json.loads(done.stdout)["found"]
    assert seen.text.startswith("heed.inspect: 2 layers x 4 heads")
    warned = [(head["layer"], head["head"], remark["sentence"]) for head in seen.found for remark in head["remarks"]]
    assert sorted((one.layer, one.head, one.sentence) for one in seen.remarks) == sorted(warned)


def test_layers_and_heads_are_counted_as_the_command_does():
    for shape, told in (((3, 2, 5, 4), "3 x 2 heads, 5"), ((3, 5, 4), "3 x 1 head, 5"), ((5, 4), "1 x 1 head, 5")):
        seen = heed.inspect(np.ones(shape), np.ones(shape))
        assert repr(seen).startswith(f"heed.Inspection: {told} queries, 5 keys, head size 4. ")
        found = json.loads(seen._run("--json"))
        assert told.startswith(f"{found['layers']} x {found['heads']} head")


def test_warnings_stand_before_notes():
    """Of the first and third head nothing is wrong."""
    q = np.array(Q)
    q[:, 1::2] *= 100
    seen = heed.inspect(q, K)
    kinds = [one.severity for one in seen.remarks]
    count = kinds.count("warning")
    assert 0 < count < len(kinds) and kinds == ["warning"] * count + ["note"] * (len(kinds) - count)
    assert f"head size {Q.shape[-1]}; {count} warning{'s' * (count > 1)}. " in seen._repr_mimebundle_()["text/plain"]


def test_gradients_are_those_of_the_backward_pass():
    given = np.random.default_rng(5).standard_normal(OUTPUT.shape)
    seen = heed.inspect(Q, K, V, d_output=given, causal=True)
    back = heed.attention_backward(Q, K, V, OUTPUT, LSE, given, causal=True)
    for head in seen.found:
        layer, h = head["layer"], head["head"]
        for name, x in (("dq_norm", back.dq[layer, h]), ("dk_norm", back.dk[layer, h // 2]), ("dv_norm", back.dv[layer, h // 2])):
            close(head["gradients"][name], np.linalg.norm(x), 1e-9)
    assert not any("gradients" in head for head in heed.inspect(Q, K, V, causal=True).found)


def test_what_is_to_be_told_reaches_the_command(tmp_path):
    seen = heed.inspect(Q, K, causal=True, top=2, rows=[3, 6], map=5, sentence="a b")
    first = json.loads(seen.save(tmp_path / "x.json").read_text())["found"][0]
    assert [story["row"] for story in first["stories"]] == [3, 6] and len(first["column_mass"]) == 5
    assert {len(row["keys"]) for row in first["top"]} == {1, 2}
    told = json.loads(re.search(r'id="data">(.*?)</script>', seen.save(tmp_path / "x.html").read_text(), re.S)[1])
    assert told["sentence"] == "a b"
    plain = heed.inspect(Q, K, causal=True).found[0]
    assert "stories" not in plain and len(plain["column_mass"]) == 8 and len(plain["top"][7]["keys"]) == 8


def test_what_a_notebook_gets():
    seen = heed.inspect(Q, K, tokens=TOKENS, sentence="a <script> of b")
    shown = seen._repr_mimebundle_()
    assert shown["image/png"][:8] == b"\x89PNG\r\n\x1a\n"
    assert ElementTree.fromstring(shown["image/svg+xml"]).tag.endswith("svg")
    assert shown["text/plain"].startswith("heed.Inspection: 2 x 4 heads, 8 queries, 8 keys, head size 8; ")
    assert shown["text/html"].count("<img") == 1 and "<script" not in shown["text/html"]
    assert "http" not in shown["text/html"].replace("http://www.w3.org", "")
    sink = 20 * np.eye(1, 8).T * np.ones(4)  # all weight on the first key, which a remark names
    named = heed.inspect(np.ones((8, 4)), sink, tokens=["<script>x</script>"] * 8)._repr_mimebundle_()["text/html"]
    assert "<script" not in named and "&lt;script" in named


def test_files(tmp_path):
    seen = heed.inspect(Q, K, tokens=TOKENS)
    page = seen.save(tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "<b>" not in page.split("<body")[-1]
    assert json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])["tokens"] == TOKENS
    assert json.loads(seen.save(tmp_path / "all.json").read_text())["tokens"] == TOKENS
    for name in ("poster.svg", "poster.png"):
        assert seen.save(tmp_path / name).read_bytes() == seen.pictures[name]
    assert seen.pictures["poster.png"].startswith(b"\x89PNG\r\n\x1a\n")
    seen.save(tmp_path / "pictures")
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == set(seen.pictures)
    with pytest.raises(ValueError, match=r"page.pdf ends in .pdf; expected .html, .svg, .png, .json, or a folder"):
        seen.save(tmp_path / "page.pdf")


def test_a_folder_that_is_there_may_have_any_name(tmp_path):
    seen = heed.inspect(Q, K)
    run = tmp_path / "run.2026-11-27"
    with pytest.raises(ValueError, match="ends in .2026-11-27; expected .*, or a folder, which must be there if its name has a dot"):
        seen.save(run)
    run.mkdir()
    (tmp_path / ".html").mkdir()
    for folder in (run, tmp_path / ".hidden", tmp_path / ".html"):
        assert seen.save(folder) == folder
        assert {path.name for path in folder.iterdir()} == set(seen.pictures)


@pytest.mark.parametrize("made", [lambda: heed.inspect(Q, K), lambda: heed.study.variance()], ids=["inspect", "study"])
@pytest.mark.parametrize("path, kind, words", [
    ("", ValueError, "^save: path is ''; expected a name"), (None, TypeError, "^save: path is of type NoneType; expected a"),
    (b"p.svg", TypeError, "^save: path is of type bytes; expected a string or a path"),
    ("a\0b.svg", ValueError, r"^save: path is 'a\\x00b.svg'; expected a name without a zero byte"),
    (".html", ValueError, "^save: path is '.html'; expected a name before .html"),
    ("pages/.svg", ValueError, "^save: path is 'pages/.svg'; expected a name before .svg")])
def test_a_file_without_a_name_is_refused(made, path, kind, words, tmp_path, monkeypatch):
    """The empty name is the current folder to pathlib, and pictures went there; or to a folder called .html."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=words):
        made().save(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given, kind, words", [
    ({"tokens": ["a"]}, ValueError, "tokens has 1 string; expected one for each of 8 keys"),
    ({"dropout_p": 0.1, "seed": 1}, ValueError, "dropout_p is 0.1; expected none"),
    ({"seed": 1}, ValueError, "^inspect: seed is 1; expected none, weights are looked at before dropout$"),
    ({"dropout_p": np.zeros(2), "seed": 1}, TypeError, "^inspect: dropout_p is of type ndarray; expected a number"),
    ({"d_output": OUTPUT}, ValueError, "^inspect: d_output is given, but v is not; expected both"),
    ({"v": V, "d_output": OUTPUT[:, :, :5]}, ValueError, r"^inspect: d_output has shape \[2, 4, 5, .*that of the output"),
    ({"v": V, "d_output": OUTPUT.astype(np.float32)}, TypeError, "^inspect: d_output is float32, q is float64; they must be eq"),
    ({"sinks": [1.0]}, ValueError, r"^inspect: sinks has shape \[1\]; expected \[4\]"),
    ({"mask": np.ones((3, 3), bool)}, ValueError, r"^inspect: mask \(keep\) has shape \[3, 3\]; expected one that broadcasts to \[2, 4"),
    ({"k": K[..., :3]}, ValueError, "^inspect: head size of k is 3, of q 8; they must be equal"),
    ({"q": Q[0, 0, 0]}, ValueError, r"^inspect: q has shape \[8\]; expected \[T, D\], \[B, T, D\] or \[B, H, T, D\]"),
    ({"k": np.float32(1), "rows": [0]}, ValueError, r"^inspect: k has shape \[\]; expected \[T, D\], \[B, T, D\] or"),
    ({"threads": -1}, ValueError, "^inspect: threads is -1; expected 0 .. 4096"),
    ({"reproducible": "yes"}, TypeError, "^inspect: reproducible is of type str; expected True or False"),
    ({"v": V.astype(np.float32)}, TypeError, "^inspect: v is float32, q is float64; they must be equal"),
    ({"q": Q.astype(ml_dtypes.bfloat16), "k": K.astype(np.float32)}, TypeError, "^inspect: k is float32, q is bfloat16; they must be"),
    ({"q": Q.astype(np.float32), "k": K.astype(ml_dtypes.bfloat16)}, TypeError, "^inspect: k is bfloat16, q is float32; they must"),
    ({"mask": np.tri(8, dtype=np.int32)}, TypeError, "^inspect: mask is int32; expected bool, which keeps, or a floating type"),
    ({"mask": np.zeros((8, 8)), "bias": np.zeros((8, 8))}, ValueError, "mask adds, and so does bias"),
    ({"colour": 1}, TypeError, "^inspect: got an unexpected keyword argument 'colour'; expected options among scale, "),
    ({"causl": True}, TypeError, "expected options among scale, normalize_qk, softcap, alibi, bias, mask, causal, query_start, "
     "window, key_lengths, query_lengths, sinks, reproducible, threads$"),
    ({"out": Q}, TypeError, "^inspect: got an unexpected keyword argument 'out'; expected options among scale, "),
    ({"key_lengths": [2**70, 1]}, ValueError, r"^inspect: key_lengths\[0\] is 1180591620717411303424; expected one that fits 64"),
    ({"scale": [1, "2", 3, 4]}, TypeError, r"^inspect: scale\[1\] is of type str; expected a number"),
    ({"scale": 10**400}, ValueError, "^inspect: scale is an integer beyond the largest float64"),
    ({"query_start": True}, TypeError, "^inspect: query_start is of type bool; expected an integer"),
    ({"k": "keys"}, TypeError, "^k is of type str; expected a floating type"),
    ({"k": np.ones((1, 2, 8, 4), complex)}, TypeError, "^k is of type complex128; expected a floating type$"),
    ({"q": Q.astype(np.int64), "k": K.astype(np.int64)}, TypeError, "^q is of type int64; expected a floating type$"),
    ({"k": [[1, 2], [3, 4]]}, TypeError, "^k is of type list of int64; expected a floating type$"),
    ({"k": [[1.0], [1.0, 2.0]]}, ValueError, r"^k is of type list, of which NumPy makes no array \(.*inhomogeneous shape"),
    ({"k": None}, TypeError, "^inspect: k is of type NoneType; expected an array"),
    ({"q": None, "rows": [1]}, TypeError, "^inspect: q is of type NoneType; expected an array"),
    ({"tokens": "abcdefgh"}, TypeError, "^inspect: tokens is of type str; expected a list of strings"),
    ({"tokens": 8}, TypeError, "^inspect: tokens is of type int; expected a list of strings"),
    ({"tokens": ["a", None]}, TypeError, r"^inspect: tokens\[1\] is of type NoneType; expected a string"),
    ({"sentence": 3}, TypeError, "^inspect: sentence is of type int; expected a string"),
    ({"sentence": "caf\udce9"}, ValueError, r"^inspect: sentence has '\\udce9' at 3; expected text that UTF-8 can hold"),
    ({"tokens": [*"abc", "d\ud800", *"efgh"]}, ValueError, r"^inspect: tokens\[3\] has '\\ud800' at 1; expected text that UTF-8"),
    ({"rows": [8]}, ValueError, r"^inspect: rows\[0\] is 8; expected 0 .. 7"),
    ({"rows": [0, -1]}, ValueError, r"^inspect: rows\[1\] is -1; expected 0 .. 7"),
    ({"rows": "01"}, TypeError, "^inspect: rows is '01'; expected a list of integers"),
    ({"top": 0}, ValueError, "^inspect: top is 0; expected 1 .. 64"),
    ({"map": 300}, ValueError, "^inspect: map is 300; expected 1 .. 256"),
    ({"window": (1.5, None)}, TypeError, "^inspect: window.left is of type float; expected an integer"),
    ({"softcap": "5"}, TypeError, "^inspect: softcap is of type str; expected a number"),
    ({"window": 5}, TypeError, r"^inspect: window is not a pair, but of type int; expected \(left, right\)"),
    ({"window": (1, 2, 3)}, ValueError, r"^inspect: window is not a pair, but has 3 elements; expected \(left, right\)"),
    ({"rows": 5}, TypeError, "^inspect: rows is 5; expected a list of integers"),
    ({"rows": [0, 1.9]}, TypeError, r"^inspect: rows\[1\] is of type float; expected an integer"),
    ({"top": 1.5}, TypeError, "^inspect: top is of type float; expected an integer")])
def test_refusals(given, kind, words):
    with pytest.raises(kind, match=words):
        heed.inspect(**{"q": Q, "k": K} | given)


@pytest.mark.parametrize("options", [
    *({name: np.full(2, number, dtype)} for name in ("query_start", "key_lengths", "query_lengths")
      for number, dtype in ((2**64 - 3, np.uint64), (5, np.uint64), (5, np.int8), (5, np.int16), (5.0, np.float64), (True, bool))),
    *({name: np.ones(4, dtype)} for name in ("scale", "alibi", "sinks")
      for dtype in (np.int64, np.float16, ml_dtypes.bfloat16, np.longdouble, complex, ">f8")),
    {"scale": np.complex64(1 + 2j)}, {"softcap": np.complex128(2)}, {"scale": np.array("0.5")}, {"scale": np.array(b"1")},
    {"scale": np.array("0.5", np.dtypes.StringDType())},
    {"scale": 1j}, {"scale": np.str_("1")}, {"scale": b"1"}, {"sinks": np.int64(1)}, {"alibi": Fraction(1, 2)}, {"scale": 10**400},
    {"bias": np.zeros((8, 8), np.int16)}, {"mask": np.zeros((8, 8), np.uint16)},
    {"mask": heed.add(np.zeros((8, 8), np.uint16))}, {"mask": heed.keep(np.zeros((8, 8), ml_dtypes.bfloat16))},
    {"query_start": 10**5000}, {"causal": 1}, {"window": (0.5, 1)}, {"window": "1,2"}, {"softcap": [1.0]}],
    ids=lambda options: "_".join(options))
def test_what_attention_refuses_is_refused_in_its_words(options):
    """Arrays of other types were converted first: the uint64 2**64 - 3 was taken for -3."""
    with pytest.raises((TypeError, ValueError)) as expected:
        heed.attention(Q, K, V, **options)
    with pytest.raises(expected.type) as seen:
        heed.inspect(Q, K, V, **options)
    assert str(seen.value) == f"inspect: {str(expected.value).removeprefix('attention: ')}"


@pytest.mark.parametrize("rows, kind, words", [
    (9, TypeError, "^weights: rows is 9; expected a list of integers"), (None, TypeError, "^weights: rows is None; expected a list"),
    (np.array(3), TypeError, r"^weights: rows is array\(3\); expected a list of integers"),
    ([0, True], TypeError, r"^weights: rows\[1\] is of type bool; expected an integer"),
    ([8], ValueError, r"^weights: rows\[0\] is 8; expected 0 .. 7")])
def test_rows_of_weights_that_are_none(rows, kind, words):
    with pytest.raises(kind, match=words):
        heed.inspect(Q, K).weights(rows)


def test_the_largest_numbers_are_those_of_the_command():
    """It takes them, and refuses one more by a ValueError."""
    found = heed.inspect(Q, K, top=64, map=256, rows=range(8)).found[0]
    assert len(found["stories"]) == len(found["column_mass"]) == len(found["top"][0]["keys"]) == 8
    assert heed.inspect(Q, K, rows=[]).text == heed.inspect(Q, K).text
    for flag in ("--top=65", "--map=257"):
        with pytest.raises(ValueError, match=flag.split("=")[0]):
            _command.run("inspect", flag)


def test_numpys_truth_is_read_as_pythons():
    for name in ("causal", "normalize_qk"):
        plain, told = heed.inspect(Q, K), heed.inspect(Q, K, **{name: True})
        for word, meant in ((np.False_, plain), (False, plain), (np.True_, told)):
            seen = heed.inspect(Q, K, **{name: word})
            assert seen.text == meant.text and np.array_equal(seen.mean_map, meant.mean_map)
        assert plain.text != told.text


def test_arrays_that_change_later_change_nothing():
    q, k, v, bias = Q.copy(), K.copy(), V.copy(), np.linspace(-1, 1, 64).reshape(8, 8)
    keep, lengths, slopes = np.tri(8, dtype=np.uint8), [8, 7], array.array("d", [1, 2, 3, 4])
    options = {"bias": bias, "mask": heed.keep(keep), "key_lengths": lengths, "causal": np.True_, "alibi": slopes}
    before = heed.inspect(Q, K, V, bias=bias.copy(), mask=heed.keep(keep.copy()), key_lengths=[8, 7], causal=True, alibi=slopes[:])
    seen = heed.inspect(q, k, v, **options)
    for x in (q, k, v, bias, keep):
        x[:] = 0
    lengths[:] = [1, 1]
    slopes[0] = 100
    assert seen.found == before.found and np.array_equal(seen.mean_map, before.mean_map)
    assert np.array_equal(seen.weights([3]), before.weights([3]))


def test_repr_runs_no_program(monkeypatch):
    seen = heed.inspect(Q, K)
    monkeypatch.setattr(_command, "PROGRAM", ROOT / "nowhere")
    assert repr(seen) == ("heed.Inspection: 2 x 4 heads, 8 queries, 8 keys, head size 8. "
                          "Show .text, .figure(), .statistics; .save('page.html')")
    assert repr(heed.inspect(Q[0, :1, :1], K[0, :1, :1])).startswith(
        "heed.Inspection: 1 x 1 head, 1 query, 1 key, head size 8. ")


def test_a_command_that_is_not_there_or_says_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(_command, "PROGRAM", tmp_path / "heed")
    with pytest.raises(RuntimeError, match=f"^heed: the command is not at {tmp_path}/heed; expected a package built with it, as"):
        _command.run("info")
    for code, kind in ((2, ValueError), (3, ValueError), (4, OSError), (5, MemoryError), (9, RuntimeError)):
        (tmp_path / "heed").write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / "heed").chmod(0o700)
        with pytest.raises(kind, match=f"^heed: the command ended with {code}$"):
            _command.run("info")


@pytest.mark.parametrize("reproducible", [False, True])
def test_bfloat16_is_looked_at_as_float32(reproducible):
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (Q, K, V))
    seen, wide = heed.inspect(q, k, v, reproducible=reproducible), heed.inspect(*(x.astype(np.float32) for x in (q, k, v)))
    assert np.array_equal(seen.output, wide.output) and np.array_equal(seen.lse, wide.lse)
    assert seen.found == wide.found


def test_half_precision_and_ranks():
    half = heed.inspect(Q.astype(np.float16), K.astype(np.float16))
    assert half.statistics.entropy.dtype == np.float32 and half.found[0]["entropy"]["rows"] == 8
    alone = heed.inspect(Q[0, 0], K[0, 0])
    assert alone.lse.shape == (8,) and "1 x 1 head," in repr(alone)


def test_figures_without_matplotlib(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        heed.inspect(Q, K).figure()
    with pytest.raises(ValueError, match="name is 'pie'; expected one of poster, head"):
        heed.inspect(Q, K).figure("pie")


def test_studies():
    seen = heed.study.variance(numpy_seed=42)
    draw = np.random.RandomState(42).randn
    q, k = draw(10000, 1), draw(10000, 1)
    close(seen.tables["by_size"]["variance"][0], (q * k).var(), 1e-12)
    assert seen.tables["by_size"]["d_k"].tolist() == [1, 4, 16, 64, 256, 1024]
    assert seen.findings[0] in repr(seen)
    assert " ".join(seen.findings[0].split()) in " ".join(seen.text.split()) and "written to" not in seen.text   # to files that are gone
    assert heed.study.variance().tables["by_size"]["variance"][0] != seen.tables["by_size"]["variance"][0]


def test_studies_of_ones_own_tensors(tmp_path):
    seen = heed.study.scaling((Q, K, V))
    assert "each entry of your tensors" in seen.text   # and no file that is gone
    scores = Q @ np.repeat(K, Q.shape[1] // K.shape[1], 1).swapaxes(-1, -2)
    table = seen.tables["tensors"]
    close(table["maximum"][table["scores"] == "unscaled"], scores.max((1, 2, 3)), 1e-9)
    assert json.loads(seen.save(tmp_path / "x.json").read_text())
    with pytest.raises(ValueError, match="tensors are q; expected q, k and v"):
        heed.study.scaling({"q": Q})
    d_output = np.linspace(-3, 5, OUTPUT.size).reshape(OUTPUT.shape)
    lost = np.array(Q)
    lost[0, 0, 0, 0] = np.nan   # no number in JSON
    entropy = heed.study.scaling((lost, K, V)).tables["tensors"]["entropy"]
    assert entropy.dtype == np.float64 and 0 < np.isnan(entropy).sum() < len(entropy)
    graded = heed.study.gradients((Q, K, V, d_output))
    assert graded._rows == heed.study.gradients({"q": Q, "k": K, "v": V, "d_output": d_output})._rows
    assert graded._rows != heed.study.gradients((Q, K, V))._rows
    for tensors, words in (((Q, K, V, d_output), "tensors are 4; expected q, k and v$"),
                           ({"q": Q, "k": K, "v": V, "d_output": V}, "q, k, v, d_output; expected q, k and v$")):
        with pytest.raises(ValueError, match=words):
            heed.study.scaling(tensors)
    for tensors, kind in ((5, "int"), ("qkv", "str"), (np.float32(3), "float32")):
        with pytest.raises(TypeError, match=f"^study: tensors is of type {kind}; expected q, k and v, or a dict of them"):
            heed.study.scaling(tensors)
    with pytest.raises(ValueError, match="tensors are 5; expected q, k and v, and perhaps d_output"):
        heed.study.gradients((Q, K, V, d_output, Q))
    for options, kind, words in (({"seed": "a"}, TypeError, "^study: seed is of type str; expected an integer"),
                                 ({"seed": True}, TypeError, "^study: seed is of type bool; expected an integer"),
                                 ({"seed": -1}, ValueError, r"^study: seed is -1; expected 0 .. 2\^64 - 1"),
                                 ({"seed": 2**64}, ValueError, r"^study: seed is 18446744073709551616; expected 0 .. 2\^64 - 1"),
                                 ({"numpy_seed": 2**32}, ValueError, "^study: numpy_seed is 4294967296; expected 0 .. 4294967295"),
                                 ({"numpy_seed": 1.5}, TypeError, "^study: numpy_seed is of type float; expected an integer")):
        with pytest.raises(kind, match=words):
            heed.study.variance(**options)
    with pytest.raises(ValueError, match="expected one of them"):
        heed.study.masks(seed=1, numpy_seed=2)
    with pytest.raises(ValueError, match="^study: numpy_seed is 2; expected none, training draws"):
        heed.study.training(numpy_seed=2)
    with pytest.raises(ValueError, match="x.pdf ends in .pdf; expected .html, .svg, .csv or .json"):
        seen.save("x.pdf")


def test_a_study_shows_itself_in_a_notebook_and_as_a_page(tmp_path):
    """Both have the command's picture, and every number of every table, to six digits."""
    seen = heed.study.scaling(numpy_seed=42)
    shown = seen._repr_mimebundle_()
    assert set(shown) == {"text/plain", "image/svg+xml", "text/html"} and shown["text/plain"] == repr(seen)
    assert ElementTree.fromstring(shown["image/svg+xml"]).tag.endswith("svg")
    [image] = re.findall('src="data:image/svg.xml;base64,([^"]*)"', shown["text/html"])
    assert base64.b64decode(image).decode() == seen.svg
    page = seen.save(tmp_path / "x.html").read_text()
    assert seen.svg in page and "://" not in page.replace("http://www.w3.org", "") and "<script" not in page
    for html in (page.split("</svg>")[1], shown["text/html"]):
        tables = [ElementTree.fromstring(table) for table in re.findall("<table>.*?</table>", html, re.S)]
        assert len(tables) == len(seen.tables)
        for table, columns in zip(tables, seen.tables.values(), strict=True):
            first, *rows = [[cell.text for cell in row] for row in table]
            assert first == list(columns)
            for name, told in zip(first, zip(*rows), strict=True):
                expected = columns[name]
                if expected.dtype.kind == "f":
                    np.testing.assert_allclose(np.array(told, float), expected, rtol=5.1e-6)
                else:
                    assert list(told) == [str(x) for x in expected]


def test_what_a_table_says_is_text_in_html():
    made = _html.page("<i>", "<svg/>", {"<b>": [{"<a>": "<c>", "&": None}], "none": []})
    assert not re.search("<[abci]>", made) and "&lt;c&gt;" in made and "None" not in made
    assert '"' not in _html.picture("<svg/>", 'a"b').split('alt="')[1].split('" style')[0]


def test_studies_are_those_of_the_command(monkeypatch):
    told = subprocess.run([_command.PROGRAM, "study", "--help"], capture_output=True, text=True).stdout
    names = re.search(r"  STUDY\.\.  (.*?), or all of them", told, re.S)[1]
    assert re.split(r",\s+", names.strip()) == heed.study.__all__[1:]
    for name in ("gradients", "strategies", "initialisation", "masks"):
        seen = getattr(heed.study, name)(seed=3)
        done = subprocess.run([_command.PROGRAM, "study", name, "--seed=3", "--json"], capture_output=True, text=True, check=True)
        [want] = json.loads(done.stdout).values()
        assert (seen.name, seen.title, seen.formula, seen.findings) == (name, want["title"], want["formula"], want["findings"])
        assert seen._rows == want["tables"]

    class Asked(Exception):
        """What would be run."""

    def asked(*words, **more):
        raise Asked(*words[:2])

    monkeypatch.setattr(heed.study, "run", asked)
    for name in heed.study.__all__[1:]:
        with pytest.raises(Asked) as seen:
            getattr(heed.study, name)()
        assert seen.value.args == ("study", name) and getattr(heed.study, name).__doc__


def test_the_guides_example_runs_and_its_line_gives_the_number(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs/notebooks.md").read_text()
    [block] = re.findall(r"```python\n(.*?)```", guide, re.S)
    exec(compile(block, "docs/notebooks.md", "exec"), {})
    assert "2 layers x 4 heads" in capsys.readouterr().out and (tmp_path / "page.html").is_file()
    [line] = re.findall(r'    python -c "(.*?)"\n', guide, re.S)
    exec(compile(line.replace("\n    ", "\n"), "docs/notebooks.md", "exec"), {})
    assert f"\n{int(capsys.readouterr().out) / 1000:.0f} kB for 8 heads" in guide
