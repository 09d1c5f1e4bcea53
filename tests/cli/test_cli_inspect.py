"""heed inspect: its numbers against NumPy on full weights, its table, words and rows."""

import json
import math
import os
import re
import shlex

import numpy as np
import pytest
from safetensors.numpy import save_file

from cli_support import draw, heed, heed_ok
from inspect_support import healthy, in_terminal, inspect, save, scores_of, sentences, softmax


def check_numbers(found, scores, visible, map_rows, map_columns):
    """A head's JSON against its scores [Tq, Tk]."""
    weights = softmax(np.where(visible, scores, -np.inf))
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), -1)
    count = visible.sum(-1)
    share = np.where(count > 1, entropy / np.log(np.maximum(count, 2)), 0)
    deviation = np.array([row[seen].std() for row, seen in zip(scores, visible)])
    largest = weights.max(-1)
    jacobian = np.sqrt(np.maximum(
        (weights**2).sum(-1) - 2 * (weights**3).sum(-1) + (weights**2).sum(-1)**2, 0))
    for name, rows in [("entropy", entropy), ("entropy_share", share), ("max_weight", largest),
                       ("effective_keys", np.exp(entropy)), ("score_deviation", deviation),
                       ("max_score", np.where(visible, scores, -np.inf).max(-1)),
                       ("score_mean", [r[v].mean() for r, v in zip(scores, visible)])]:
        assert found[name]["rows"] == len(rows)
        assert found[name]["mean"] == pytest.approx(np.mean(rows), rel=1e-5, abs=1e-5), name
        assert found[name]["quantiles"] == pytest.approx(
            np.quantile(rows, [0, 0.25, 0.5, 0.75, 1]), rel=1e-5, abs=1e-5), name
    # in float32 a small norm is a difference of nearly equal numbers
    assert found["jacobian_norm"]["mean"] == pytest.approx(jacobian.mean(), abs=1e-3)
    columns = weights.sum(0)
    assert found["sink_key"] == columns.argmax()
    assert found["sink_share"] == pytest.approx(columns.max() / columns.sum(), rel=1e-5)
    shown = np.zeros(map_columns)
    np.add.at(shown, np.arange(len(columns)) * map_columns // len(columns), columns / columns.sum())
    assert found["column_mass"] == pytest.approx(shown, rel=1e-4)
    distance = np.arange(scores.shape[1])[None] - np.arange(scores.shape[0])[:, None]
    half = len(found["distance_mass"]) // 2
    mass = [weights[np.clip(distance, -half, half) == d].sum() / len(weights)
            for d in range(-half, half + 1)]
    assert found["distance_mass"] == pytest.approx(mass, rel=1e-4, abs=1e-7)
    assert sum(found["histogram"]) == visible.sum()
    inside = scores[visible]
    assert found["in_range"] == pytest.approx(np.mean(np.abs(inside) < 3), abs=1e-6)
    # a histogram knows a quantile to one of its bins
    assert abs(found["score_low"] - np.quantile(inside, 0.01)) < 0.5
    assert abs(found["score_high"] - np.quantile(inside, 0.99)) < 0.5
    for top in found["top"]:
        row = weights[top["row"]]
        order = np.argsort(-row, kind="stable")[:8]
        order = order[row[order] > 0]
        assert top["keys"] == order.tolist()
        assert top["weights"] == pytest.approx(row[order], rel=1e-4)
        assert top["mass"] == pytest.approx(row[order].sum(), rel=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_numbers_are_those_of_full_weights(tmp_path, causal):
    q, k = draw(1, 2, 4, 21, 16), draw(2, 2, 2, 33, 16)
    told = inspect(save(tmp_path, q=q, k=k), *(["--causal"] if causal else []), "--map", 7)
    assert (told["layers"], told["heads"], told["queries"], told["keys"]) == (2, 4, 21, 33)
    scores = scores_of(q, k)
    visible = np.tri(21, 33, dtype=bool) if causal else np.ones((21, 33), bool)
    assert len(told["found"]) == 8
    for found in told["found"]:
        check_numbers(found, scores[found["layer"], found["head"]], visible, 7, 7)


def test_masks_differ_by_layer_and_head(tmp_path):
    q, k = draw(3, 2, 2, 12, 8), draw(4, 2, 2, 15, 8)
    keep = np.random.default_rng(5).random((2, 2, 12, 15)) < 0.6
    keep[..., 0] = True
    told = inspect(save(tmp_path, q=q, k=k, keep=keep))
    scores = scores_of(q, k)
    for found in told["found"]:
        at = found["layer"], found["head"]
        check_numbers(found, scores[at], keep[at], 12, 15)


def test_input_of_two_and_three_axes_and_float64(tmp_path):
    q, k = draw(6, 3, 10, 8).astype(np.float64), draw(7, 3, 11, 8).astype(np.float64)
    told = inspect(save(tmp_path, q=q, k=k))
    assert (told["layers"], told["heads"]) == (3, 1)
    for found in told["found"]:
        check_numbers(found, scores_of(q[:, None], k[:, None])[found["layer"], 0],
                      np.ones((10, 11), bool), 10, 11)
    told = inspect(save(tmp_path, q=q[0], k=k[0]))
    assert (told["layers"], told["heads"]) == (1, 1)


def test_two_files_and_the_layout(tmp_path):
    q, k = draw(8, 1, 6, 2, 4), draw(9, 1, 7, 2, 4)
    np.save(tmp_path / "q.npy", q)
    np.save(tmp_path / "k.npy", k)
    told = json.loads(heed_ok("inspect", "q.npy", "k.npy", "--layout", "bthd", "--json",
                              folder=tmp_path))
    assert (told["heads"], told["queries"], told["keys"]) == (2, 6, 7)
    scores = scores_of(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 1, 3))
    check_numbers(told["found"][1], scores[0, 1], np.ones((6, 7), bool), 6, 7)


def test_options_reach_the_scores(tmp_path):
    q, k = draw(10, 1, 2, 9, 8), draw(11, 1, 2, 9, 8)
    path = save(tmp_path, q=q, k=k)
    plain = inspect(path)["found"][1]["max_score"]["mean"]
    drop = np.zeros((9, 9), bool)
    drop[:, 4] = True
    np.save(tmp_path / "drop.npy", drop)
    np.save(tmp_path / "keep.npy", ~drop)
    np.save(tmp_path / "bias.npy", np.full((9, 9), 2, np.float32))
    for flags in [("--scale", "0.7"), ("--normalize-qk",), ("--softcap", "0.5"), ("--alibi", "0.5,0.25"),
                  ("--causal",), ("--causal", "--query-start", "3"), ("--window", "1,1"), ("--window", "inf,0"),
                  ("--key-lengths", "5"), ("--query-lengths", "4"),
                  ("--bias", tmp_path / "bias.npy"), ("--keep", tmp_path / "keep.npy"),
                  ("--drop", tmp_path / "drop.npy")]:
        told = inspect(path, *flags)
        assert sorted(told["settings"].split()) == sorted(map(str, flags))   # flags, to be given once more
        changed = told["found"][1]
        assert (changed["max_score"]["mean"], changed["max_score"]["rows"]) != (plain, 9), flags
    weights = inspect(path, "--sinks", "3,3")["found"][1]["max_weight"]["mean"]
    assert weights < inspect(path)["found"][1]["max_weight"]["mean"]


def test_options_of_the_file_are_told_and_names_are_as_they_are(tmp_path):
    q, k = draw(10, 1, 2, 9, 8), draw(11, 1, 2, 9, 8)
    more = {"scale": np.array([0.5, 0.7]), "sinks": np.ones(2, np.float32), "keep": np.tri(9, 9) > 0}
    path = tmp_path / "a\tb c.safetensors"
    save_file({"q": q, "k": k, **more}, path)
    told = inspect(path)
    assert (told["source"], told["settings"], told["option_tensors"]) == (str(path), "", ["scale", "keep", "sinks"])
    told = inspect(path, "--causal", "--sinks", "2,2", "-q")
    assert (told["settings"], told["option_tensors"]) == ("--causal --sinks 2.0,2.0", ["scale", "keep"])
    assert inspect(path, "--sinks", "inf,-inf", "-q")["settings"] == "--sinks inf,-inf"
    assert inspect(path, "--sinks", "nan,1", "-q")["settings"] == "--sinks nan,1.0"
    text = heed_ok("inspect", path, "--causal", folder=tmp_path)
    assert "head size 8, --causal, tensors scale keep sinks" in " ".join(text.split()) and "\t" not in text
    heed_ok("inspect", path, "--html", tmp_path / "page.html", "--pictures", tmp_path / "drawn")
    page = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text(), re.S)[1])
    assert page["settings"] == "tensors scale keep sinks"
    assert "tensors scale keep sinks" in (tmp_path / "drawn" / "poster.svg").read_text()
    mask = tmp_path / "it's mine.npy"
    np.save(mask, np.ones((9, 9), bool))
    given = inspect(save(tmp_path, q=q, k=k), "--keep", mask)["settings"]
    assert shlex.split(given) == ["--keep", str(mask)]   # a shell takes it back


def test_the_sample_has_its_known_heads():
    told = json.loads(heed_ok("inspect", "--json"))
    assert (told["source"], told["layers"], told["heads"]) == ("sample", 6, 12)
    assert told["tokens"][0] == "[CLS]" and len(told["tokens"]) == 16
    by = {(found["layer"], found["head"]): found for found in told["found"]}
    word = told["tokens"].index("it")
    top = by[3, 1]["top"][word]
    assert told["tokens"][top["keys"][0]] == "animal" and top["weights"][0] == pytest.approx(0.68, abs=0.01)
    assert "more than half of the weight lies one position back" in sentences(by[0, 2])
    assert sum("[CLS]" in sentences(found) for found in told["found"]) > 20


def test_the_table_tells_every_head_and_every_remark(tmp_path):
    text = heed_ok("inspect")
    lines = text.splitlines()
    assert lines[0] == "sample: 6 layers x 12 heads, 16 queries, 16 keys, head size 32"
    assert sum(line.split()[:2] == ["3", "1"] for line in lines) == 1
    assert len([line for line in lines if line.endswith("%")]) >= 72
    assert all(len(line) <= 100 for line in lines)
    assert "! 100 % of the rows have a weight above 0.99: they hardly learn (layer 0 head 2)" in text


@pytest.mark.parametrize("queries, keys, told", [(1, 1, "1 query, 1 key,"), (2, 1, "2 queries, 1 key,"),
                                                 (1, 2, "1 query, 2 keys,"), (0, 0, "0 queries, 0 keys,")])
def test_one_of_a_kind_has_its_singular(queries, keys, told, tmp_path):
    save(tmp_path, q=draw(1, 1, 1, queries, 8), k=draw(2, 1, 1, keys, 8))
    line = heed_ok("inspect", "qk.safetensors", folder=tmp_path).splitlines()[0]
    assert line == f"qk.safetensors: 1 layer x 1 head, {told} head size 8"


def test_remarks_that_differ_in_a_number_are_told_together(tmp_path):
    q, k = draw(71, 1, 6, 40, 64), draw(72, 1, 6, 40, 64)
    path = save(tmp_path, q=9 * q, k=9 * k)
    text = heed_ok("inspect", path)
    shares = [100 * found["saturated"] for found in inspect(path)["found"]]
    assert f"! {min(shares):.0f} to {max(shares):.0f} % of the rows have a weight above" in text
    assert text.count("they hardly learn") == 1 and "try: when training:" in text


def test_a_number_that_rounds_to_zero_has_no_sign(tmp_path):
    k = np.ones((1, 1, 1000, 1), np.float32)
    k[..., :11, :] = -0.1   # the bin from -0.25 to 0, of which ten elevenths are below 1 %: -0.02
    text = heed_ok("inspect", save(tmp_path, q=k[:, :, -1:], k=k), "--scale", "1")
    assert " 0.0 .. 1.0 " in text and "-0.0" not in text


def test_a_wide_terminal_has_every_column():
    header = next(line for line in in_terminal(200).splitlines() if "rests on" in line)
    assert header.index("entropy") < header.index("peaked") < header.index("uniform")
    assert header.index("uniform") < header.index("largest") < header.index("saturated")


def test_rows_that_were_asked_for_are_told_in_json(tmp_path):
    q, k = draw(73, 1, 2, 9, 8), draw(74, 1, 2, 9, 8)
    path = save(tmp_path, q=q, k=k)
    found = inspect(path, "--rows", "4,2,4", "--causal")["found"][1]
    assert [story["row"] for story in found["stories"]] == [4, 2]
    story = found["stories"][0]
    scores = scores_of(q, k)[0, 1, 4]
    assert story["products"] == pytest.approx(scores * math.sqrt(8), rel=1e-5)
    assert story["scores"][:5] == pytest.approx(scores[:5], rel=1e-5)
    assert story["visible"] == [True] * 5 + [False] * 4
    assert story["weights"] == pytest.approx([*softmax(scores[:5]), 0, 0, 0, 0], rel=1e-5)
    assert "stories" not in inspect(path)["found"][0]


def lines_of_row(text, row):
    """The table of a row that was asked for, without its title and header."""
    _, _, rest = text.partition(f"\nRow {row}")
    return rest.partition("\n\n")[0].splitlines()[2:]


def test_rows_that_were_asked_for_are_told_in_the_terminal(tmp_path):
    q, k = draw(73, 1, 2, 9, 8), draw(74, 1, 2, 9, 8)
    path = save(tmp_path, q=q, k=k)
    assert "\nRow " not in heed_ok("inspect", path)
    text = heed_ok("inspect", path, "--rows", "4,0,4", "--causal", "--top", "3")
    assert text.count("\nRow ") == 2 and text.index("\nRow 4: what its 3 largest") < text.index("\nRow 0:")
    scores = scores_of(q, k)[0]
    for head, line in enumerate(lines_of_row(text, 4)):
        weights = softmax(scores[head, 4, :5])
        best = np.argsort(-weights)[:3]
        entropy = -(weights * np.log(weights)).sum() / math.log(5)
        assert line.split(maxsplit=6) == [
            "0", str(head), "5", f"{entropy:.3f}", f"{weights.max():.3f}", f"{weights[best].sum():.3f}",
            ", ".join(f"{key} {weights[key]:.3f}" for key in best)]
    assert [line.split()[2:] for line in lines_of_row(text, 0)] == [["1", "0.000", "1.000", "1.000", "0", "1.000"]] * 2
    for found in inspect(path, "--rows", "4", "--causal")["found"]:
        top = found["top"][4]
        weights = softmax(scores[found["head"], 4, :5])
        assert top["row"] == 4 and top["visible_keys"] == 5
        assert top["entropy_share"] == pytest.approx(-(weights * np.log(weights)).sum() / math.log(5), abs=1e-6)


def test_a_row_bears_its_words_and_fits_the_width(tmp_path):
    text = heed_ok("inspect", "--rows", "10")
    assert '\nRow 10 "it": what its 8 largest weights cover\n' in text
    lines = lines_of_row(text, 10)
    assert len(lines) == 72 and all(len(line) <= 80 for line in lines)
    told = next(line for line in lines if line.split()[:2] == ["3", "1"])
    assert "  2 animal 0.677, 0 [CLS] 0.1" in told and told.endswith(", ..")
    q, k = healthy(42, rows=9)
    q[0, 0, 3] = np.nan
    path = save(tmp_path, q=q, k=k)
    (tmp_path / "words.txt").write_text("\x1b[31mred\n" * 9)
    np.save(tmp_path / "keep.npy", np.arange(9)[:, None] + np.zeros((9, 9), int) != 5)
    text = heed_ok("inspect", path, "--rows", "3,5,8", "--keep", tmp_path / "keep.npy", "--tokens",
                   tmp_path / "words.txt", "--top", "64")
    assert "\x1b" not in text and 'Row 8 "\\x1b[31mred": what its 9 largest' in text
    assert lines_of_row(text, 3)[0].split() == ["0", "0", "9", "-", "-", "-", "NaN"]
    assert lines_of_row(text, 5)[0].split() == ["0", "0", "0", "-", "-", "-", "sees", "no", "key"]


def test_beside_a_NaN_row_no_column_has_a_share_of_all_weight(tmp_path):
    """Those of keys that only other rows see held sums of weights, above 1 too."""
    q, k = healthy(43, rows=60)
    q[0, 0, 30] = np.nan
    path = save(tmp_path, q=q, k=k)
    found = inspect(path, "--causal")["found"][0]
    assert found["column_mass"] == [None] * 60 and found["sink_key"] == -1 and found["sink_share"] == 0
    whole = inspect(path, "--causal", "--query-lengths", "30")["found"][0]["column_mass"]
    assert sum(whole) == pytest.approx(1, rel=1e-5) and whole[30:] == [0] * 30
    assert inspect(path, "--query-lengths", "0")["found"][0]["column_mass"] == [0] * 60


def test_tokens_come_from_a_file(tmp_path):
    q, k = healthy(40, rows=3)
    path = save(tmp_path, q=q, k=k)
    (tmp_path / "words.txt").write_text("one\ntwo\nthr\x1b[31mee\n")
    told = inspect(path, "--tokens", tmp_path / "words.txt")
    assert told["tokens"] == ["one", "two", "thr\x1b[31mee"]
    assert "\x1b" not in heed_ok("inspect", path, "--tokens", tmp_path / "words.txt")
    (tmp_path / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    assert inspect(path, "--tokens", tmp_path / "dos.txt")["tokens"] == ["one", "two", "three"]
    done = heed("inspect", path, "--tokens", tmp_path)
    assert done.returncode == 4 and done.stderr.endswith("expected a regular file, found a directory\n")
    done = heed("inspect", save(tmp_path, q=q, k=np.concatenate([k, k], 2)), "--tokens",
                tmp_path / "words.txt")
    assert done.returncode == 2
    assert done.stderr.endswith("words.txt has 3 lines; expected 6, one for each key\n")


@pytest.mark.parametrize("told, found", [
    (json.dumps(["a", "b", "c"]), None), (json.dumps(["a", "b"]), "a list of 2"),
    (json.dumps(["a", 1, "b", "c"]), "no list of strings"), (json.dumps(["a", 1, "b"]), "no list of strings"),
    ('{"a": 1}', "no list of strings"), ("a, b, c", "no list of strings")], ids=str)
def test_tokens_of_the_metadata_are_a_string_for_each_key_or_not_used(told, found, tmp_path):
    q, k = (x.astype(np.float32) for x in healthy(41, rows=3))
    save_file({"q": q, "k": k}, tmp_path / "in.safetensors", metadata={"tokens": told})
    done = heed("inspect", "in.safetensors", "--json", folder=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["tokens"] == ([] if found else ["a", "b", "c"])
    warning = ("heed inspect: tokens in the metadata are not used: expected a list of 3 strings, one for each key, "
               f"found {found}\n")
    assert done.stderr == (warning if found else "")
    assert heed("inspect", "in.safetensors", "-q", folder=tmp_path).stderr == ""


def test_top_and_threads_and_quiet(tmp_path):
    q, k = healthy(42, rows=9)
    path = save(tmp_path, q=q, k=k)
    assert {len(top["keys"]) for top in inspect(path, "--top", 2)["found"][0]["top"]} == {2}
    assert inspect(path, "--threads", 1) == inspect(path, "--threads", 2)
    assert heed_ok("inspect", path, "--quiet") == ""
    assert "takes" not in heed_ok("inspect", path, "--max-bytes", "1G")


def test_v_is_not_needed_but_may_be_there_whatever_it_is(tmp_path):
    q, k = healthy(44, rows=5)
    plain = inspect(save(tmp_path, q=q, k=k))
    np.save(tmp_path / "q.npy", q)
    np.save(tmp_path / "k.npy", k)
    for v in (k, *(k.astype(dtype) for dtype in (np.int32, np.float16, np.float64)), k[:, :, :2], k[None], np.float32(1)):
        assert inspect(save(tmp_path, q=q, k=k, v=v)) == plain, v
        np.save(tmp_path / "v.npy", v)
        assert inspect("q.npy", "k.npy", "v.npy", folder=tmp_path)["found"] == plain["found"], v
    done = heed("inspect", save(tmp_path, q=q, k=k, v=k.astype(np.int32), d_output=q))
    assert (done.returncode, done.stdout) == (2, "") and "dtype of v is int32; expected float16" in done.stderr
