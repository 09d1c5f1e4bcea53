"""heed.record's tokens: refused where they are no strings, and told of where they name nothing. Models of transformers are
recorded in tests/peers/test_record.py; here stands in what only has the names that a record asks for."""

import re
import warnings

import numpy as np
import pytest

import heed
from heed._record import Kept

LETTERS = list("abcdefghijklmn")


class Model:
    """What a record is made of, without a layer."""

    set_attn_implementation = None

    def named_modules(self):
        return []


def call(keys, entries):
    """Of a layer, as far as tokens go."""
    return heed.LayerCall(*[None] * len(heed.LayerCall._fields))._replace(keys=keys, lse=np.zeros((entries, 1, keys)))


@pytest.mark.parametrize("tokens, words", [
    (["a"] * 3, "^record: tokens has 3 strings, which name nothing; expected one for each key of a call: 13, 14$"),
    ([], "^record: tokens has 0 strings, which name nothing"),
    ([LETTERS, ["a"]], r"^record: tokens\[1\] has 1 string, which name nothing; expected one for each key of a call"),
    ([LETTERS] * 9, "^record: tokens has lists for 9 entries; expected at most 3, those of the batch$"),
    (LETTERS, None), (tuple(LETTERS), None), (np.array(LETTERS), None), ([LETTERS, tuple(LETTERS[1:])], None), (None, None)],
    ids=str)
def test_tokens_that_name_nothing_are_told_of_when_the_block_ends(tokens, words):
    """A record of more than one call: of a prompt, or of an encoder and what looks at it."""
    seen = heed.record(Model(), tokens=tokens)
    seen.calls += [call(13, 3), call(14, 3)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seen.__exit__(None, None, None)
    assert len(told) == (words is not None) and (words is None or re.search(words, str(told[0].message)))
    assert words is not None or tokens is None or seen.labels(call(14, 3), 0) == LETTERS


def test_nothing_is_told_of_tokens_where_nothing_was_seen_or_an_exception_passes():
    for calls, error in (([], None), ([call(13, 3)], ValueError)):
        seen = heed.record(Model(), tokens=["a"])
        seen.calls += calls
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            seen.__exit__(error, error and error(), None)


@pytest.mark.parametrize("given, kind, words", [
    ({"tokens": 3}, TypeError, "^record: tokens is of type int; expected a list of strings"),
    ({"tokens": "abc"}, TypeError, "^record: tokens is of type str; expected a list of strings"),
    ({"tokens": ["a", 3]}, TypeError, r"^record: tokens\[1\] is of type int; expected a string"),
    ({"tokens": [["a"], "b"]}, TypeError, r"^record: tokens\[1\] is of type str; expected a list of strings"),
    ({"tokens": [["a", None]]}, TypeError, r"^record: tokens\[0\]\[1\] is of type NoneType; expected a string"),
    ({"tokens": ["a", "\udce9"]}, ValueError, r"^record: tokens\[1\] has '\\udce9' at 0; expected text that UTF-8 can hold"),
    ({"tokens": [["a"], ["b\ud800"]]}, ValueError, r"^record: tokens\[1\]\[0\] has '\\ud800' at 1; expected text that UTF-8"),
    ({"tokenizer": 5}, TypeError, "^record: tokenizer is of type int; expected one of transformers"),
    ({"tokenizer": LETTERS}, TypeError, "^record: tokenizer is of type list; expected one of transformers"),
    ({"tokens": ["a"], "tokenizer": 1}, ValueError, "^record: tokens and tokenizer are both given; expected one of them")])
def test_wrong_tokens_are_refused(given, kind, words):
    with pytest.raises(kind, match=words):
        heed.record(Model(), **given)


def test_a_page_has_a_name():
    with pytest.raises(ValueError, match="^report: path is '.html'; expected a name before .html"):
        heed.record(Model()).report(".html")


def test_a_page_has_the_models_name_and_its_layers(tmp_path):
    seen = heed.record(Model(), tokens=LETTERS)
    q, k = np.random.default_rng(5).standard_normal((2, 2, 14, 8)).astype(np.float32)
    kept = Kept(q, k, None, {"causal": True})
    seen.calls += [call(14, 1)._replace(name=name, layer=i, start=0, across=False, kept=kept) for i, name in enumerate(["first", "second"])]
    seen.longest = {"first": 0, "second": 1}
    (names, page), = seen.inspections()
    assert names == ["first", "second"] and page.text.startswith("Model: 2 layers x 2 heads, 14 queries")
    assert seen.report(tmp_path / "page.html") == [tmp_path / "page.html"]
    assert "<title>heed inspect: Model</title>" in (tmp_path / "page.html").read_text()
