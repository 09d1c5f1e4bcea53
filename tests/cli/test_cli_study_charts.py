"""Charts and tables of heed study where weights are saturated, nearly so or even: shares stay between 0 and 1, and what
is shown as 0 has neither a sign nor a bar. And what is said of every size."""

import json
import re
import xml.etree.ElementTree as xml

import numpy as np
import pytest

from cli_support import heed, heed_ok, save

CHART = "Entropy in the given heads"


def study(folder, q, *flags):
    """The study of scaling, of four keys that are the queries."""
    save(folder / "qkv.npz", {"q": q, "k": q, "v": np.ones_like(q)})
    return heed_ok("study", "scaling", "--input", "qkv.npz", *flags, folder=folder, env={"LC_ALL": "C"})


def bars(text):
    """Value and bar of each line of the chart of entropies."""
    _, *lines = text.partition(f"\n{CHART}\n")[2].partition("\n\n")[0].splitlines()
    return [re.fullmatch(r" .*scaled +(\S+) %( *#*)", line).groups() for line in lines]


@pytest.mark.parametrize("size", [100, 6])
def test_an_entropy_that_is_shown_as_0_has_no_sign_and_no_bar(size, tmp_path):
    text = study(tmp_path, size * np.eye(4)[None, None], "-o", ".")
    assert bars(text) == [("0.0", "")] * 2
    assert "-0.0" not in text.partition("The heads of each")[2].partition(CHART)[0]
    svg = xml.fromstring((tmp_path / "scaling.svg").read_text(encoding="utf-8"))
    marks = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert marks.count(CHART) == 1 and not any(mark.startswith("-") for mark in marks[marks.index(CHART):] if mark)


def test_even_weights_have_a_whole_bar(tmp_path):
    whole = bars(study(tmp_path, np.zeros((1, 1, 4, 4))))
    assert {value for value, _ in whole} == {"100.0"} and all("#" * 20 in bar for _, bar in whole)


@pytest.mark.parametrize("entries, ticks", [(1, "1 0"), (2, "1 0"), (3, "2 1 0"), (13, "12 9 6 3 0")])
def test_what_is_counted_has_whole_ticks(entries, ticks, tmp_path):
    study(tmp_path, np.ones((entries, 1, 2, 4)), "-o", ".")
    labels = re.findall(r'text-anchor="middle">([^<]*)', (tmp_path / "scaling.svg").read_text())
    last = len(labels) - labels[::-1].index("entry") - 1
    assert labels[last - len(ticks.split()):last] == ticks.split() and labels[last - len(ticks.split()) - 1] == "d_k"


@pytest.mark.parametrize("keys", [1, 4, 5, 12])
@pytest.mark.parametrize("size", [0, 6, 100])
def test_an_entropy_share_is_from_0_to_1(size, keys, tmp_path):
    q = size * np.eye(keys)[None, None].repeat(9, axis=1)
    rows = json.loads(study(tmp_path, q, "--json"))["scaling"]["tables"]["tensors"]
    assert len(rows) == 2 and all(0 <= row["entropy"] and 0 <= row["entropy_share"] <= 1 for row in rows), rows


def test_one_key_has_an_entropy_share_of_0_and_what_is_not_used_is_said(tmp_path):
    one = np.ones((1, 4))
    save(tmp_path / "one.npz", {"q": one, "k": one, "v": one, "bias": np.zeros((1, 1)), "more": one})
    done = heed("study", "gradients", "scaling", "--format", "jsonl", "--input", "one.npz", folder=tmp_path)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (scaled, unscaled) = [row for row in rows if row["study"] == "scaling" and row["table"] == "tensors"]
    assert scaled["entropy_share"] == unscaled["entropy_share"] == scaled["entropy"] == 0 and scaled["mean_largest_weight"] == 1
    (ratio,) = [row for row in rows if row["study"] == "gradients" and row["table"] == "tensors"]
    assert ratio["norm_ratio"] is None and ratio["norm_scaled"] == 0
    assert sorted(done.stderr.splitlines()) == ["heed study: tensor bias of one.npz is not used",
                                                "heed study: tensor more of one.npz is not used"]
    text = heed("study", "scaling", "--format", "csv", "--input", "one.npz", folder=tmp_path).stdout
    assert "null" not in text and "nan" not in text
    assert heed("study", "scaling", "gradients", "--input", "one.npz", "-o", ".", folder=tmp_path).returncode == 0


def test_every_size_is_within_what_is_said_of_every_size():
    for seed in (11, 15):                     # of these, d_k = 512 is the farthest off
        variance = json.loads(heed_ok("study", "variance", "--json", "--seed", seed))["variance"]
        rows = variance["tables"]["by_size"] + variance["tables"]["at_512"]
        farthest = 100 * max(abs(row["ratio"] - 1) for row in rows)
        assert variance["findings"][0].startswith(f"The theory holds within {farthest:.1f} % at every size")


def test_all_bars_of_a_chart_have_their_numbers_or_none(tmp_path):
    """Of the eight variances not every one has room, of the eight divisors each."""
    heed_ok("study", "initialisation", "-o", ".", folder=tmp_path)
    svg = xml.fromstring((tmp_path / "initialisation.svg").read_text(encoding="utf-8"))
    told = [float(element.text) for element in svg.iter("{http://www.w3.org/2000/svg}text") if not element.get("class")]
    rows = json.loads((tmp_path / "initialisation.json").read_text())["initialisation"]["tables"]["by_deviation"]
    expected = [row[name] for name in ("unit_divisor", "default_divisor") for row in rows]
    assert told == pytest.approx(expected, rel=5e-2)
