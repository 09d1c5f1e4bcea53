"""What heed inspect says about heads, well and ill."""

import numpy as np
import pytest

from cli_support import draw, heed_ok
from inspect_support import healthy, inspect, save, scores_of, sentences, suggestions, warned


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
    assert sentences(found).startswith("1 of 10 rows is NaN: a score that they see is NaN or +infinity")
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
    assert "1 of 12 rows sees no key" in sentences(found)
    assert "keep is true where a query may look" in suggestions(found)
    found = inspect(save(tmp_path, q=q, k=k, keep=np.eye(12, dtype=bool)))["found"][0]
    assert "12 of 12 rows see one key only" in sentences(found)
    assert suggestions(found).startswith("if that is not meant, look at the mask: keep is true where a query may look")
    assert "saturated" not in sentences(found) and "hardly learn" not in sentences(found)


def test_rows_without_a_choice_are_neither_saturated_nor_peaked(tmp_path):
    q, k = healthy(60, rows=3)
    found = inspect(save(tmp_path, q=q, k=k), "--causal")["found"][0]
    assert found["saturated"] == found["peaked"] == 0 and found["max_weight"]["quantiles"][4] == 1
    assert "hardly learn" not in sentences(found)
    found = inspect(save(tmp_path, q=q, k=k[:, :, :1]))["found"][0]
    assert found["saturated"] == found["peaked"] == found["uniform"] == 0
    assert sentences(found) == "each row sees one key only: its weight is 1, whatever the scores"


def test_without_rows_there_is_nothing_to_judge(tmp_path):
    found = inspect(save(tmp_path, q=draw(61, 1, 1, 0, 8), k=draw(62, 1, 1, 5, 8)))["found"][0]
    assert sentences(found) == "there are no rows: nothing to judge"
    assert found["in_range"] is None


def test_a_sink_that_takes_everything_is_blamed(tmp_path):
    q, k = healthy(63)
    path = save(tmp_path, q=q, k=k)
    found = inspect(path, "--sinks", "50")["found"][0]
    assert sentences(found).startswith("the sink takes more than 99 % of the weight")
    assert "choose one key" not in sentences(found) and warned(found)
    assert "the sink takes" not in sentences(inspect(path, "--sinks", "1")["found"][0])


def test_infinite_scores_of_finite_inputs_are_told_as_such(tmp_path):
    q, k = healthy(64, rows=10)
    q[..., 0], k[..., 0] = 1e30, 0
    k[0, 0, 2, 0] = 1e30
    found = inspect(save(tmp_path, q=q, k=k))["found"][0]
    assert "10 of 10 rows are NaN: a score that they see is NaN or +infinity" in sentences(found)


def test_a_row_of_NaN_does_not_silence_the_others(tmp_path):
    q, k = healthy(65)
    q = 9 * q
    clean = inspect(save(tmp_path, q=q[:, :, 1:], k=9 * k))["found"][0]
    q[0, 0, 0, 5] = np.nan
    found = inspect(save(tmp_path, q=q, k=9 * k))["found"][0]
    for name in ["entropy", "max_score", "jacobian_norm", "saturated", "peaked"]:
        assert found[name] == clean[name], name
    assert found["nan_rows"] == 1 and "they hardly learn" in sentences(found)


def test_of_a_row_of_NaN_no_score_counts(tmp_path):
    bias = np.zeros((2, 4), np.float32)
    bias[0] = [np.nan, 20, 20, 20]
    path = save(tmp_path, q=np.ones((2, 1), np.float32), k=np.ones((4, 1), np.float32), bias=bias, scale=np.array(0.5))
    found = inspect(path)["found"][0]
    assert (sum(found["histogram"]), found["in_range"], found["nan_rows"]) == (4, 1, 1)
    assert found["score_low"] == pytest.approx(0.5, abs=0.25) and found["score_high"] == pytest.approx(0.5, abs=0.25)
    assert "of the scores lie in" not in sentences(found)


def test_a_row_of_NaN_is_named_and_so_is_what_it_hides(tmp_path):
    q, k = healthy(36, rows=24)
    q[..., 0], k[..., 0] = 8, 0
    k[0, 0, 0, 0] = 4
    path = save(tmp_path, q=q, k=k)
    clean = inspect(path)["found"][0]
    assert "rests on 0" in sentences(clean) and "not judged" not in sentences(clean)
    assert (clean["nan_rows"], clean["first_nan_row"]) == (0, -1)
    q[0, 0, [7, 19], 3] = np.nan
    path = save(tmp_path, q=q, k=k)
    found = inspect(path)["found"][0]
    assert (found["nan_rows"], found["first_nan_row"]) == (2, 7)
    assert "2 of 24 rows are NaN" in sentences(found) and "rests on" not in sentences(found)
    assert "the first NaN row is 7: sums over rows are NaN with it, so sinks, distances, padding " \
        "and the direction of the mask are not judged" in sentences(found)
    assert "the first NaN row is 7" in heed_ok("inspect", path)


def test_a_transposed_causal_mask_is_noticed(tmp_path):
    q, k = healthy(66, rows=12)
    path = save(tmp_path, q=q, k=k)
    np.save(tmp_path / "upper.npy", np.triu(np.ones((12, 12), bool)))
    np.save(tmp_path / "lower.npy", np.tri(12, dtype=bool))
    np.save(tmp_path / "bias.npy", np.where(np.tri(12, k=-1), -np.inf, 0).astype(np.float32))
    for flags in [("--keep", tmp_path / "upper.npy"), ("--bias", tmp_path / "bias.npy")]:
        assert "no row sees a key before its own" in sentences(inspect(path, *flags)["found"][0])
    assert "no row sees" not in sentences(inspect(path, "--keep", tmp_path / "lower.npy")["found"][0])
    # a window that looks ahead was asked for
    assert "no row sees" not in sentences(inspect(path, "--window", "0,5")["found"][0])


@pytest.mark.parametrize("low", [np.finfo(np.float32).min, -1e4])
def test_a_finite_bias_used_as_a_mask_is_noticed(tmp_path, low):
    q, k = healthy(67, rows=12)
    path = save(tmp_path, q=q, k=k)
    np.save(tmp_path / "bias.npy", np.where(np.tri(12), 0, low).astype(np.float32))
    found = inspect(path, "--bias", tmp_path / "bias.npy")["found"][0]
    assert f"a bias of {low:.3g} hides keys" in sentences(found)
    assert "--keep, --drop or a bias of -inf" in suggestions(found)
    assert "normalise" not in suggestions(found)
    # slopes of distance are no mask
    np.save(tmp_path / "slope.npy", -500 * np.abs(np.arange(12)[:, None] - np.arange(12)).astype("f4"))
    assert "hides keys" not in sentences(inspect(path, "--bias", tmp_path / "slope.npy")["found"][0])


@pytest.mark.parametrize("low", [np.finfo(np.float32).min, -10000])
def test_a_finite_bias_beside_a_mask_that_hides_the_same_keys_is_no_fault(low, tmp_path):
    q, k = healthy(62, rows=12)
    q *= 4
    path = save(tmp_path, q=q, k=k)
    np.save(tmp_path / "bias.npy", np.where(np.tri(12), 0, low).astype(np.float32))
    alone = inspect(path, "--causal")["found"][0]
    assert "fewer than 90 % of the scores lie in -3 .. 3" in sentences(alone)
    # The mask that the sentence asks for was given: what is said is what is said without the bias.
    assert inspect(path, "--causal", "--bias", tmp_path / "bias.npy")["found"][0]["remarks"] == alone["remarks"]
    # One key too many, in one row, is seen with its bias.
    np.save(tmp_path / "keep.npy", np.tri(12).astype(bool) | (np.arange(144) == 1).reshape(12, 12))
    found = inspect(path, "--keep", tmp_path / "keep.npy", "--bias", tmp_path / "bias.npy")["found"][0]
    assert f"a bias of {low:.3g} hides keys" in sentences(found)


def test_the_scale_is_named_where_scores_leave_the_range(tmp_path):
    q, k = healthy(68, size=4)
    found = inspect(save(tmp_path, q=q, k=k), "--scale", "1")["found"][0]
    assert "of the scores lie in -3 .. 3" in sentences(found)
    assert "use the scale 1/sqrt(4) = 0.5 instead of 1" in suggestions(found)


def test_scores_that_no_scale_tells_apart(tmp_path):
    q, k = healthy(69)
    path = save(tmp_path, q=q, k=np.broadcast_to(k[:, :, :1], k.shape))
    assert "all keys are equal" in suggestions(inspect(path)["found"][0])
    assert "all queries are zeros" in suggestions(inspect(save(tmp_path, q=0 * q, k=k))["found"][0])
    empty = inspect(save(tmp_path, q=q[..., :0], k=k[..., :0]), "--scale", "1")["found"][0]
    assert "the head size is 0" in suggestions(empty) and "inf" not in suggestions(empty)
    found = inspect(save(tmp_path, q=q, k=k), "--scale", "0")["found"][0]
    assert found["score_low"] == found["score_high"] == 0


def test_scores_in_range_are_counted_exactly(tmp_path):
    q, k = healthy(70)
    path = save(tmp_path, q=8 * q, k=k)
    scores = scores_of(8 * q, k)
    for range_ in [0.1, 3.1, 7, 40.5]:
        found = inspect(path, "--range", range_)["found"][0]
        assert found["in_range"] == pytest.approx(np.mean(np.abs(scores) < range_), abs=1e-9), range_


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


def test_quantiles_beyond_all_bins_are_not_called_measured(tmp_path):
    q, k = healthy(42, rows=12)
    q[..., 0], k[..., 0] = 16, 0
    k[..., :2, 0] = -40   # 2 of 12 keys have scores near -80
    found = inspect(save(tmp_path, q=q, k=k))["found"][0]
    assert found["histogram"][0] == 24 and found["score_low"] is None
    assert found["score_high"] > 0
    text = heed_ok("inspect", save(tmp_path, q=q, k=k))
    assert "<-32 .. " in text
    q[..., 0] = -16   # and of scores near 80
    path = save(tmp_path, q=q, k=k)
    found = inspect(path)["found"][0]
    assert found["score_high"] is None and found["score_low"] < 0
    assert " .. >32" in heed_ok("inspect", path)


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
    assert sentences(told()) == "fewer than 90 % of the scores lie in -3 .. 3"
    well = "weights neither uniform nor peaked, scores in range"
    assert sentences(told("--range", "9")) == sentences(told("--in-range", "0")) == well
    assert "in -0.5 .. 0.5" in sentences(told("--range", "0.5"))
    assert "above 0.2: they hardly learn" in sentences(told("--saturation", "0.2", "--saturated", "0.1"))
    assert sentences(told("--saturation", "0.2", "--saturated", "1", "--in-range", "0")) == well
    assert "nearly uniform" in sentences(told("--uniform", "0.01", "--in-range", "0"))
    assert sentences(told("--peaked", "0.99", "--in-range", "0")) == "most rows choose one key or two"
    assert "1 % or more of all weight rests on" in sentences(told("--sink", "0.01"))


def test_thresholds_are_told_to_their_last_digit(tmp_path):
    q, k, v = healthy(38)[0] * 100, healthy(38)[1], draw(48, 1, 1, 40, 8)
    path = save(tmp_path, q=q, k=k, v=v, d_output=v[:, :, ::-1])
    said = sentences(inspect(path, "--saturation", "0.9999999", "--range", "2.00000001", "--vanishing", "0.123456789")["found"][0])
    assert "have a weight above 0.9999999: they" in said      # there is none above 1
    assert "lie in -2.00000001 .. 2.00000001" in said and "less than 0.123456789 of what" in said
    said = sentences(inspect(path, "--in-range", "0.99999999", "--sink", "0.0123456789")["found"][0])
    assert "fewer than 99.999999 % of the scores" in said and "1.23456789 % or more of all weight" in said


def test_beside_a_sink_one_key_has_not_all_the_weight(tmp_path):
    q, k = healthy(60, rows=6)
    head = lambda keys, *flags: inspect(save(tmp_path, q=q, k=k[:, :, :keys]), *flags)["found"][0]
    for keys, flags in [(1, []), (6, ["--window", "0,0"])]:
        found = head(keys, "--sinks", "0", *flags)
        assert found["max_weight"]["mean"] < 0.99
        assert "one key only: it shares the weight with the sink" in sentences(found)
        assert "its weight is 1" in sentences(head(keys, "--sinks=-inf", *flags))   # takes nothing


def test_rows_that_see_no_key_do_not_see_one(tmp_path):
    q, k = healthy(61, rows=4)
    drop = np.array([[False], [True], [False], [True]])
    said = sentences(inspect(save(tmp_path, q=q, k=k[:, :, :1], drop=drop))["found"][0])
    assert "2 of 4 rows see no key" in said and "each other row sees one key only" in said


def test_what_hides_keys_is_what_to_look_at(tmp_path):
    """A mask that nobody gave is not suggested."""
    q, k = healthy(34, rows=6)
    position = "--query-start, the position of the first query"
    window = "--window and --query-start: a query sees the keys around its position"
    for keys, flags, seen, said in ((k, ("--window", "0,0"), "6 of 6 rows see one key only", f"if that is not meant, look at {window}"),
                                    (k, ("--causal", "--query-start", "-9"), "6 of 6 rows see no key", f"if that is not padding, look at {position}"),
                                    (k[:, :, :0], (), "6 of 6 rows see no key", "if that is not padding, look at k: it has no keys")):
        found = inspect(save(tmp_path, q=q, k=keys), *flags)["found"][0]
        assert seen in sentences(found) and said in suggestions(found)
    dropped = inspect(save(tmp_path, q=q, k=k, drop=np.ones((6, 6), bool)))["found"][0]
    assert "drop is true where a query may not look" in suggestions(dropped)


def test_padding_that_is_told_is_no_fault(tmp_path):
    """As without it: neither rows nor keys of padding make a warning, or a sink of a key among two."""
    for size in 1, 2, 6:
        q, k = healthy(83, rows=6)
        told = inspect(save(tmp_path, q=q, k=k), "--query-lengths", size, "--key-lengths", size)["found"][0]
        alone = inspect(save(tmp_path, q=q[:, :, :size], k=k[:, :, :size]))["found"][0]
        assert [remark["sentence"] for remark in told["remarks"]] == [remark["sentence"] for remark in alone["remarks"]]
        assert told["empty_rows"] == 6 - size
    for flag in "--query-lengths", "--key-lengths":
        found = inspect(save(tmp_path, q=q, k=k), flag, "0")["found"][0]
        assert sentences(found) == "all rows or all keys are padding: nothing to judge"
    k[0, 0, [1, 4, 5]] = 0
    seen = inspect(save(tmp_path, q=q, k=k, keep=np.ones((6, 6), bool)), "--query-lengths", "1")["found"][0]
    assert "wrong way round" not in suggestions(seen)
    seen = inspect(save(tmp_path, q=q, k=k), "--key-lengths", "4", "--query-lengths", "4")["found"][0]
    assert "1 key is all zeros" in sentences(seen)


def test_even_weights_rest_on_no_key(tmp_path):
    """Of causal rows the first key has 34 % of the weight at n = 8, and more at fewer."""
    q, k = np.zeros((1, 1, 8, 4), np.float32), draw(84, 1, 1, 8, 4)
    found = inspect(save(tmp_path, q=q, k=k), "--causal")["found"][0]
    assert found["sink_share"] > 0.3 and "rests on" not in sentences(found)
    k[0, 0, 0] = 9
    found = inspect(save(tmp_path, q=q + 1, k=k), "--causal")["found"][0]
    assert "30 % or more of all weight rests on" in sentences(found)


def test_no_mask_is_not_the_wrong_way_round(tmp_path):
    k = 0.1 * draw(85, 1, 1, 50, 8)
    k[:, :, 30] = 8   # all look there
    q = np.ones((1, 1, 4, 8), np.float32)
    assert "mask" not in suggestions(inspect(save(tmp_path, q=q, k=k))["found"][0])
    found = inspect(save(tmp_path, q=q, k=k, keep=np.ones(50, bool)))["found"][0]
    assert "all weight lies on keys after the query" in sentences(found)


def test_where_there_is_a_cap_a_smaller_one_is_suggested(tmp_path):
    q, k = (30 * x for x in healthy(86, rows=12))
    said = suggestions(inspect(save(tmp_path, q=q, k=k), "--softcap", "50")["found"][0])
    assert "or a smaller cap (--softcap)" in said and "cap the scores" not in said


def test_even_weights_have_all_the_entropy_there_can_be(tmp_path):
    q, k = np.zeros((1, 1, 3, 8), np.float32), healthy(62, size=8, rows=3)[1]
    found = inspect(save(tmp_path, q=q, k=k), "--causal")["found"][0]
    assert "(entropy 100.0 % of" in sentences(found)       # row 0, which has no choice, is none of them
    assert abs(found["entropy_share"]["mean"] - 2 / 3) < 1e-6
    found = inspect(save(tmp_path, q=q, k=k[:, :, :2]), "--sinks", "-0.332")["found"][0]
    assert found["entropy_share"]["mean"] > 1              # of weights that add up to 0.74
    assert "nearly uniform: the head averages" in sentences(found)


def test_the_same_values_beside_a_sink_do_not_fix_the_output(tmp_path):
    q, k = healthy(63, rows=6)
    v, g = np.ones((1, 1, 6, 4), np.float32), draw(65, 1, 1, 6, 4)
    path = save(tmp_path, q=q, k=k, v=v, d_output=g)
    assert "only what the sink takes changes the output" in sentences(inspect(path, "--sinks", "0")["found"][0])
    assert "whatever the weights, the output is that" in sentences(inspect(path)["found"][0])


def test_of_a_nan_the_bias_and_the_sink_are_suspected_too(tmp_path):
    q, k = healthy(66, rows=6)
    bias = np.zeros((6, 6), np.float32)
    bias[2, 3] = np.nan
    assert "in q, k and the bias" in suggestions(inspect(save(tmp_path, q=q, k=k, bias=bias))["found"][0])
    for sink, word in [("nan", "NaN"), ("inf", "+infinity")]:
        found = inspect(save(tmp_path, q=q, k=k), "--sinks", sink)["found"][0]
        assert f"6 of 6 rows are NaN: the sink is {word}" in sentences(found)
        assert "(--sinks)" in suggestions(found) and "in q and k" not in suggestions(found)


def test_a_temperature_is_told_where_the_scale_alone_sets_it(tmp_path):
    q, k = healthy(67, rows=16)
    told = lambda *flags, **more: suggestions(inspect(save(tmp_path, q=q, k=k, **more), "--normalize-qk", *flags)["found"][0])
    hides_nothing_but = np.where(np.tri(16, dtype=bool), 0, -np.inf).astype(np.float32)
    assert "scores would vary by 1" in told() and "scores would vary by 1" in told(bias=hides_nothing_but)
    for flags, more in [(["--alibi", "20"], {}), (["--softcap", "0.01"], {}), ([], {"bias": 9 * draw(69, 16, 16)})]:
        said = told(*flags, **more)
        assert said and "scores would vary by 1" not in said and "--normalize-qk" not in said


def test_padding_does_not_hide_that_keys_are_equal_or_queries_zeros(tmp_path):
    q, k = healthy(70, size=8, rows=12)
    equal, zero = np.ones_like(k), np.zeros_like(q)
    equal[:, :, 6:], zero[:, :, 6:] = k[:, :, 6:], q[:, :, 6:]
    lengths = ["--key-lengths", "6", "--query-lengths", "6"]
    assert "all keys are equal" in suggestions(inspect(save(tmp_path, q=q, k=equal), *lengths)["found"][0])
    assert "all queries are zeros" in suggestions(inspect(save(tmp_path, q=zero, k=k), *lengths)["found"][0])


def test_a_negative_scale_may_be_too_large_too(tmp_path):
    q, k = healthy(72, size=8, rows=30)
    for scale in ("3", "-3"):
        said = suggestions(inspect(save(tmp_path, q=q, k=k), f"--scale={scale}", "--saturated", "0.1")["found"][0])
        sign = scale.removesuffix("3")   # kept: another one would turn all preferences round
        assert f"use the scale {sign}1/sqrt(8) = {sign}0.354 instead of {scale}" in said
    said = suggestions(inspect(save(tmp_path, q=q, k=k), "--scale=-0")["found"][0])
    assert "use the scale 1/sqrt(8) = 0.354 instead of 0" in said


def test_rows_without_a_score_have_chosen_nothing(tmp_path):
    """All scores that they see are -infinity: no key has weight."""
    (q, k), v = healthy(73, rows=9), draw(75, 1, 1, 9, 8)
    q[..., 0], k[..., 0] = 1, -np.inf
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=v))["found"][0]
    assert found["peaked"] == 0 and found["max_weight"]["mean"] == 0 and found["empty_rows"] == found["nan_rows"] == 0
    assert "9 of 9 rows have no score but -infinity: no key has weight there, and the output is 0" in sentences(found)
    assert "choose one key or two" not in sentences(found)
    assert {remark["suggestion"] for remark in found["remarks"]} == {"look for infinity and huge numbers in q and k", ""}
    for sink in ("0", "-inf"):   # which is not to blame
        found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=v), f"--sinks={sink}")["found"][0]
        assert "9 of 9 rows have no score but -infinity" in sentences(found) and "(--sinks)" not in suggestions(found)


def test_few_rows_without_a_score_are_not_to_blame_for_all(tmp_path):
    q, k, v = 30 * draw(80, 1, 1, 9, 8), draw(81, 1, 1, 9, 8), draw(82, 1, 1, 9, 8)
    q[..., 0], k[..., 0], k[0, 0, 0, 0] = 1, 1, -np.inf
    drop = np.zeros((9, 9), bool)
    drop[2, 1:], drop[np.arange(9) != 2, 0] = True, True
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=v, drop=drop))["found"][0]
    assert "1 of 9 rows has no score but -infinity" in sentences(found) and "next to no gradient" in sentences(found)
    blamed = [remark["suggestion"] for remark in found["remarks"] if "next to no gradient" in remark["sentence"]]
    assert len(blamed) == 1 and "normalise queries and keys" in blamed[0]


def test_a_huge_scale_is_to_blame_for_infinite_scores(tmp_path):
    q, k = np.ones((1, 1, 3, 4), np.float32), np.ones((1, 1, 5, 4), np.float32)
    for sign, said in ((1, "3 of 3 rows are NaN"), (-1, "3 of 3 rows have no score but -infinity")):
        found = inspect(save(tmp_path, q=sign * q, k=k), "--scale", "2e38")["found"][0]
        assert said in sentences(found) and "use the scale 1/sqrt(4) = 0.5 instead of 2e+38" in suggestions(found)
        for much in np.inf, 1e20:   # whose products no scale makes finite
            found = inspect(save(tmp_path, q=sign * q * min(much, 1e20), k=much * k), "--scale", "2")["found"][0]
            assert said in sentences(found) and "infinity and huge numbers in q and k" in suggestions(found)
        k[0, 0, 3:] = np.inf   # of padding
        found = inspect(save(tmp_path, q=sign * q, k=k), "--scale", "2e38", "--key-lengths", "3")["found"][0]
        assert "use the scale 1/sqrt(4)" in suggestions(found)
        k[0, 0, 3:] = 1


def test_a_slope_that_is_no_number_is_named(tmp_path):
    q, k = healthy(75, rows=9)
    found = inspect(save(tmp_path, q=q, k=k), "--alibi", "inf", "--query-start", "100")["found"][0]
    assert "9 of 9 rows have no score but -infinity" in sentences(found)
    assert "give it a finite slope (--alibi)" in suggestions(found) and "in q and k" not in suggestions(found)
    found = inspect(save(tmp_path, q=q, k=k), "--alibi", "3e38", "--query-start", "100")["found"][0]
    assert "give it a smaller slope (--alibi)" in suggestions(found) and "in q and k" not in suggestions(found)
    for slope in ("inf", "nan"):
        assert "give it a finite slope (--alibi)" in suggestions(inspect(save(tmp_path, q=q, k=k), "--alibi", slope)["found"][0])


def test_of_a_sink_that_takes_all_the_sink_is_to_blame(tmp_path):
    (q, k), v = healthy(76, rows=9), draw(78, 1, 1, 9, 8)
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=v), "--sinks", "1e30")["found"][0]
    assert "takes more than 99 % of the weight" in sentences(found) and "next to no gradient" in sentences(found)
    assert {remark["suggestion"] for remark in found["remarks"]} - {""} == {
        "compare the sink (--sinks) with the scores: it should not be far above them"}
