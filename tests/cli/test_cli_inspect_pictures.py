"""heed inspect --html and --pictures: what is drawn is what was computed, and what was asked for."""

import base64
import csv
import json
import math
import re
import struct

import numpy as np
import pytest

from cli_support import draw, heed, heed_ok, save_file


def saved(folder, heads=2, queries=40, keys=None, layers=1, **more):
    tensors = {"q": draw(3, layers, heads, queries, 8), "k": draw(4, layers, heads, keys or queries, 8), **more}
    save_file(tensors, folder / "qk.safetensors")
    return tensors


def drawn(folder, *flags, file="qk.safetensors", **more):
    heed_ok("inspect", file, "--pictures", "p", *flags, folder=folder, **more)
    return folder / "p"


def page(folder, *flags, file="qk.safetensors", **more):
    heed_ok("inspect", file, "--html", "r.html", *flags, folder=folder, **more)
    text = (folder / "r.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_distances_have_whole_ticks(tmp_path):
    saved(tmp_path, heads=1, queries=2)
    labels = re.findall(r'text-anchor="middle">([^<]*)', (drawn(tmp_path) / "distance.svg").read_text())
    assert labels == ["1", "0", "-1", "distance in tokens"]


def table(path):
    return list(csv.DictReader(path.open(encoding="utf-8")))


def floats(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


def scores_of(tensors, head=0, layer=0):
    q, k = (tensors[name][layer, head].astype(np.float64) for name in "qk")
    return q @ k.T / math.sqrt(q.shape[-1])


def causal_weights(tensors, head=0, layer=0):
    scores = scores_of(tensors, head, layer)
    seen = np.tril(np.ones(scores.shape, bool))
    e = np.where(seen, np.exp(scores - np.where(seen, scores, -np.inf).max(-1, keepdims=True)), 0)
    return e / e.sum(-1, keepdims=True), seen


# ---- the mask ----------------------------------------------------------------------------------

@pytest.mark.parametrize("isa,rows", [("avx512", None), ("avx2", 16), ("scalar", 2)])
def test_tiles_of_the_mask_are_those_that_are_computed(isa, rows, tmp_path):
    saved(tmp_path, heads=1, queries=100, keys=300)
    env = {"HEED_MAX_ISA": isa}
    told = json.loads(heed_ok("inspect", "qk.safetensors", "--causal", "--json", folder=tmp_path, env=env))
    folder = drawn(tmp_path, "--causal", env=env)
    cells = [line for line in table(folder / "mask.csv") if line["kind"] == "computed"]
    assert sum(float(line["value"]) for line in cells) == told["tiles_computed"]
    assert len(cells) == told["tiles_computed"] + told["tiles_skipped"]
    if rows:
        assert len({line["row"] for line in cells}) == math.ceil(100 / rows)
        assert f"Tiles of {rows} queries" in (folder / "mask.svg").read_text()
        assert page(tmp_path, "--causal", env=env)["mask"]["tile_rows"] == rows
    for kind in ("visible", "computed"):   # each query and key is in one row and one column of cells, and causal is what they tell
        cells = [{name: float(line[name]) for name in line if name != "kind"}
                 for line in table(folder / "mask.csv") if line["kind"] == kind]
        for axis, what, count in (("row", "query", 100), ("column", "key", 300)):
            reaches = sorted({(cell[axis], cell[f"first_{what}"], cell[f"last_{what}"]) for cell in cells})
            assert [i for _, first, last in reaches for i in range(int(first), int(last) + 1)] == list(range(count))
        assert all((cell["value"] > 0) == (cell["first_key"] <= cell["last_query"]) for cell in cells)


def test_without_numbers_in_q_no_tile_is_computed(tmp_path):
    np.savez(tmp_path / "qk.npz", q=np.zeros((1, 1, 4, 0), np.float32), k=np.zeros((1, 1, 6, 0), np.float32))
    heed_ok("inspect", "qk.npz", "--scale", "1", "--pictures", "drawn", folder=tmp_path)
    assert {line["kind"] for line in table(tmp_path / "drawn" / "mask.csv")} == {"visible"}
    assert "There are no tiles: the head size is 0." in (tmp_path / "drawn" / "mask.svg").read_text()


def test_the_mask_is_what_options_hide_and_not_what_scores_are(tmp_path):
    q = np.zeros((1, 1, 6, 4), np.float32)
    q[..., 0] = -3e38
    k = np.full((1, 1, 6, 4), 100, np.float32)   # every score is -infinity
    save_file({"q": q, "k": k}, tmp_path / "qk.safetensors")
    shares = floats(page(tmp_path, "--causal")["mask"]["visible"]["cells"]).reshape(6, 6)
    assert np.array_equal(shares, np.tril(np.ones((6, 6))))


# ---- the story of a row ------------------------------------------------------------------------

def test_a_story_tells_scores_before_the_mask(tmp_path):
    tensors = saved(tmp_path)
    folder = drawn(tmp_path, "--causal", "--rows", "7")
    lines = table(folder / "story_l0_h1_row7.csv")
    scores = scores_of(tensors, 1)[7]
    assert [float(line["score"]) for line in lines] == pytest.approx(scores, abs=1e-5)
    assert [line["visible"] for line in lines] == ["true"] * 8 + ["false"] * 32
    assert [float(line["weight"]) for line in lines] == pytest.approx(causal_weights(tensors, 1)[0][7], abs=1e-6)
    assert "they add up to 1<" in (folder / "story_l0_h1_row7.svg").read_text()


def test_a_score_that_is_infinite_by_itself_is_not_hidden_by_a_mask(tmp_path):
    tensors = saved(tmp_path, heads=1)
    tensors["q"][..., 0], tensors["k"][..., 0] = -1, 0
    tensors["k"][0, 0, 3, 0] = np.inf   # the score of key 3 is -infinity
    save_file(tensors, tmp_path / "qk.safetensors")
    lines = table(drawn(tmp_path, "--causal", "--rows", "7") / "story_l0_h0_row7.csv")
    assert [line["visible"] for line in lines] == ["true"] * 8 + ["false"] * 32
    assert float(lines[3]["weight"]) == 0


def test_labels_have_room_whatever_their_letters(tmp_path):
    saved(tmp_path, heads=1, queries=6)
    tokens = ["W" * 30, "\u6f22" * 30, "\U0001f600" * 30, "i" * 30, "nghi\u1ec5m tr\u1ecdng", "a\u2014b\u2014c\u2014d\u202e"]
    (tmp_path / "words.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    folder = drawn(tmp_path, "--tokens", "words.txt", "--rows", "3", "--heads", "0.0")
    whole = (folder / "arcs_l0_h0.svg").read_text(encoding="utf-8")
    assert f">{tokens[4]}<" in whole and ">a\u2014b\u2014c\u2014d\\u202e<" in whole
    names = re.findall(r">(W+|\u6f22+|\U0001f600+|i+)\u2026<", whole)
    assert [(name[0], len(name)) for name in names] == [
        ("W", 7), ("\u6f22", 7), ("\U0001f600", 7), ("i", 15), ("W", 8), ("\u6f22", 8), ("\U0001f600", 8), ("i", 17)]


def test_scores_before_the_mask_still_know_where_the_query_stands(tmp_path):
    tensors = saved(tmp_path, heads=1)
    folder = drawn(tmp_path, "--causal", "--query-start", "3", "--alibi", "0.5", "--rows", "2")
    lines = table(folder / "story_l0_h0_row2.csv")
    expected = scores_of(tensors)[2] - 0.5 * np.abs(5 - np.arange(40))
    assert [float(line["score"]) for line in lines] == pytest.approx(expected, abs=1e-5)


def test_a_story_says_what_a_sink_takes(tmp_path):
    saved(tmp_path, heads=1)
    folder = drawn(tmp_path, "--sinks", "4", "--rows", "3")
    total = sum(float(line["weight"]) for line in table(folder / "story_l0_h0_row3.csv"))
    assert total < 0.9
    assert f"they add up to {total:.3g}: a sink has the rest" in (folder / "story_l0_h0_row3.svg").read_text()
    folder = drawn(tmp_path, "--sinks", "1e30", "--causal", "--query-lengths", "4", "--rows", "3,5")
    assert "they add up to 0: a sink has the rest" in (folder / "story_l0_h0_row3.svg").read_text()
    assert "they add up to 0<" in (folder / "story_l0_h0_row5.svg").read_text()   # sees no key
    folder = drawn(tmp_path, "--sinks", "nan", "--rows", "3")
    assert "weights: softmax, NaN" in (folder / "story_l0_h0_row3.svg").read_text()


def stories(folder):
    return sorted(path.name for path in folder.glob("story_l0_h0_*.svg"))


def test_rows_that_were_asked_for_all_have_a_story(tmp_path):
    saved(tmp_path, heads=1, queries=16)
    asked = range(1, 12)
    folder = drawn(tmp_path, "--rows", ",".join(map(str, asked)))
    assert stories(folder) == sorted(f"story_l0_h0_row{row}.svg" for row in asked)


def test_of_all_rows_some_are_drawn_from_early_to_late(tmp_path):
    saved(tmp_path, heads=1, queries=16)
    assert stories(drawn(tmp_path)) == sorted(f"story_l0_h0_row{row}.svg" for row in (1, 4, 8, 11, 14))


# ---- heads and tiles that are asked for --------------------------------------------------------

def test_heads_are_drawn_that_were_asked_for(tmp_path):
    saved(tmp_path, heads=3, layers=3, queries=9)
    folder = drawn(tmp_path, "--heads", "2.1,0.2,2.1")
    assert {path.name for path in folder.glob("head_*.svg")} == {"head_l2_h1.svg", "head_l0_h2.svg"}
    assert page(tmp_path, "--pictures", "p", "--heads", "2.1")["first"] == 7
    for wrong in ("3.0", "0.3", "1", "1.", ".1", "a.b", "-1.0", "0.1,", ",0.1"):
        done = heed("inspect", "qk.safetensors", "--pictures", "p", "--heads", wrong, folder=tmp_path)
        assert (done.returncode == 0) == (wrong == "0.1,"), (wrong, done)
        if done.returncode:
            assert (done.returncode, done.stderr) == (
                2, f"heed inspect: --heads: expected LAYER.HEAD, 0.0 to 2.2, got '{wrong.partition(',')[0]}'\n")
    done = heed("inspect", "qk.safetensors", "--heads", "0.0", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2, "heed inspect: --heads: heads are drawn alone into a folder; give --pictures FOLDER\n")


def test_a_tile_begins_where_it_was_asked_for(tmp_path):
    tensors = saved(tmp_path, heads=2, queries=300)
    for flags, row, key, rows, columns in ((("--tile", "100,50"), 100, 50, 64, 64),
                                           (("--tile", "290,200"), 290, 200, 10, 64), ((), 236, 236, 64, 64)):
        data = page(tmp_path, "--causal", *flags)
        assert len(data["found"]) == 2
        for head, found in enumerate(data["found"]):
            tile, = found["tiles"]
            assert [tile[name] for name in ("row", "key", "rows", "columns")] == [row, key, rows, columns]
            weights = causal_weights(tensors, head)[0][row:row + rows, key:key + columns]
            assert floats(tile["weights"]).reshape(rows, columns) == pytest.approx(weights, abs=1e-6)
            visible = np.frombuffer(base64.b64decode(tile["visible"]), "<i4")
            assert list(visible) == list(range(row + 1, row + rows + 1))   # what lift is a share of


def test_a_tile_has_room_however_many_heads_there_are(tmp_path):
    saved(tmp_path, layers=8, heads=10, queries=100, keys=100)
    heads = page(tmp_path)["found"]
    assert len(heads) == 80
    for found in heads:
        tile, = found["tiles"]
        assert tile["rows"] == tile["columns"] == 31
        assert (tile["row"], tile["key"]) == (69, 69)
        assert len(floats(tile["weights"])) == 31 * 31


def test_a_tile_that_is_not_there_is_refused(tmp_path):
    saved(tmp_path, heads=1)
    for wrong in ("40,0", "0,40", "-1,0", "3", "1,2,3"):
        done = heed("inspect", "qk.safetensors", "--html", "r.html", f"--tile={wrong}", folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert "--tile: expected a row below 40, a comma and a key below 40" in done.stderr
    done = heed("inspect", "qk.safetensors", "--tile", "1,1", folder=tmp_path)
    assert done.returncode == 2 and "--html" in done.stderr
    assert not (tmp_path / "r.html").exists()


# ---- a page of very many heads -----------------------------------------------------------------

def test_cells_of_very_many_heads_are_means_of_the_rows_and_keys_that_they_name(tmp_path):
    tensors = saved(tmp_path, heads=12, layers=12, queries=120)
    data = page(tmp_path, "--causal")
    rows, columns = data["maps"]["rows"], data["maps"]["columns"]
    assert (rows, columns) == (68, 68) and not data["maps"]["exact"]
    weights, _ = causal_weights(tensors, head=7, layer=3)
    cells = np.arange(120) * 68 // 120   # as reachOf of the page has them
    inside = (cells == np.arange(68)[:, None]).astype(float)
    means = inside @ weights @ inside.T / np.outer(inside.sum(1), inside.sum(1))
    head = data["found"][3 * 12 + 7]
    shown = np.frombuffer(base64.b64decode(head["mean"]), np.uint8).reshape(68, 68)
    seen = means > 1e-7
    np.testing.assert_allclose(2 ** ((shown[seen] - 255.0) / 10), means[seen], rtol=0.036)
    np.testing.assert_allclose(floats(head["columns"]), inside @ weights.sum(0) / 120, rtol=1e-5)


def test_a_tile_is_there_where_very_many_heads_have_smaller_maps(tmp_path):
    saved(tmp_path, heads=12, layers=12, queries=96)
    assert page(tmp_path)["found"][0]["tiles_in_all"] == 1
    saved(tmp_path, heads=12, layers=6, queries=96)
    assert page(tmp_path)["found"][0]["tiles_in_all"] == 0


def test_what_lies_beyond_the_last_distance_stays_beyond_it_for_very_many_heads(tmp_path):
    saved(tmp_path, heads=20, layers=16, queries=200)
    told = json.loads(heed_ok("inspect", "qk.safetensors", "--json", folder=tmp_path))["found"][0]["distance_mass"]
    data = page(tmp_path)
    mass = floats(data["found"][0]["distance"])
    assert data["distance_step"] == 3 and data["distance_end"] == len(told) // 2
    assert (mass[0], mass[-1]) == (np.float32(told[0]), np.float32(told[-1]))
    np.testing.assert_allclose(mass[len(mass) // 2], sum(told[len(told) // 2 - 1:][:3]), rtol=1e-6)


# ---- charts ------------------------------------------------------------------------------------

@pytest.mark.parametrize("factor,reach", [(1, 4), (6, 18)])
def test_the_axis_of_a_histogram_is_that_of_its_scores(factor, reach, tmp_path):
    tensors = saved(tmp_path, heads=1, queries=300)
    save_file({"q": factor * tensors["q"], "k": tensors["k"]}, tmp_path / "qk.safetensors")
    folder = drawn(tmp_path)
    lines = table(folder / "histogram.csv")
    of_all = [line for line in lines if line["head"] == "all"]
    assert len(of_all) == 256 and float(of_all[0]["score_from"]) == -32   # the table keeps every bin
    inside = [line for line in of_all if line["drawn_in"] == "all"]
    low, high = float(inside[0]["score_from"]), float(inside[-1]["score_to"])
    scores = np.sort(factor * scores_of(tensors).ravel())
    assert ((scores >= low) & (scores < high)).mean() >= 0.999
    assert low <= -4 and high >= 4
    for end, share in ((low, 0.0005), (high, 0.9995)):
        assert abs(end) == 4 or abs(end - np.quantile(scores, share)) < 0.3
    assert max(-low, high) < 2 * reach
    text = (folder / "histogram.svg").read_text()
    assert "<circle" not in text            # no dots
    assert text.count("<title>scores, score") == 2 * len(inside)   # of all heads, and of the one


def test_the_page_reaches_as_far_as_the_picture(tmp_path):
    saved(tmp_path, heads=1, queries=300)
    lines = [line for line in table(drawn(tmp_path) / "histogram.csv") if line["drawn_in"] == "L0 H0"]
    found, = page(tmp_path)["found"]
    assert found["reach"] == [float(lines[0]["score_from"]), float(lines[-1]["score_to"])]
    assert len(found["histogram"]) == 258


def test_rows_that_cannot_choose_are_hidden_in_the_map_of_entropy(tmp_path):
    tensors = saved(tmp_path, heads=1, queries=6)
    keep = np.tril(np.ones((6, 6), np.uint8))
    keep[4] = 0                                     # row 0 sees one key, row 4 none
    np.save(tmp_path / "keep.npy", keep)
    folder = drawn(tmp_path, "--keep", "keep.npy")
    found = [line["entropy_share"] for line in table(folder / "entropy.csv")]
    assert [row for row, share in enumerate(found) if share == ""] == [0, 4]
    weights = causal_weights(tensors)[0]
    for row in (1, 2, 3, 5):
        seen = weights[row, :row + 1]
        assert float(found[row]) == pytest.approx(-(seen * np.log(seen)).sum() / math.log(row + 1), abs=1e-5)
    assert np.isnan(floats(page(tmp_path, "--keep", "keep.npy")["found"][0]["entropy"])[[0, 4]]).all()


def test_rows_that_see_no_key_are_hidden_in_the_map_of_saturation(tmp_path):
    """And do not count in the mean of a cell that has others, too."""
    tensors = saved(tmp_path, heads=1, queries=6)
    keep = np.tril(np.ones((6, 6), np.uint8))
    keep[[2, 3, 4]] = 0
    np.save(tmp_path / "keep.npy", keep)
    folder = drawn(tmp_path, "--keep", "keep.npy", "--map", "3")  # two rows are a cell
    found = [line["max_weight"] for line in table(folder / "saturation.csv")]
    largest = causal_weights(tensors)[0].max(-1)
    assert found[1] == ""
    assert [float(found[0]), float(found[2])] == pytest.approx([largest[:2].mean(), largest[5]], abs=1e-6)


@pytest.mark.parametrize("keys", [40, 500])
def test_names_of_the_keys_of_arcs_do_not_meet(keys, tmp_path):
    """Of few rows, as of one that decodes; of more keys than have room those with most weight are named."""
    q, k = draw(90, 1, 1, 1, 8), draw(91, 1, 1, keys, 8)
    np.savez(tmp_path / "qk.npz", q=q, k=k)
    heed_ok("inspect", "qk.npz", "--pictures", "drawn", "--top", "4", folder=tmp_path)
    svg = (tmp_path / "drawn" / "arcs_l0_h0.svg").read_text()
    named = {int(name): float(y) for y, name in re.findall(r'<text x="560\.0" y="([\d.]+)"[^>]*>(\d+)<', svg)}
    places = sorted(named.values())
    assert min(np.diff(places)) > 13 and max(places) < float(re.search(r'viewBox="0 0 \S+ (\S+)"', svg)[1])
    heaviest = int(np.argmax(q[0, 0, 0] @ k[0, 0].T))
    assert heaviest in named and (keys > 48 or len(named) == keys)


def test_pictures_of_few_rows_are_no_slivers(tmp_path):
    np.savez(tmp_path / "qk.npz", q=draw(92, 1, 2, 1, 8), k=draw(93, 1, 2, 500, 8))
    heed_ok("inspect", "qk.npz", "--pictures", "drawn", folder=tmp_path)
    for path in (tmp_path / "drawn").glob("*.png"):
        width, height = struct.unpack(">II", path.read_bytes()[16:24])
        assert width >= 64 and height >= 24 and max(width, height) <= 512, path


def test_arcs_say_what_the_rows_with_weights_hold(tmp_path):
    """Rows that see no key, and rows with a NaN, are no part of the mean; it counted them as 0."""
    tensors = saved(tmp_path, heads=1, queries=6)
    tensors["q"][0, 0, 2, 0] = np.nan
    save_file(tensors, tmp_path / "qk.safetensors")

    def told(*flags):
        folder = drawn(tmp_path, "--query-lengths", "4", "--heads", "0.0", *flags)
        return re.search(r">((?:The|No) [^<]*)</text>", (folder / "arcs_l0_h0.svg").read_text())[1]

    scores = scores_of(tensors)[[0, 1, 3]]
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    share = 100 * np.sort(weights)[:, -2:].sum(-1).mean()
    assert told("--top", "2") == f"The 2 largest weights of each row hold {share:.1f} % of its weight in the mean."
    assert told("--top", "6") == "The 6 largest weights of each row hold 100.0 % of its weight in the mean."
    tensors["q"][...] = np.nan
    save_file(tensors, tmp_path / "qk.safetensors")
    assert told() == "No row drawn here has weights: each sees no key, or is NaN."


def test_stripes_of_rows_with_a_nan_are_not_told_as_hidden(tmp_path):
    tensors = saved(tmp_path, heads=1, queries=6)
    tensors["q"][0, 0, 2, 0] = np.nan
    save_file(tensors, tmp_path / "qk.safetensors")
    folder = drawn(tmp_path, "--causal", "--rows", "2")
    story = (folder / "story_l0_h0_row2.svg").read_text()
    assert story.count("fill=\"url(#hidden)\"") == 3 * 6 + 3   # no product, no score; of the weights those that it may see
    assert "Striped: hidden by the mask, or no number." in story
    assert "Striped: rows that see no two keys, or are NaN." in (folder / "entropy.svg").read_text()
    assert "Striped: no key seen, or NaN." in (folder / "saturation.svg").read_text()


def test_tokens_in_tables_are_no_formulas(tmp_path):
    saved(tmp_path, heads=1, queries=6)
    tokens = ["=1+1", "+2", "-3", "@sum", "\t=4", "a=b"]
    (tmp_path / "words.txt").write_text("\n".join(tokens) + "\n")
    folder = drawn(tmp_path, "--tokens", "words.txt", "--rows", "3")
    told = ["'=1+1", "'+2", "'-3", "'@sum", "\\t=4", "a=b"]
    story = table(folder / "story_l0_h0_row3.csv")
    assert [line["token"] for line in story] == told
    arcs = table(folder / "arcs_l0_h0.csv")
    assert {line["key_token"] for line in arcs} == set(told)
    assert [line["query_token"] for line in arcs if line["query"] == "2"][0] == "'-3"
    assert min(float(line["product"]) for line in story) < 0   # numbers bear their sign and no mark
    found = json.loads(heed_ok("inspect", "qk.safetensors", "--tokens", "words.txt", "--json", folder=tmp_path))
    assert found["tokens"] == tokens
