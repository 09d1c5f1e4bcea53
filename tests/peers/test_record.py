"""heed.record: numbers against eager attention's matrices, the same bits, nothing left behind, no n x n memory."""

import copy
import json
import pickle
import re
import sys

import numpy as np
import pytest
import torch
import transformers
from test_transformers import MINILM, SENTENCES, batch, decoder, one_thread  # noqa: F401

import heed
import heed._record


@pytest.fixture(scope="module")
def minilm():
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    model = transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager").eval()
    return model, tokenizer, tokenizer(SENTENCES, padding=True, return_tensors="pt")


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert heed._record.watchers == ()


def statistics_of(weights):
    """Entropy and largest weight of matrices."""
    p = weights.double().numpy()
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1), p.max(-1)


def test_numbers_are_those_of_the_matrices(minilm):
    model, tokenizer, inputs = minilm
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions
        with heed.record(model, tokenizer=tokenizer, cells=7) as seen:
            model(**inputs)
    assert [call.layer for call in seen.calls] == list(range(6)) and model.config._attn_implementation == "eager"
    real = inputs["attention_mask"].bool().numpy()
    for call, p in zip(seen.calls, weights):
        assert np.array_equal(call.tokens, real)
        rows = np.broadcast_to(real[:, None], call.lse.shape)
        entropy, largest = statistics_of(p)
        np.testing.assert_allclose(call.statistics.entropy[rows], entropy[rows], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(call.statistics.max_weight[rows], largest[rows], rtol=1e-4, atol=1e-4)
        tokens = (p.numpy() * real[:, None, :, None])
        np.testing.assert_allclose(call.column_sums, tokens.sum(2), rtol=1e-4, atol=1e-4)
        assert call.mean_map.shape == (3, 12, 7, 7)
        at = np.arange(real.shape[1]) * 7 // real.shape[1]
        inside = (at == np.arange(7)[:, None]) / np.bincount(at)[:, None]
        np.testing.assert_allclose(call.mean_map, inside @ tokens @ inside.T, rtol=1e-4, atol=1e-6)
        whole = real.all(-1)   # all keys are visible there
        assert whole.any()
        np.testing.assert_allclose(call.lift_map[whole], np.log2(real.shape[1] * call.mean_map[whole]), rtol=1e-4, atol=1e-4)
    frame = seen.to_dataframe()
    assert len(frame) == 6 * 3 * 12 and (frame["rows"] == np.repeat(real.sum(-1), 12).tolist() * 6).all()
    entropy = np.array([statistics_of(p)[0] for p in weights])
    expected = (entropy * real[:, None]).sum(-1) / real.sum(-1)[:, None]
    np.testing.assert_allclose(frame["entropy"], expected.ravel(), rtol=1e-4, atol=1e-4)
    assert set(frame["sink_token"]) <= {"[CLS]", "[SEP]", *tokenizer.convert_ids_to_tokens(inputs["input_ids"].unique())}
    means = frame.groupby(["layer", "sample", "head"], sort=False).first()
    for call in seen.calls:
        for sample, head in np.ndindex(3, 12):
            told, one = means.loc[(call.layer, sample, head)], {name: x[sample, head][real[sample]] for name, x in call.statistics._asdict().items()}
            want = {"entropy_share": heed.entropy_share(one["entropy"], one["visible_keys"]).mean(), "max_weight": one["max_weight"].mean(),
                    "saturated": (one["max_weight"] > 0.99).mean(), "max_score": one["max_score"].max(), "score_mean": one["score_mean"].mean(),
                    "score_deviation": np.sqrt(one["score_variance"]).mean(), "jacobian_norm": one["jacobian_norm"].mean()}
            np.testing.assert_allclose([told[name] for name in want], [*want.values()], rtol=1e-5, atol=1e-7)
    rows = seen.to_dataframe("row")
    for name in ("lse", *heed.RowStatistics._fields):
        want = [x[sample, head][real[sample]] for x in ((call.lse if name == "lse" else getattr(call.statistics, name)) for call in seen.calls)
                for sample, head in np.ndindex(3, 12)]
        assert np.array_equal(rows[name].to_numpy(), np.concatenate(want))
    labels = [tokenizer.convert_ids_to_tokens(ids) for ids in inputs["input_ids"]]
    assert list(rows["max_weight_token"]) == [labels[sample][key] for sample, key in zip(rows["sample"], rows["max_weight_key"])]
    assert repr(seen) == "heed.Record of BertModel: 6 layers, 6 calls of attention"
    assert len(rows) == 6 * 12 * real.sum() and list(rows["token"][:4]) == ["[CLS]", "the", "animal", "didn"]


def test_the_page_tells_the_entry_without_its_padding(minilm, tmp_path):
    model, tokenizer, inputs = minilm
    with torch.no_grad(), heed.record(model, tokenizer=tokenizer, sample=1) as seen:
        model(**inputs)
    assert seen.report(tmp_path / "attention.html") == [tmp_path / "attention.html"]
    [(names, shown)] = seen.inspections()
    assert len(names) == 6 and shown.tokens == ["[CLS]", "hello", "!", "[SEP]"]
    frame = seen.to_dataframe()
    mine = frame[frame["sample"] == 1]
    np.testing.assert_allclose([one["entropy"]["mean"] for one in shown.found], mine["entropy"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([one["sink_share"] for one in shown.found], mine["sink_share"], rtol=1e-5)
    page = (tmp_path / "attention.html").read_text()
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.S)[1])
    assert len(data["found"]) == 72 and "hello" in page and "encoder.layer.0..5.attention.self" in page
    assert "image/svg+xml" in seen._repr_mimebundle_()


def test_the_same_bits_inside_and_outside():
    for name in ("Llama", "GptOss", "Gemma2"):
        model, inputs = decoder(name), batch()
        model.set_attn_implementation("heed")
        with torch.no_grad():
            outside = model(**inputs).logits
            with heed.record(model):
                inside = model(**inputs).logits
        assert torch.equal(inside, outside) and model.config._attn_implementation == "heed"
    gradients = []
    model = decoder("Llama")
    model.set_attn_implementation("heed")
    for record in (heed.record(model), None):
        model.zero_grad()
        if record:
            with record:
                model(**inputs).logits.square().sum().backward()
        else:
            model(**inputs).logits.square().sum().backward()
        gradients.append(torch.cat([x.grad.flatten() for x in model.parameters()]))
    assert torch.equal(*gradients)


def test_generation_and_pages_for_each_kind_of_layer(tmp_path):
    model, inputs = decoder("Gemma2"), batch()

    class Names:
        def convert_ids_to_tokens(self, ids):
            return [f"\u0120t{i}" for i in ids]
    with heed.record(model, tokenizer=Names(), sample=1) as seen:
        written = model.generate(**inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False, disable_compile=True)
    assert len(seen.calls) == 3 * 4 and {call.call for call in seen.calls} == {0, 1, 2, 3}
    last = seen.calls[-2]  # the layer that sees all
    assert last.lse.shape[-1] == 1 and last.start == 16
    assert seen.labels(last, 1) == [f"t{i}" for i in written[1, :17].tolist()]
    pages = seen.report(tmp_path / "a.html")
    assert [page.name for page in pages] == ["a.html", "a_2.html"]
    frame = seen.to_dataframe()
    for names, shown in seen.inspections():
        assert shown.tokens == [f"t{i}" for i in inputs["input_ids"][1, 5:].tolist()]
        mine = frame[(frame["sample"] == 1) & (frame["call"] == 0) & frame["name"].isin(names)]
        assert set(mine["rows"]) == {9}
        for found, column in (("entropy", "entropy"), ("max_weight", "max_weight")):
            np.testing.assert_allclose([one[found]["mean"] for one in shown.found], mine[column], rtol=1e-5)
        assert ("window" in shown._options) == (names != ["model.layers.1.self_attn"])


def held(seen) -> int:
    """Bytes of all arrays that a record holds, each counted once."""
    found = {}

    def add(x):
        if isinstance(x, np.ndarray):
            base = x if x.base is None else x.base
            found[id(base)] = base.nbytes if isinstance(base, np.ndarray) else x.nbytes
        elif isinstance(x, (tuple, dict)):
            for part in x.values() if isinstance(x, dict) else x:
                add(part)
    for call in seen.calls:
        add(call)
    return sum(found.values())


def test_memory_of_generation_grows_with_the_tokens():
    """Not with their square: 100 more steps take what 100 steps take."""
    class Names:
        def convert_ids_to_tokens(self, ids):
            assert len(ids) == 1, "lines of to_dataframe ask for single names"
            return [f"t{i}" for i in ids]
    model, inputs = decoder("Llama"), batch()
    prompt = {name: x[:2] for name, x in inputs.items()}
    bytes_held = {}
    for steps in (1, 100, 200):
        with heed.record(model, tokenizer=Names(), sample=1) as seen:
            written = model.generate(**prompt, max_new_tokens=steps, min_new_tokens=steps, do_sample=False,
                                     disable_compile=True).numpy()
        bytes_held[steps] = held(seen)
        layers = len({call.layer for call in seen.calls})
        assert [(call.layer, call.call) for call in seen.calls] == [(i, n) for n in range(steps) for i in range(layers)]
        assert [call.call for call in seen.calls if call.kept is not None] == [0] * layers
        for call in seen.calls[::97]:  # rooms that grew left what was seen as it was
            assert np.array_equal(call.ids, written[:, :call.keys])
    first, last = seen.calls[0], seen.calls[-1]
    assert first.column_sums.shape[-1] == first.keys and last.column_sums is None and last.keys > 200
    pooled = last.mean_map[:, :, 0]
    share = last.sink_share
    assert (share > 0).all() and (share >= pooled.max(-1) * (1 - 1e-5)).all()  # a row's weights sum to 1
    assert np.array_equal(last.sink_key, last.statistics.max_weight_key[..., 0])
    np.testing.assert_allclose(share, last.statistics.max_weight[..., 0], rtol=1e-5)
    line = seen.to_dataframe().iloc[-1]
    assert line["sink_token"] == f"t{written[-1, line['sink_key']]}"
    # ids' room may be twice what is in it.
    assert bytes_held[200] - bytes_held[100] < 1.1 * (bytes_held[100] - bytes_held[1]), bytes_held


def test_report_tells_the_call_with_the_most_rows():
    """Also where it is neither the first nor the last; q and k of the others are let go."""
    model, inputs = decoder("Llama"), batch()
    lengths = (5, 9, 7, 9)
    with torch.no_grad(), heed.record(model) as seen:
        for length in lengths:
            model(inputs["input_ids"][:1, :length])
    assert {call.call for call in seen.calls if call.kept is not None} == {1}
    [(_, shown)] = seen.inspections()
    longest = [call for call in seen.calls if call.call == 1]
    np.testing.assert_allclose(shown.statistics.entropy, np.stack([call.statistics.entropy[0] for call in longest]),
                               rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_are_computed_again_are_recorded_once(reentrant):
    model, inputs = decoder("Llama").train(), batch()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    with heed.record(model) as seen:
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert [(call.layer, call.call) for call in seen.calls] == [(0, 0), (1, 0), (2, 0)]


def test_an_exception_leaves_nothing_behind(minilm, monkeypatch):
    model, _, inputs = minilm
    def hooks():
        return [len(hooks) for part in model.modules() for hooks in (part._forward_pre_hooks, part._forward_hooks)]
    before = hooks()
    with pytest.raises(KeyError):
        with heed.record(model) as seen:
            model(**inputs)
            raise KeyError
    assert model.config._attn_implementation == "eager" and hooks() == before
    assert len(seen.calls) == 6
    monkeypatch.setattr(type(model), "register_forward_pre_hook", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        heed.record(model).__enter__()
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
                         ids=["deepcopy", "pickle"])
def test_a_copy_of_the_model_is_another_one(copied):
    model, inputs = decoder("Llama"), batch()
    with torch.no_grad(), heed.record(model) as seen:
        expected = model(**inputs).logits
        other = copied(model)
        assert torch.equal(other(**inputs).logits, expected)
        assert len(seen.calls) == 3  # those of the model's own call
        model(**inputs)
    assert [(call.layer, call.call) for call in seen.calls] == [(i, n) for n in (0, 1) for i in range(3)]
    with torch.no_grad():
        assert torch.equal(other(**inputs).logits, expected)


def test_records_see_their_own_model():
    one, other = decoder("Llama"), decoder("Gemma2")
    with torch.no_grad(), heed.record(one) as of_one, heed.record(other) as of_other, heed.record(one) as again:
        one(**batch())
        other(**batch(7, 2))
    assert len(of_one.calls) == len(again.calls) == len(of_other.calls) == 3
    assert of_other.calls[0].lse.shape[-1] == 7 and of_one.calls[0].lse.shape[-1] == 14
    assert one.config._attn_implementation == other.config._attn_implementation == "eager"


def test_half_precision(tmp_path):
    model = decoder("Llama").bfloat16()
    with torch.no_grad(), heed.record(model, sample=1) as seen:
        model(**batch())
    assert seen.report(tmp_path / "x.html")[0].is_file() and seen.calls[0].lse.dtype == np.float32
    [(_, shown)] = seen.inspections()
    np.testing.assert_allclose(shown.lse[0], seen.calls[0].lse[1, :, 5:], rtol=1e-5, atol=1e-5)


def test_half_precision_with_a_mask_that_is_added():
    model, inputs = decoder("Llama").bfloat16(), batch()
    length = inputs["input_ids"].shape[1]
    hidden = torch.full((length, length), torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16).triu(1)
    inputs["attention_mask"] = hidden.expand(len(inputs["input_ids"]), 1, -1, -1)
    with torch.no_grad(), heed.record(model) as seen:
        model(**inputs)
    [(_, shown)] = seen.inspections()
    np.testing.assert_allclose(shown.lse[0], seen.calls[0].lse[0], rtol=1e-5, atol=1e-5)


def test_a_boolean_mask_of_its_own():
    model, inputs = decoder("Llama"), batch()
    length = inputs["input_ids"].shape[1]
    inputs["attention_mask"] = torch.ones(length, length, dtype=torch.bool).tril().expand(len(inputs["input_ids"]), 1, -1, -1)
    with torch.no_grad(), heed.record(model) as seen:
        model(**inputs)
    [(_, shown)] = seen.inspections()
    np.testing.assert_allclose(shown.lse[0], seen.calls[0].lse[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", [(5, 5), (4, 5, 5), (1, 4, 5, 5), (2, 1, 5, 5)])
def test_masks_and_biases_of_fewer_axes(axes):
    """Right-aligned, as the call takes them: the page is of the same call."""
    model, made = decoder("Llama"), torch.Generator().manual_seed(6)
    q, k = (torch.randn(2, heads, 5, 16, generator=made) for heads in (4, 2))
    for given in ({"position_bias": torch.randn(axes, generator=made)}, {"attention_mask": torch.rand(axes, generator=made) > 0.3}):
        with torch.no_grad(), heed.record(model, sample=1) as seen:
            heed.transformers.attention_forward(model.model.layers[0].self_attn, q, k, k, **{"attention_mask": None} | given)
        [(_, shown)] = seen.inspections()
        np.testing.assert_allclose(shown.statistics.entropy[0], seen.calls[0].statistics.entropy[1], rtol=1e-5, atol=1e-5)


def test_a_mask_that_is_written_over_later():
    """As that of a loop which generates into room made beforehand."""
    model, inputs = decoder("Llama"), batch()
    mask = inputs["attention_mask"].bool()
    length = mask.shape[1]
    mask[0, :2] = False
    tokens = [str(i) for i in range(length)]
    with torch.no_grad(), heed.record(model, tokens=[tokens] * len(mask)) as seen:
        model(input_ids=inputs["input_ids"], attention_mask=mask)
    mask[0] = torch.arange(length) < 3
    assert seen.inspections()[0][1].tokens == tokens[2:]


def test_padding_between_tokens_and_a_window():
    model, inputs = decoder("Mistral"), batch()
    inputs["attention_mask"][0, 3:5] = 0
    with torch.no_grad(), heed.record(model) as seen:
        model(**inputs)
    assert len(seen.to_dataframe()) == 3 * 3 * 4
    with pytest.raises(ValueError, match="no entry's q and k were kept: there is padding between tokens and a window"):
        seen.report("x.html")


def test_layers_that_no_page_has_are_told():
    model, inputs = decoder("Gemma2"), batch()   # windows in every other layer
    inputs["attention_mask"][0, 3:5] = 0
    with torch.no_grad(), heed.record(model) as seen:
        model(**inputs)
    whole = {call.name for call in seen.calls if not isinstance(call.kept, str)}
    with pytest.warns(UserWarning, match="^report: no page has .*: there is padding between tokens and a window") as told:
        shown = seen.inspections()
    assert {name for names, _ in shown for name in names} == whole and 0 < len(whole) == len(seen.layers) - len(told)


def test_tokens_given_by_hand():
    model = decoder("Llama")
    with torch.no_grad(), heed.record(model, tokens=list("abcdefghijklmn")) as seen:
        model(input_ids=batch()["input_ids"])
    assert seen.inspections()[0][1].tokens == list("abcdefghijklmn")
    assert seen.labels(seen.calls[0], 1) is None


def test_refusals(monkeypatch):
    with pytest.raises(TypeError, match="model is of type Linear; expected a model of transformers"):
        heed.record(torch.nn.Linear(2, 2))
    model = decoder("Llama")
    with heed.record(model) as seen:
        pass
    with pytest.raises(ValueError, match="no call of attention was seen"):
        seen.report("x.html")
    before, inputs = model.config._attn_implementation, batch()
    entries = len(inputs["input_ids"])
    with pytest.raises(ValueError, match=f"^record: sample is {entries}, and the batch has {entries} entries; expected one of them, "
                       "or None$"):
        with torch.no_grad(), heed.record(model, sample=entries):
            model(**inputs)
    assert model.config._attn_implementation == before
    with pytest.raises(RuntimeError, match="^record: the block has begun already; expected a record for each block$"):
        with heed.record(model) as seen, seen:
            pass
    rows = model.get_input_embeddings()(inputs["input_ids"]).detach()
    with pytest.raises(RuntimeError, match="record: the model is being compiled; expected one that runs as it is"):
        with torch.no_grad(), heed.record(model):  # Dynamo tells of it in its own error
            torch.compile(model, backend="eager", fullgraph=True)(inputs_embeds=rows)
    assert model.config._attn_implementation == before
    longformer = transformers.LongformerModel(transformers.LongformerConfig(
        vocab_size=16, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, attention_window=4))
    with pytest.raises(ValueError, match="^record: LongformerModel does not let its attention be chosen; expected a model that"):
        with heed.record(longformer):
            pass
    with pytest.raises(ValueError, match="^record: sample is -1; expected 0 or more"):
        heed.record(model, sample=-1)
    with pytest.raises(TypeError, match="^record: cells is of type str; expected an integer"):
        heed.record(model, cells="x")
    with torch.no_grad(), heed.record(model, sample=None) as seen:
        model(**batch())
    with pytest.raises(ValueError, match="sample is None; expected one of the batch"):
        seen.report("x.html")
    with pytest.raises(ValueError, match="x.pdf ends in .pdf; expected .html"):
        seen.report("x.pdf")
    with pytest.raises(ValueError, match="^to_dataframe: per is 'layer'; expected 'head' or 'row'"):
        seen.to_dataframe("layer")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        seen.to_dataframe()


def resident(name) -> int:
    """Bytes, of /proc/self/status."""
    return int(re.search(rf"{name}:\s+(\d+) kB", open("/proc/self/status").read())[1]) * 1024


@pytest.mark.parametrize("padding", [0, 100])
def test_no_memory_of_queries_times_keys(padding, tmp_path):
    """Not one byte for each pair, page and padding included."""
    length = 8192
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=16, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=2, max_position_embeddings=length, pad_token_id=0)
    model = transformers.LlamaModel._from_config(config).eval()

    def look(length):
        inputs = batch(length, padding)
        with torch.no_grad(), heed.record(model) as seen:
            model(**{name: x[:2] % 16 for name, x in inputs.items()})
        return seen
    look(256).report(tmp_path / "small.html")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before = resident("VmRSS")
    seen = look(length)
    seen.report(tmp_path / "large.html")
    grown = resident("VmHWM") - before
    print(f"heed.record: {grown / 2**20:.1f} MiB at {length} tokens, a byte for each pair is {length**2 / 2**20:.0f} MiB")
    assert grown < length**2
