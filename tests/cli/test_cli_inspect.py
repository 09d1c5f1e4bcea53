"""heed inspect: its numbers against NumPy on full weights, and what it says about heads that are ill."""

import json
import math

import numpy as np
import pytest

from cli_support import draw, heed, heed_ok, save_file


def save(folder, **tensors):
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()},
              folder / "qk.safetensors")
    return folder / "qk.safetensors"


def inspect(path, *flags, **more):
    return json.loads(heed_ok("inspect", path, *flags, "--json", **more))


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


# ---- numbers -----------------------------------------------------------------------------------

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
                  ("--causal",), ("--causal", "--query-start", "3"), ("--window", "1,1"),
                  ("--key-lengths", "5"), ("--query-lengths", "4"),
                  ("--bias", tmp_path / "bias.npy"), ("--keep", tmp_path / "keep.npy"),
                  ("--drop", tmp_path / "drop.npy")]:
        told = inspect(path, *flags)
        assert told["settings"].startswith(str(flags[0]))
        changed = told["found"][1]
        assert (changed["max_score"]["mean"], changed["max_score"]["rows"]) != (plain, 9), flags
    weights = inspect(path, "--sinks", "3,3")["found"][1]["max_weight"]["mean"]
    assert weights < inspect(path)["found"][1]["max_weight"]["mean"]


# ---- diagnosis ---------------------------------------------------------------------------------

def healthy(seed=20, size=64, rows=40):
    return draw(seed, 1, 1, rows, size), draw(seed + 1, 1, 1, rows, size)


def test_a_healthy_head_is_called_healthy(tmp_path):
    q, k = healthy()
    found = inspect(save(tmp_path, q=q, k=k))["found"][0]
    assert sentences(found) == "weights neither uniform nor peaked, scores in range"
    assert not warned(found)


def test_unscaled_scores_are_saturated_and_the_scale_is_named(tmp_path):
    q, k = healthy(22)
    path = save(tmp_path, q=3 * q, k=k)
    found = inspect(path, "--scale", "1")["found"][0]
    assert "of the rows have a weight above 0.99: they hardly learn" in sentences(found)
    assert "use the scale 1/sqrt(64) = 0.125 instead of 1" in suggestions(found)
    assert warned(found)
    # the same head with the usual scale has nothing to be told of its scale
    assert "use the scale" not in suggestions(inspect(path)["found"][0])


def test_saturation_at_the_usual_scale_asks_for_normalisation(tmp_path):
    q, k = healthy(24)
    found = inspect(save(tmp_path, q=9 * q, k=9 * k))["found"][0]
    assert "they hardly learn" in sentences(found)
    assert "normalise queries and keys" in suggestions(found)
    assert "fewer than 90 % of the scores lie in -3 .. 3" in sentences(found)


def test_uniform_rows_are_told(tmp_path):
    q, k = healthy(26)
    found = inspect(save(tmp_path, q=q * 0.01, k=k))["found"][0]
    assert "the weights are nearly uniform" in sentences(found)
    assert "a larger scale" in suggestions(found)
    found = inspect(save(tmp_path, q=q, k=k), "--scale", "0.001")["found"][0]
    assert "use the scale 1/sqrt(64) = 0.125 instead of 0.001" in suggestions(found)


def test_cosine_attention_asks_for_a_temperature(tmp_path):
    q, k = healthy(28)
    found = inspect(save(tmp_path, q=q, k=k), "--normalize-qk")["found"][0]
    assert "the weights are nearly uniform" in sentences(found)
    assert "multiply the scale by 8" in suggestions(found)   # of cosines 1/sqrt(64) apart


def test_nan_is_found_and_counted(tmp_path):
    q, k = healthy(30, rows=10)
    q[0, 0, 3, 5] = np.nan
    found = inspect(save(tmp_path, q=q, k=k))["found"][0]
    assert sentences(found).startswith("1 of 10 rows are NaN")
    assert "look for NaN" in suggestions(found)
    q, k = healthy(30, rows=10)
    k[0, 0, 2, 1] = np.inf
    found = inspect(save(tmp_path, q=q, k=k))["found"][0]
    assert "rows are NaN" in sentences(found) and found["nan_rows"] > 0


def test_a_mask_the_wrong_way_round_is_noticed(tmp_path):
    q, k = healthy(32, rows=12)
    # True where it may not look, given as keep: the query sees what comes after it only
    found = inspect(save(tmp_path, q=q, k=k, keep=~np.tri(12, dtype=bool)))["found"][0]
    assert "all weight lies on keys after the query" in sentences(found)
    assert "1 of 12 rows see no key" in sentences(found)
    assert "keep is true where a query may look" in suggestions(found)
    found = inspect(save(tmp_path, q=q, k=k, keep=np.eye(12, dtype=bool)))["found"][0]
    assert "12 of 12 rows see one key only" in sentences(found)
    assert "saturated" not in sentences(found) and "hardly learn" not in sentences(found)


def test_padding_that_is_not_masked_is_noticed(tmp_path):
    q, k = healthy(34, rows=12)
    k[..., 8:, :] = 0
    path = save(tmp_path, q=q, k=k)
    assert "4 keys are all zeros and take" in sentences(inspect(path)["found"][0])
    assert "--key-lengths" in suggestions(inspect(path)["found"][0])
    assert "zeros" not in sentences(inspect(path, "--key-lengths", "8")["found"][0])
    k[..., 8:, :] = 1
    k[..., 11, :] = 0
    assert "1 key is all zeros and takes" in sentences(inspect(save(tmp_path, q=q, k=k))["found"][0])


def test_scores_below_all_bins_make_the_low_quantile_their_end(tmp_path):
    q, k = healthy(42, rows=12)
    q[..., 0], k[..., 0] = 16, 0
    k[..., :2, 0] = -40   # 2 of 12 keys have scores near -80
    found = inspect(save(tmp_path, q=q, k=k))["found"][0]
    assert found["histogram"][0] == 24 and found["score_low"] == -32
    assert found["score_high"] > 0


def test_of_many_rows_the_last_has_its_largest_weights(tmp_path):
    q, k = draw(46, 1, 8, 1000, 8), draw(47, 1, 8, 1000, 8)
    told = inspect(save(tmp_path, q=q, k=k))
    assert all([top["row"] for top in found["top"]] == [999] for found in told["found"])


def test_tiles_of_all_heads_are_counted(tmp_path):
    q, k = healthy(44, rows=300)
    path = save(tmp_path, q=q, k=k)
    told, causal = inspect(path), inspect(path, "--causal")
    assert told["tiles_computed"] > 0 and told["tiles_skipped"] == 0
    assert causal["tiles_skipped"] > 0
    assert causal["tiles_computed"] + causal["tiles_skipped"] == told["tiles_computed"]


def test_sinks_and_previous_tokens_are_recognised(tmp_path):
    q, k = healthy(36, rows=24)
    q[..., 0], k[..., 0] = 8, 0
    k[0, 0, 0, 0] = 4
    found = inspect(save(tmp_path, q=q, k=k))["found"][0]
    assert found["sink_key"] == 0 and found["sink_share"] > 0.3
    assert "of all weight rests on 0, a place for rows that look for nothing" in sentences(found)
    eye = np.eye(24, 64, dtype=np.float32)[None, None] * 12
    found = inspect(save(tmp_path, q=np.roll(eye, -1, 2) * 0 + eye[:, :, [*range(0, 1), *range(23)]],
                         k=eye))["found"][0]
    assert "more than half of the weight lies one position back" in sentences(found)


def test_thresholds_are_flags(tmp_path):
    q, k = healthy(38)
    path = save(tmp_path, q=3 * q, k=k)
    told = lambda *flags: inspect(path, *flags)["found"][0]
    assert "above 0.2" in sentences(told("--saturation", "0.2", "--saturated", "0.1"))
    assert "hardly learn" not in sentences(told("--saturated", "1.1", "--in-range", "0"))
    assert "uniform" in sentences(told("--uniform", "0.01", "--in-range", "0"))
    assert "choose one key or two" in sentences(told("--peaked", "0.99", "--in-range", "0",
                                                     "--saturated", "1.1"))
    assert "in -9 .. 9" not in sentences(told("--range", "9"))
    assert "in -0.5 .. 0.5" in sentences(told("--range", "0.5"))
    assert "rests on" in sentences(told("--sink", "0.01"))


# ---- the sample, words, files ------------------------------------------------------------------

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


def test_tokens_come_from_a_file(tmp_path):
    q, k = healthy(40, rows=3)
    path = save(tmp_path, q=q, k=k)
    (tmp_path / "words.txt").write_text("one\ntwo\nthr\x1b[31mee\n")
    told = inspect(path, "--tokens", tmp_path / "words.txt")
    assert told["tokens"] == ["one", "two", "thr\x1b[31mee"]
    assert "\x1b" not in heed_ok("inspect", path, "--tokens", tmp_path / "words.txt")
    done = heed("inspect", save(tmp_path, q=q, k=np.concatenate([k, k], 2)), "--tokens",
                tmp_path / "words.txt")
    assert done.returncode == 2
    assert done.stderr.endswith("words.txt has 3 lines; expected 6, one for each key\n")


def test_top_and_threads_and_quiet(tmp_path):
    q, k = healthy(42, rows=9)
    path = save(tmp_path, q=q, k=k)
    assert {len(top["keys"]) for top in inspect(path, "--top", 2)["found"][0]["top"]} == {2}
    assert inspect(path, "--threads", 1) == inspect(path, "--threads", 2)
    assert heed_ok("inspect", path, "--quiet") == ""
    assert "takes" not in heed_ok("inspect", path, "--max-bytes", "1G")


def test_v_is_not_needed_but_may_be_there(tmp_path):
    q, k = healthy(44, rows=5)
    assert inspect(save(tmp_path, q=q, k=k, v=k)) == inspect(save(tmp_path, q=q, k=k))


def test_a_page_is_written_and_holds_the_numbers(tmp_path):
    q, k = draw(50, 2, 3, 9, 8), draw(51, 2, 3, 9, 8)
    path = save(tmp_path, q=q, k=k)
    text = heed_ok("inspect", path, "--html", tmp_path / "page.html", "--rows", "2,4")
    assert text.endswith(f"written to {tmp_path / 'page.html'}\n")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")   # nothing to fetch
    (tmp_path / "shut").mkdir()
    done = heed("inspect", path, "--html", tmp_path / "none" / "page.html")
    assert done.returncode == 4 and "none" in done.stderr


def test_pictures_are_written_with_their_numbers(tmp_path):
    q, k = draw(52, 1, 2, 9, 8), draw(53, 1, 2, 9, 8)
    path = save(tmp_path, q=q, k=k)
    text = heed_ok("inspect", path, "--pictures", tmp_path / "all", "--causal")
    files = sorted(file.name for file in (tmp_path / "all").iterdir())
    assert text.endswith(f"{len(files)} files written to {tmp_path / 'all'}\n")
    for name in ["poster", "entropy", "saturation", "mask", "histogram", "distance", "head_l0_h1",
                 "arcs_l0_h0", "story_l0_h0_row4"]:
        assert f"{name}.svg" in files and f"{name}.csv" in files, name
    assert all(file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for file in (tmp_path / "all").glob("*.png"))
    # the mean distance of the CSV is that of the JSON, to the last digit
    lines = (tmp_path / "all" / "distance.csv").read_text().splitlines()
    told = [repr(x) if x else "0" for x in inspect(path, "--causal")["found"][0]["distance_mass"]]
    cells = {cell for line in lines for cell in line.split(",")}
    assert [x for x in told if x not in cells and x.removesuffix(".0") not in cells] == []


def test_two_runs_are_compared(tmp_path):
    (tmp_path / "before").mkdir()
    before = save(tmp_path / "before", q=draw(54, 1, 2, 9, 8), k=draw(55, 1, 2, 9, 8))
    after = save(tmp_path, q=draw(56, 1, 2, 9, 8), k=draw(55, 1, 2, 9, 8))
    heed_ok("inspect", after, "--against", before, "--pictures", tmp_path / "both", "--quiet")
    lines = (tmp_path / "both" / "difference_numbers.csv").read_text().splitlines()
    first, second = inspect(before)["found"][1], inspect(after)["found"][1]
    row = next(line.split(",") for line in lines
               if line.startswith("0,1,") and "entropy_share," in line)
    numbers = [float(cell) for cell in row[3:] if cell.replace(".", "").replace("-", "").replace("e", "").isdigit()]
    assert first["entropy_share"]["mean"] in numbers and second["entropy_share"]["mean"] in numbers
    other = save(tmp_path / "before", q=draw(57, 1, 3, 9, 8), k=draw(58, 1, 3, 9, 8))
    done = heed("inspect", after, "--against", other, "--pictures", tmp_path / "both")
    assert done.returncode == 2 and "cannot be compared" in done.stderr


@pytest.mark.parametrize("tensors, flags, code, message", [
    ({}, ["--top", "0"], 2, "--top: expected 1 to 64, got 0"),
    ({}, ["--map", "257"], 2, "--map: expected 1 to 256, got 257"),
    ({}, ["--rows", "5"], 2, "--rows: expected 0 to 4, got 5"),
    ({}, ["--rows", "-1"], 2, "--rows: expected 0 to 4, got -1"),
    ({}, ["--threads", "-1"], 2, "--threads: expected 0 to 4096, got -1"),
    ({}, ["--softcap", "0"], 2, "softcap is 0; expected 2^-100 .. 2^100"),
    ({}, ["--against", "x.npz"], 2,
     "--against: what changed is shown by pictures; give --pictures FOLDER"),
    ({"k": draw(1, 1, 1, 5, 3)}, [], 2, "head size of k is 3, of q 8; they must be equal"),
])
def test_wrong_calls_say_what_is_wrong(tmp_path, tensors, flags, code, message):
    path = save(tmp_path, **{"q": draw(1, 1, 1, 5, 8), "k": draw(2, 1, 1, 5, 8), **tensors})
    done = heed("inspect", path, *flags)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"heed inspect: {message}\n"


def test_a_file_without_keys_is_refused(tmp_path):
    done = heed("inspect", save(tmp_path, q=draw(1, 1, 1, 5, 8)))
    assert done.returncode == 3
    assert "no tensor named k; found q" in done.stderr


def test_nothing_to_look_at_is_no_error(tmp_path):
    for q, k in [((1, 1, 0, 8), (1, 1, 5, 8)), ((1, 1, 5, 8), (1, 1, 0, 8)), ((0, 2, 5, 8), (0, 2, 5, 8))]:
        told = inspect(save(tmp_path, q=np.zeros(q, np.float32), k=np.zeros(k, np.float32)))
        assert told["queries"] == q[2]


def test_long_input_takes_no_square_of_memory(tmp_path):
    q, k = draw(1, 1, 1, 4096, 8), draw(2, 1, 1, 4096, 8)
    told = inspect(save(tmp_path, q=q, k=k), "--causal", "--allow-trailing", "--rows", "4000")
    assert told["found"][0]["entropy_share"]["rows"] == 4096
    assert [top["row"] for top in told["found"][0]["top"]][:1] in ([0], [4000])
