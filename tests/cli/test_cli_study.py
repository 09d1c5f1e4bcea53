"""heed study: every figure beside NumPy drawing and computing the same, and all formats beside each other.

The draws are the same bits. Figures differ by the order of sums: NumPy adds in pairs, heed in the order of
the index, both within some 1e-13 of the sum of sizes. Where the figure is itself a small difference
(1 - p, or ln p for p near 1), what remains of that is absolute, at most about 1e-15.
"""

import csv
import io
import json
import math
import re
import xml.etree.ElementTree as xml

import numpy as np
import pytest
from safetensors.numpy import load_file

from cli_support import ROOT, SANITIZED, attention, heed_ok, memory_is_known, save

NAMES = ["variance", "scaling", "gradients", "strategies", "initialisation", "complexity", "masks", "precision",
         *([] if SANITIZED else ["training"])]
close = {"rtol": 1e-10, "atol": 1e-14}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies") / "new" / "folder"


@pytest.fixture(scope="module")
def found(folder):
    """Every study, computed once; the same run writes the files."""
    return json.loads(heed_ok("study", *(NAMES if SANITIZED else ["all"]), "--numpy-seed", 42, "--json", "-o", folder, limit=600))


@pytest.fixture(scope="module")
def sample():
    return {name: x.astype(np.float64) for name, x in load_file(ROOT / "examples/data/it.safetensors").items()}


def table(found, study, name):
    """A table as columns."""
    rows = found[study]["tables"][name]
    return {column: [row[column] for row in rows] for column in rows[0]}


def assert_columns(columns, expected):
    for name, values in expected.items():
        np.testing.assert_allclose(columns[name], values, **close, err_msg=name)


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def entropy(p):
    return -(p * np.log(np.minimum(p + 1e-10, 1))).sum(-1).mean()


def figures(scores):
    """What scaling and strategies say of a matrix of scores."""
    p = softmax(scores)
    return {"score_variance": scores.var(), "entropy": entropy(p),
            "entropy_share": entropy(p) / math.log(scores.shape[-1]), "mean_largest_weight": p.max(-1).mean()}


def mean_of(dicts):
    return {name: np.mean([one[name] for one in dicts]) for name in dicts[0]}


# ---- figures -----------------------------------------------------------------------------------

def test_variance(found):
    np.random.seed(42)
    sizes = [1, 4, 16, 64, 256, 1024, 512]
    rows = found["variance"]["tables"]["by_size"] + found["variance"]["tables"]["at_512"]
    assert [row["d_k"] for row in rows] == sizes
    for row, d in zip(rows, sizes, strict=True):
        q, k = np.random.randn(10000, d), np.random.randn(10000, d)
        s = (q * k).sum(1)
        expected = {"variance": s.var(), "mean": s.mean(), "standard_deviation": s.std(), "theory": d,
                    "minimum": s.min(), "maximum": s.max(), "ratio": s.var() / d}
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-10), (d, name)


def test_scaling(found):
    expected = []
    for d in (4, 64, 512):
        np.random.seed(42)
        q, k = np.random.randn(10, d), np.random.randn(10, d)
        for kind, s in (("unscaled", q @ k.T), ("scaled", q @ k.T / math.sqrt(d))):
            expected.append({"d_k": d, "scores": kind, "minimum": s.min(), "maximum": s.max(),
                             "range": s.max() - s.min(), **figures(s)})
    rows = found["scaling"]["tables"]["random"]
    assert [(row["d_k"], row["scores"]) for row in rows] == [(e["d_k"], e["scores"]) for e in expected]
    for row, e in zip(rows, expected, strict=True):
        assert row.keys() == e.keys()
        assert_columns({n: row[n] for n in e if n != "scores"}, {n: e[n] for n in e if n != "scores"})


def test_scaling_of_the_sample(found, sample):
    rows = found["scaling"]["tables"]["tensors"]
    assert found["scaling"]["tensors_from"] == "sample" and len(rows) == 12
    for row in rows:
        scores = sample["q"][row["layer"]] @ sample["k"][row["layer"]].swapaxes(-1, -2)
        if row["scores"] == "scaled":
            scores = scores / math.sqrt(32)
        expected = {**mean_of([figures(head) for head in scores]), "minimum": scores.min(), "maximum": scores.max()}
        assert_columns(row, expected)


def jacobians(p):
    return np.einsum("ni,ij->nij", p, np.eye(p.shape[1])) - np.einsum("ni,nj->nij", p, p)


def jacobian_figures(p):
    j, off = jacobians(p), ~np.eye(p.shape[1], dtype=bool)
    diagonal = p * (1 - p)
    return {"diagonal_mean": diagonal.mean(), "diagonal_maximum": diagonal.max(), "off_mean": j[:, off].mean(),
            "off_minimum": j[:, off].min(), "mean_size": np.abs(j).mean(), "maximum_size": np.abs(j).max(),
            "norm": np.sqrt((j**2).sum((1, 2))).mean(), "saturated_share": (p.max(-1) > 0.99).mean()}


def test_gradients(found):
    np.random.seed(42)
    draws = [(np.random.randn(512), np.random.randn(4, 512)) for _ in range(1001)]
    scores = np.array([k @ q for q, k in draws])
    tables = found["gradients"]["tables"]
    means = {}
    for i, (kind, scale) in enumerate((("scaled", 512**-0.5), ("unscaled", 1.0))):
        p = softmax(scores * scale)
        weights = tables["weights"][i]
        assert weights["scores"] == kind
        np.testing.assert_allclose([weights[f"key_{j}"] for j in range(4)], p[0], **close)
        jacobian = [[row[f"key_{j}"] for j in range(4)] for row in tables["jacobian"] if row["scores"] == kind]
        np.testing.assert_allclose(jacobian, jacobians(p[:1])[0], **close)
        assert_columns(tables["one_draw"][i], jacobian_figures(p[:1]))
        assert_columns(tables["thousand_draws"][i], jacobian_figures(p[1:]))
        means[kind] = jacobian_figures(p[1:])
    ratio = means["scaled"]["norm"] / means["unscaled"]["norm"]
    assert_columns(tables["ratio"][0], {
        "scaled": means["scaled"]["diagonal_mean"], "unscaled": means["unscaled"]["diagonal_mean"],
        "scaled_over_unscaled": means["scaled"]["diagonal_mean"] / means["unscaled"]["diagonal_mean"],
        "norm_ratio": ratio, "dot_product_ratio": ratio / math.sqrt(512)})


def test_gradients_of_the_sample(found, sample):
    rows = found["gradients"]["tables"]["tensors"]
    assert [row["layer"] for row in rows] == list(range(len(sample["q"])))
    for row in rows:
        scores = sample["q"][row["layer"]] @ sample["k"][row["layer"]].swapaxes(-1, -2)
        of = {kind: mean_of([jacobian_figures(softmax(head * scale)) for head in scores])
              for kind, scale in (("scaled", 32**-0.5), ("unscaled", 1.0))}
        ratio = of["scaled"]["norm"] / of["unscaled"]["norm"]
        assert_columns(row, {
            "diagonal_scaled": of["scaled"]["diagonal_mean"], "diagonal_unscaled": of["unscaled"]["diagonal_mean"],
            "norm_scaled": of["scaled"]["norm"], "norm_unscaled": of["unscaled"]["norm"], "norm_ratio": ratio,
            "diagonal_ratio": of["scaled"]["diagonal_mean"] / of["unscaled"]["diagonal_mean"],
            "dot_product_ratio": ratio / math.sqrt(32), "saturated_scaled": of["scaled"]["saturated_share"],
            "saturated_unscaled": of["unscaled"]["saturated_share"]})


DIVISORS = {"1": lambda d: 1.0, "sqrt(d)": math.sqrt, "d": float, "d^(1/4)": lambda d: d**0.25,
            "2 sqrt(d)": lambda d: 2 * math.sqrt(d)}


def test_strategies(found):
    tables = found["strategies"]["tables"]
    assert [(row["d_k"], row["divisor"]) for row in tables["divisors"]] == [
        (d, name) for d in (64, 512) for name in DIVISORS]
    assert len(tables["temperatures"]) == len(tables["cosine"]) == 14
    for d in (64, 512):
        np.random.seed(42)
        q, k = np.random.randn(8, d), np.random.randn(8, d)
        s = q @ k.T
        cosine = s / np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1))
        for row in (row for row in tables["divisors"] if row["d_k"] == d):
            c = DIVISORS[row["divisor"]](d)
            assert_columns(row, {"divisor_value": c, **figures(s / c)})
        for row in (row for row in tables["temperatures"] if row["d_k"] == d):
            assert_columns(row, figures(s / math.sqrt(d) / row["temperature"]))
        for row in (row for row in tables["cosine"] if row["d_k"] == d):
            assert_columns(row, figures(cosine / row["temperature"]))


def test_strategies_of_the_sample(found, sample):
    scores = (sample["q"] @ sample["k"].swapaxes(-1, -2)).reshape(-1, 16, 16)
    rows = found["strategies"]["tables"]["tensors"]
    assert [row["divisor"] for row in rows] == list(DIVISORS)
    for row in rows:
        c = DIVISORS[row["divisor"]](32)
        assert_columns(row, mean_of([figures(head / c) for head in scores]))


@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_initialisation_with_any_seed_of_numpy(seed):
    found = json.loads(heed_ok("study", "initialisation", "--numpy-seed", seed, "--json"))
    deviations = {"1/sqrt(d_model)": 1 / 8, "Xavier": math.sqrt(2 / 80), "0.01": 0.01, "0.5": 0.5}
    rows = found["initialisation"]["tables"]["by_deviation"]
    assert [row["initialisation"] for row in rows] == list(deviations)
    for row in rows:
        np.random.seed(seed)
        std = deviations[row["initialisation"]]
        x = np.random.randn(10, 64)
        q, k = x @ (np.random.randn(64, 16) * std), x @ (np.random.randn(64, 16) * std)
        s = q @ k.T
        expected = {"deviation": std, "q_variance": q.var(), "score_variance": s.var(), "default_divisor": 4,
                    "scaled_variance": (s / 4).var(), "unit_divisor": math.sqrt(s.var())}
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-12), name
        assert (s / row["unit_divisor"]).var() == pytest.approx(1)


def test_complexity_counts_from_shapes_and_measures(found):
    tables = found["complexity"]["tables"]
    lengths = [128, 256, 512, 1024, 2048]
    assert [row["n"] for row in tables["operations"]] == [row["n"] for row in tables["measured"]] == lengths
    for row in tables["operations"]:
        n = row["n"]
        steps = [2 * n * n * 64, n * n, 5 * n * n, 2 * n * n * 64]
        assert [row[name] for name in ("QK^T", "scale", "softmax", "PV")] == steps
        assert row["total"] == sum(steps) and row["softmax_share"] == pytest.approx(steps[2] / sum(steps))
    for before, row in zip([None, *tables["measured"]], tables["measured"]):
        assert row["seconds"] > 0 and row["matrix_bytes"] == 4 * row["n"]**2
        assert row["gflops"] == pytest.approx(4 * 64 * row["n"]**2 / row["seconds"] * 1e-9)
        assert row["added_bytes"] is not None if memory_is_known() else row["added_bytes"] is None
        assert row["added_bytes"] is None or 0 <= row["added_bytes"] < 2**24
        assert row["seconds_if_square"] == pytest.approx(tables["measured"][-1]["seconds"] * (row["n"] / 2048)**2)
        assert row["square_factor"] == (before and 4)
        assert row["time_factor"] == (before and pytest.approx(row["seconds"] / before["seconds"]))
    memory = tables["memory"]
    assert [row["n"] for row in memory] == [2**i for i in range(7, 18)]
    assert memory[-1]["matrix_bytes"] == 64 * 2**30
    assert all(row["tensor_bytes"] == 4 * row["n"] * 64 * 4 for row in memory)   # q, k, v and the output
    # From some n on, nothing grows.
    assert 0 < memory[-1]["heed_bytes"] == memory[5]["heed_bytes"] < 2**22
    assert all(row["matrix_over_heed"] == pytest.approx(row["matrix_bytes"] / row["heed_bytes"]) for row in memory)


def test_masks_are_what_they_are_called_and_nothing_leaks(found):
    tables = found["masks"]["tables"]
    i, j = np.indices((12, 12))
    seen = {"none": i >= 0, "causal": j <= i, "window": abs(i - j) <= 2, "causal window": (j <= i) & (j >= i - 3),
            "key lengths": j < 6}
    pictures = {}
    for row in tables["pictures"]:
        pictures.setdefault(row["mask"], []).append([row[f"key_{key}"] for key in range(12)])
    assert list(pictures) == [*seen, "keep"]
    for name, picture in seen.items():
        assert (np.array(pictures[name]) == picture).all(), name
    assert 0.25 < np.mean(pictures["keep"]) < 0.75

    shares = {row["mask"]: row for row in tables["tiles"]}
    assert len({row["tiles_computed"] + row["tiles_skipped"] for row in tables["tiles"]}) == 1
    assert shares["none"]["tiles_skipped"] == shares["keep"]["tiles_skipped"] == 0
    assert shares["causal window"]["skipped_share"] > shares["causal"]["skipped_share"] > 0.45
    assert shares["causal"]["visible_share"] == pytest.approx(4097 / 8192)

    for row in tables["leaks"]:
        assert row["bits_compared"] == 32 * 16 * 48 * 49 // 2
        assert (row["bits_changed"] > 0) == (row["mask"] == "none"), row
    assert [(row["mask"], row["future_is"]) for row in tables["leaks"]] == [
        (mask, filler) for mask in ("none", "causal", "causal window") for filler in ("NaN", "infinity", "1e30")]


def test_causal_weights_are_those_of_the_definition(found):
    np.random.seed(42)
    q, k = (np.random.randn(8, 16).astype(np.float32)[None, None] for _ in "qk")
    expected = attention(q, k, k, causal=True)[2][0, 0]
    weights = [[row[f"key_{key}"] for key in range(8)] for row in found["masks"]["tables"]["causal_weights"]]
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert (np.triu(weights, 1) == 0).all()


def test_masks_draw_in_the_order_that_the_page_tells():
    rng = np.random.RandomState(42)
    q, k = (rng.randn(8, 16).astype(np.float32) for _ in range(2))
    rows = json.loads(heed_ok("study", "masks", "--numpy-seed", 42, "--json"))["masks"]["tables"]["causal_weights"]
    weights = [[row[f"key_{key}"] for key in range(8)] for row in rows]
    expected = softmax(np.where(np.tri(8, dtype=bool), q @ k.T / 4, -np.inf))
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-6)


def test_precision_names_the_error_of_every_length_and_size(found):
    rows = found["precision"]["tables"]["float32"]
    assert {(row["n"], row["d"]) for row in rows} == {(n, d) for n in (64, 256, 1024, 4096) for d in (16, 64, 256)}
    for row in rows:
        assert 0 < row["max_error"] < 1e-5 and row["in_units"] == row["max_error"] * 2**24
        assert 0 < row["rows_compared"] <= row["n"]


# ---- formats -----------------------------------------------------------------------------------

def rows_of_json(name, study):
    return [{"study": name, "table": table, **row} for table, rows in study["tables"].items() for row in rows]


def as_csv(value):
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def same(text, value):
    return text == as_csv(value) or float(text) == value


@pytest.mark.parametrize("name", NAMES)
def test_files_hold_the_same_numbers(found, folder, name):
    study = json.loads((folder / f"{name}.json").read_text())
    assert study == {name: found[name]}
    rows = list(csv.DictReader(io.StringIO((folder / f"{name}.csv").read_text())))
    expected = rows_of_json(name, found[name])
    assert len(rows) == len(expected)
    for row, values in zip(rows, expected, strict=True):
        assert values.keys() <= row.keys()
        for column, text in row.items():
            assert same(text, values[column]) if column in values else text == "", (column, text)


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_self_contained_for_light_and_dark_and_shows_the_numbers_of_the_tables(found, folder, name):
    text = (folder / f"{name}.svg").read_text(encoding="utf-8")
    root = xml.fromstring(text)
    assert text.replace("http://www.w3.org/2000/svg", "").count("://") == 0 and "<script" not in text
    assert "prefers-color-scheme: dark" in text
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert found[name]["title"] in words and " ".join(found[name]["formula"].split()) in {
        " ".join(word.split()) for word in words if word}
    known = {as_csv(value) for row in rows_of_json(name, found[name]) for value in row.values()}
    marks = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")][1:]
    numbers = [mark.rsplit(": ", 1)[1] for mark in marks if re.search(r": [^:]*\d$", mark)]
    assert len(numbers) >= 8 and all(float(number) in map(float, filter(is_number, known)) for number in numbers)


def is_number(text):
    return re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", text) is not None


def test_every_point_of_a_chart_is_a_row_of_its_table(found, folder):
    root = xml.fromstring((folder / "variance.svg").read_text())
    marks = {element.text for element in root.iter("{http://www.w3.org/2000/svg}title")}
    for row in found["variance"]["tables"]["by_size"]:
        for label, column in (("measured", "variance"), ("theory: d_k", "theory"), ("variance / d_k", "ratio")):
            mark = next(m for m in marks if m.startswith(f"{label}, d_k {row['d_k']}: "))
            assert float(mark.rsplit(": ", 1)[1]) == row[column]


def test_the_manual_names_every_study_table_and_column(found):
    told = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    for name, study in found.items():
        part = told.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert study["formula"] in part
        for table, rows in study["tables"].items():
            names = [table, *(re.sub(r"key_\d+", "key_0", column) for column in rows[0])]
            assert [word for word in names if f"`{word}`" not in part] == [], table


def test_formats_of_one_run_agree():
    call = ["study", "initialisation", "scaling", "--numpy-seed", 7]
    found = json.loads(heed_ok(*call, "--json"))
    assert list(found) == ["scaling", "initialisation"]  # in the order of the list
    lines = [json.loads(line) for line in heed_ok(*call, "--format", "jsonl").splitlines()]
    expected = [row for name, study in found.items() for row in rows_of_json(name, study)]
    assert lines == expected
    rows = list(csv.DictReader(io.StringIO(heed_ok(*call, "--format", "csv"))))
    assert len(rows) == len(expected)
    for row, values in zip(rows, expected, strict=True):
        assert values.keys() <= row.keys()
        assert all(same(text, values.get(column)) for column, text in row.items() if column in values)
    markdown = heed_ok(*call, "--format", "markdown").splitlines()
    for name, study in found.items():
        assert f"## {study['title']}" in markdown
        for rows in study["tables"].values():
            assert "| " + " | ".join(rows[0]) + " |" in [re.sub(" +", " ", line) for line in markdown]


def test_text_has_formula_tables_chart_and_findings(found, folder):
    text = heed_ok("study", "initialisation", "--numpy-seed", 42, "--output-dir", folder, env={"LC_ALL": "C"})
    study = found["initialisation"]
    assert text.startswith(study["title"] + "\n\n  " + study["formula"] + "\n")
    assert "###" in text and text.isascii() and all(line == line.rstrip() for line in text.splitlines())
    assert " ".join(study["findings"]) in " ".join(text.split())
    assert text.endswith("".join(f"written to {folder}/initialisation.{end}\n" for end in ("svg", "csv", "json")))


@pytest.mark.parametrize("flag, seed", [("--seed", 2**64 - 1), ("--seed", 2**63), ("--numpy-seed", 2**32 - 1)])
def test_a_seed_has_all_the_bits_of_its_generator(flag, seed):
    study = json.loads(heed_ok("study", "initialisation", "--json", flag, seed))["initialisation"]
    below = json.loads(heed_ok("study", "initialisation", "--json", flag, seed - 1))["initialisation"]
    assert study["seed"] == seed and study["tables"] != below["tables"]


# ---- data --------------------------------------------------------------------------------------

def test_seeds_draw_other_numbers_and_the_same_again():
    runs = [heed_ok("study", "initialisation", "--json", *seed)
            for seed in ([], ["--seed", 1], ["--seed", 2], ["--numpy-seed", 1])]
    assert runs[0] == runs[1] and len(set(runs)) == 3
    facts = [json.loads(run)["initialisation"] for run in runs]
    assert [(fact["generator"], fact["seed"]) for fact in facts] == [("heed", 1), ("heed", 1), ("heed", 2), ("numpy", 1)]


def test_own_tensors_take_the_place_of_the_sample(found, tmp_path, sample):
    save(tmp_path / "layers.npz", sample)
    call = ["--numpy-seed", 42, "--json", "--input", "layers.npz"]
    own = json.loads(heed_ok("study", "scaling", *call, folder=tmp_path))["scaling"]
    assert own["tensors_from"] == "layers.npz"
    for row, expected in zip(own["tables"]["tensors"], found["scaling"]["tables"]["tensors"], strict=True):
        assert row.pop("entry") == expected["layer"]
        assert row == {name: value for name, value in expected.items() if name != "layer"}


def test_heads_that_share_keys_and_lower_ranks_are_read_as_heed_run_does(tmp_path):
    rng = np.random.default_rng(3)
    q, k = rng.standard_normal((2, 4, 5, 8)), rng.standard_normal((2, 2, 7, 8))
    for name, q_part, k_part, repeated in (("grouped", q, k, np.repeat(k, 2, 1)),
                                           ("three", q[:, 0], k[:, 0], k[:, :1]),
                                           ("two", q[0, 0], k[0, 0], k[:1, :1])):
        save(tmp_path / f"{name}.npz", {"q": q_part, "k": k_part, "v": k_part})
        rows = json.loads(heed_ok("study", "gradients", "--json", "--input", tmp_path / f"{name}.npz"))
        rows = rows["gradients"]["tables"]["tensors"]
        for row in rows:
            heads = q[row["entry"], :repeated.shape[1]] @ repeated[row["entry"]].swapaxes(-1, -2)
            expected = mean_of([jacobian_figures(softmax(head)) for head in heads])
            assert row["norm_unscaled"] == pytest.approx(expected["norm"], rel=1e-12)
        assert len(rows) == len(repeated)


def test_a_nan_is_in_every_figure_that_it_is_part_of(tmp_path):
    """Of the second entry one query is NaN. Medians and shares over the others would look as if all were well."""
    rng = np.random.default_rng(5)
    tensors = {name: rng.standard_normal((2, 2, 6, 8)) for name in "qkv"}
    save(tmp_path / "whole.npz", tensors)
    tensors["q"][1, 1, 3, 2] = np.nan
    save(tmp_path / "nan.npz", tensors)
    call = ["study", "scaling", "gradients", "strategies", "--json", "--input"]
    whole, found = (json.loads(heed_ok(*call, name, folder=tmp_path)) for name in ("whole.npz", "nan.npz"))
    for study, table in (("scaling", "tensors"), ("gradients", "tensors"), ("gradients", "tensors_backward"),
                         ("strategies", "tensors")):
        for row, expected in zip(found[study]["tables"][table], whole[study]["tables"][table], strict=True):
            told = {name for name, value in row.items() if value is not None}
            if row.get("entry") == 0:
                assert row == expected
            else:                       # strategies: the mean over both entries
                assert told == {"entry", "scores", "divisor", "divisor_value"} & set(row), (study, table)
    said = " ".join(found["gradients"]["findings"])
    assert said.count("(NaN in 1 of 2)") == 4 and said.count("(not known in 1 of 2)") == 2 and "NaN" not in " ".join(whole["gradients"]["findings"])


# ---- training ----------------------------------------------------------------------------------

trains = pytest.mark.skipif(SANITIZED, reason="training takes minutes under AddressSanitizer")


def runs_of(study):
    return {(row["d_k"], row["scores"]): row for row in study["tables"]["runs"]}


@trains
def test_scaled_scores_learn_and_unscaled_ones_do_not(found):
    runs = runs_of(found["training"])
    assert sorted(runs) == sorted((d, scores) for d in (16, 64, 256) for scores in ("scaled", "unscaled"))
    guessing = math.log(found["training"]["vocabulary"])
    for (_, scores), run in runs.items():
        if scores == "scaled":
            assert run["loss"] < 1 and run["accuracy"] > 0.7 and run["saturation_at_first"] < 0.1
        else:
            assert 0.8 * guessing < run["loss"] and run["saturation_at_first"] > 0.3


@trains
def test_the_table_of_runs_is_made_of_the_steps(found):
    study = found["training"]
    for (d, scores), run in runs_of(study).items():
        steps = [row for row in study["tables"]["by_step"] if (row["d_k"], row["scores"]) == (d, scores)]
        assert [row["step"] for row in steps] == list(range(0, study["steps"] + 1, 40))
        assert (steps[0]["saturation"], steps[-1]["saturation"]) == (run["saturation_at_first"], run["saturation_at_last"])
        assert [steps[-1][name] for name in ("loss", "accuracy")] == [run["loss"], run["accuracy"]]
        below = [row["step"] for row in steps if row["loss"] < 1]
        assert run["below_1_at_step"] == (below[0] if below else None)


@trains
def test_the_manual_shows_what_the_default_seed_trains_with_any_threads():
    text = heed_ok("study", "training", env={"HEED_NUM_THREADS": "1"}, limit=600)
    rows = re.findall(r"^ +\d+ +(?:un)?scaled .*$", (ROOT / "docs/studies.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 6 and " ".join("".join(rows).split()) in " ".join(text.split())
