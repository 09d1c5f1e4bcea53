"""heed study training: what it says is what its tables say, and the textbook's claim is among it."""

import json
import math

import pytest

from cli_support import SANITIZED, heed_ok

pytestmark = pytest.mark.skipif(SANITIZED, reason="training takes minutes under AddressSanitizer")


@pytest.fixture(scope="module")
def study():
    return json.loads(heed_ok("study", "training", "--json", limit=600))["training"]


def runs_of(study):
    return {(row["d_k"], row["scores"]): row for row in study["tables"]["runs"]}


def test_scaled_scores_learn_and_unscaled_ones_do_not(study):
    runs = runs_of(study)
    assert sorted(runs) == sorted((d, scores) for d in (16, 64, 256) for scores in ("scaled", "unscaled"))
    guessing = math.log(study["vocabulary"])
    for (_, scores), run in runs.items():
        if scores == "scaled":
            assert run["loss"] < 1 and run["accuracy"] > 0.7 and run["saturation_at_first"] < 0.1
        else:
            assert 0.8 * guessing < run["loss"] and run["saturation_at_first"] > 0.3


def test_the_table_of_runs_is_made_of_the_steps(study):
    for (d, scores), run in runs_of(study).items():
        steps = [row for row in study["tables"]["by_step"] if (row["d_k"], row["scores"]) == (d, scores)]
        assert [row["step"] for row in steps] == list(range(0, study["steps"] + 1, 40))
        assert steps[0]["saturation"] == run["saturation_at_first"]
        assert [steps[-1][name] for name in ("loss", "accuracy")] == [run["loss"], run["accuracy"]]
        below = [row["step"] for row in steps if row["loss"] < 1]
        assert run["below_1_at_step"] == (below[0] if below else None)


def test_the_same_seed_trains_the_same_model(study):
    again = json.loads(heed_ok("study", "training", "--json", env={"HEED_NUM_THREADS": "1"}, limit=600))["training"]
    assert again["tables"] == study["tables"]
