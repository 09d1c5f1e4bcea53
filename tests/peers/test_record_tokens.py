"""heed.record's tokens: which rows are padding, what keys are called and where queries stand, in models of texts, of pictures, and of both;
by masks of any kind, over caches, and where parts of a model are called by themselves."""

import numpy as np
import pytest
import torch
import transformers
from test_record import nothing_is_left, statistics_of  # noqa: F401
from test_transformers import batch, decoder, one_thread  # noqa: F401

import heed


class Names:
    """A tokenizer."""

    def convert_ids_to_tokens(self, ids):
        return [f"t{i}" for i in ids]


ONE, OTHER = torch.tensor([[10, 11, 12, 13]]), torch.tensor([[20, 21, 22, 23]])
PICTURES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 16, "patch_size": 8}
TEXTS = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def clip(kind="CLIP"):
    torch.manual_seed(5)
    return getattr(transformers, kind + "Model")(getattr(transformers, kind + "Config")(text_config=TEXTS, vision_config=PICTURES)).eval()


def named(ids):
    return [f"t{i}" for i in ids[0].tolist()]


@pytest.mark.parametrize("kind", ["Bert", "Llama", "T5Encoder", "LayoutLM", "Llama4Text"])
@pytest.mark.parametrize("padding", ["left", "right", "both", "between"])
def test_no_sum_counts_a_row_of_padding(kind, padding):
    """Wherever padding stands, in any entry of the batch; by a rule, by a mask that the model adds (LayoutLM), and by
    transformers' matrix in some of the layers (Llama4)."""
    few, all_ = [1, 1, 1, 0, 0, 0], [1] * 6
    mask = torch.tensor({"left": [few[::-1], all_], "right": [few, all_], "both": [few[::-1], few], "between": [[1, 0, 1, 1, 0, 1], few]}[padding])
    torch.manual_seed(3)
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if kind == "Llama4Text":
        sizes |= {"num_key_value_heads": 2, "head_dim": 8, "intermediate_size_mlp": 32, "num_local_experts": 2, "attention_chunk_size": 4,
                  "pad_token_id": 0, "layer_types": ["chunked_attention", "full_attention"]}
    made = getattr(transformers, kind + "Model")(getattr(transformers, kind.removesuffix("Encoder") + "Config")(**sizes))
    made.set_attn_implementation("eager")
    inputs = {"input_ids": torch.randint(1, 50, (2, 6)), "attention_mask": mask}
    with torch.no_grad():
        weights = made.eval()(**inputs, output_attentions=True).attentions
        with heed.record(made, sample=0) as seen:
            made(**inputs)
    of_tokens = [p.numpy() * mask.numpy()[:, None, :, None] for p in weights]
    sums = np.concatenate([p.sum(2).reshape(4, 6) for p in of_tokens])
    frame = seen.to_dataframe()
    assert np.array_equal(frame["sink_key"], sums.argmax(-1))
    np.testing.assert_allclose(frame["sink_share"], sums.max(-1) / sums.sum(-1), rtol=1e-4)
    assert np.array_equal(frame["rows"], np.tile(np.repeat(mask.sum(-1).numpy(), 2), 2))
    entropy = np.concatenate([statistics_of(torch.tensor(p))[0].sum(-1).ravel() for p in of_tokens])
    np.testing.assert_allclose(frame["entropy"] * frame["rows"], entropy, rtol=1e-4, atol=1e-6)
    for names, shown in seen.inspections():
        mine = frame[(frame["sample"] == 0) & frame["name"].isin(names)]
        np.testing.assert_allclose([one["entropy"]["mean"] for one in shown.found], mine["entropy"], rtol=1e-4, atol=1e-6)
        assert shown.statistics.entropy.shape[-1] == mask[0].sum() and shown.statistics.visible_keys.max() <= mask[0].sum()


@pytest.mark.parametrize("kind", ["Bart", "Marian", "T5"])
def test_padding_of_the_encoder_is_none_of_the_decoders_rows(kind):
    torch.manual_seed(2)
    sizes = {"num_layers": 1, "num_heads": 2, "d_kv": 16, "d_ff": 48} if kind == "T5" else {
        f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 48))}
    config = getattr(transformers, kind + "Config")(vocab_size=99, d_model=32, pad_token_id=0, decoder_start_token_id=0, **sizes)
    model = getattr(transformers, kind + "Model")(config).eval()
    ids, mask = torch.randint(3, 99, (2, 6)), torch.tensor([[1] * 6, [1] * 3 + [0] * 3])
    inputs = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": torch.randint(3, 99, (2, 5))}
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).cross_attentions[0].numpy()
        with heed.record(model, sample=1) as seen:
            model(**inputs)
    call = next(call for call in seen.calls if (call.lse.shape[-1], call.keys) == (5, 6))
    assert call.across and call.tokens is None and call.ids is None
    np.testing.assert_allclose(call.column_sums, weights.sum(-2), rtol=1e-4, atol=1e-6)
    frame = seen.to_dataframe()
    assert set(frame[frame["name"] == call.name]["rows"]) == {5}
    assert [names for names, _ in seen.inspections() if call.name in names] == [[call.name]]   # a page of its own


def test_padding_of_the_decoder_is_left_out_across():
    torch.manual_seed(4)
    config = transformers.BartConfig(vocab_size=99, d_model=32, pad_token_id=0, decoder_start_token_id=1, **{
        f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 48))})
    model = transformers.BartModel._from_config(config, attn_implementation="eager").eval()
    ids, mask = torch.randint(3, 99, (2, 6)), torch.tensor([[1] * 6, [0] * 4 + [1] * 2])
    inputs = {"input_ids": ids, "decoder_input_ids": ids, "decoder_attention_mask": mask}
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).cross_attentions[0].numpy() * mask.numpy()[:, None, :, None]
        with heed.record(model, sample=1) as seen:
            model(**inputs)
    frame = seen.to_dataframe()
    assert frame[(frame["sample"] == 1) & (frame["head"] == 0)]["rows"].tolist() == [6, 2, 2]
    np.testing.assert_allclose(seen.calls[-1].column_sums, weights.sum(-2), rtol=1e-4, atol=1e-6)
    assert [shown.statistics.entropy.shape[-1] for _, shown in seen.inspections()] == [6, 2, 2]


def test_a_prompt_in_two_parts():
    """The second part's queries stand behind the first's, and behind fewer where these were padding."""
    model, inputs = decoder("Llama"), batch(14, 2)
    with torch.no_grad(), heed.record(model, sample=1) as seen:
        cache = model(inputs["input_ids"][:, :4], attention_mask=inputs["attention_mask"][:, :4]).past_key_values
        model(inputs["input_ids"][:, 4:], attention_mask=inputs["attention_mask"], past_key_values=cache)
    [(_, shown)] = seen.inspections()
    assert shown.statistics.visible_keys[0, 0].tolist() == list(range(3, 13))
    second = [call for call in seen.calls if call.call == 1]
    np.testing.assert_allclose(shown.statistics.entropy, np.stack([call.statistics.entropy[1] for call in second]), rtol=1e-5)


def test_tokens_taken_back_leave_what_was_seen_as_it_was():
    model, inputs = decoder("Llama"), batch()
    first, other = inputs["input_ids"][:1, :7], inputs["input_ids"][1:2, 4:9]
    with torch.no_grad(), heed.record(model) as seen:
        cache = model(first[:, :4]).past_key_values
        model(first[:, 4:5], past_key_values=cache)  # there is room for more from here on
        model(first[:, 5:], past_key_values=cache)
        cache.crop(-2)
        model(other, past_key_values=cache)
    ids = [call.ids[0].tolist() for call in seen.calls if call.layer == 0]
    assert ids == [first[0, :4].tolist(), first[0, :5].tolist(), first[0].tolist(), [*first[0, :5].tolist(), *other[0].tolist()]]


def test_encoders_and_decoders():
    torch.manual_seed(1)
    config = transformers.T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, pad_token_id=0)
    model = transformers.T5Model._from_config(config).eval()
    with torch.no_grad(), heed.record(model, tokenizer=Names()) as seen:
        model(**batch(), decoder_input_ids=batch(14)["input_ids"])
    assert [seen.labels(call, 0) is None for call in seen.calls] == [False, False, False, True, False, True]
    with torch.no_grad(), heed.record(model) as seen:
        model(**batch(), decoder_input_ids=batch(9)["input_ids"])
    assert [call.lse.shape[-1] for call in seen.calls] == [14, 14, 9, 9, 9, 9]
    assert [call.column_sums.shape[-1] for call in seen.calls] == [14, 14, 9, 14, 9, 14]
    frame = seen.to_dataframe()
    for names, shown in seen.inspections():
        mine = frame[(frame["sample"] == 0) & frame["name"].isin(names)]
        np.testing.assert_allclose([one["entropy"]["mean"] for one in shown.found], mine["entropy"], rtol=1e-4)


def test_names_are_of_the_call_that_runs():
    """Also where a part of the model is called by itself, after another call of the whole."""
    config = transformers.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, pad_token_id=0,
                                   decoder_start_token_id=0, eos_token_id=1)
    t5 = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad(), heed.record(t5, tokenizer=Names()) as seen:
        t5(input_ids=ONE, decoder_input_ids=ONE[:, :2])
        before = len(seen.calls)
        written = t5.generate(OTHER, max_new_tokens=2, min_new_tokens=2)
    assert seen.labels(seen.calls[before], 0) == named(OTHER) and seen.labels(seen.calls[0], 0) == named(ONE)
    assert seen.labels(seen.calls[-2], 0) == named(written[:, :2]) and seen.labels(seen.calls[-1], 0) is None
    assert [call.start for call in seen.calls[-2:]] == [1, 1]   # across: in the decoder's sequence
    with torch.no_grad(), heed.record(t5, tokenizer=Names()) as seen:   # the decoder's tokens are not the encoder's
        t5(input_ids=ONE, decoder_inputs_embeds=torch.randn(1, 4, 32))
    assert [seen.labels(call, 0) for call in seen.calls] == [named(ONE), None, None]
    llama = decoder("Llama")
    with torch.no_grad(), heed.record(llama, tokenizer=Names()) as seen:
        llama(ONE)
        llama.model(OTHER)
        llama(inputs_embeds=torch.randn(1, 4, 64))
    assert [seen.labels(call, 0) for call in seen.calls[::3]] == [named(ONE), named(OTHER), None]
    model = clip()
    with torch.no_grad(), heed.record(model, tokenizer=Names()) as seen:
        model(input_ids=ONE, pixel_values=torch.randn(1, 3, 16, 16))
        model.get_text_features(input_ids=OTHER)
    assert [seen.labels(call, 0) for call in seen.calls] == [None, named(ONE), named(OTHER)]


def test_a_model_may_be_called_within_its_own_call():
    llama, begun = decoder("Llama"), []

    def another(*_):
        if not begun:
            begun.append(1)
            llama(OTHER)

    handle = llama.model.layers[1].register_forward_pre_hook(another)
    with torch.no_grad(), heed.record(llama, tokenizer=Names()) as seen:
        llama(ONE)
    handle.remove()
    assert [seen.labels(call, 0) for call in seen.calls] == [named(ONE), *[named(OTHER)] * 3, *[named(ONE)] * 2]


def test_an_inner_call_that_fails_before_it_begins_ends_no_other():
    llama, begun = decoder("Llama"), []

    def refuse(*_):
        if begun == [1]:
            begun.append(2)
            raise ValueError

    def another(*_):
        if not begun:
            begun.append(1)
            with pytest.raises(ValueError):
                llama(OTHER)

    handles = [llama.register_forward_pre_hook(refuse), llama.model.layers[1].register_forward_pre_hook(another)]
    with torch.no_grad(), heed.record(llama, tokenizer=Names()) as seen:
        llama(ONE)
    for handle in handles:
        handle.remove()
    assert begun == [1, 2] and [seen.labels(call, 0) for call in seen.calls] == [named(ONE)] * 3


@pytest.mark.parametrize("part", [lambda llama: llama, lambda llama: llama.model], ids=["model", "part"])
def test_a_call_that_ctrl_c_ended_is_over(part):
    """PyTorch calls no hook for it."""
    llama, stopped = decoder("Llama"), []

    def stop(*_):
        if not stopped:
            stopped.append(1)
            raise KeyboardInterrupt

    handle = llama.model.layers[1].register_forward_pre_hook(stop)
    with torch.no_grad(), heed.record(llama, tokenizer=Names()) as seen:
        with pytest.raises(KeyboardInterrupt):
            llama(ONE)
        before = len(seen.calls)
        part(llama)(inputs_embeds=torch.randn(1, 4, 64))
    handle.remove()
    assert not seen.forwards._running()   # whose frames would hold all that was there
    assert stopped and len(seen.calls) > before
    assert [seen.labels(call, 0) for call in seen.calls[before:]] == [None] * len(seen.calls[before:])


def test_each_cache_has_its_names():
    model, more = decoder("Llama"), torch.tensor([[14]])
    with torch.no_grad():
        filled = model(ONE).past_key_values
        with heed.record(model, tokenizer=Names()) as seen:
            one, _ = model(ONE).past_key_values, model(OTHER).past_key_values
            model(more, past_key_values=one)
            model(more, past_key_values=filled)
    assert [seen.labels(call, 0) for call in seen.calls[6::3]] == [[*named(ONE), "t14"], None]


def test_a_window_names_the_keys_that_are_left():
    model = decoder("Mistral")
    with torch.no_grad(), heed.record(model, tokenizer=Names()) as seen:
        written = model.generate(ONE, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)
    last = seen.calls[-1]
    assert (last.keys, last.start) == (5, 4) and seen.labels(last, 0) == named(written[:, 2:7])


def test_pictures_have_no_names():
    """Nor a page with texts of as many tokens."""
    for kind in ("CLIP", "Siglip"):   # 4 parts of the picture, and in CLIP a token for all of it
        model, ids = clip(kind), ONE if kind == "Siglip" else torch.tensor([[10, 11, 12, 13, 14]])
        with torch.no_grad(), heed.record(model, tokenizer=Names()) as seen:
            model(input_ids=ids, pixel_values=torch.randn(1, 3, 16, 16))
        assert [seen.labels(call, 0) for call in seen.calls] == [None, named(ids)]
        assert [shown.tokens for _, shown in seen.inspections()] == [None, named(ids)]


def test_layers_whose_batch_lacks_the_entry_are_told():
    model = clip()
    with torch.no_grad(), heed.record(model, tokenizer=Names(), sample=1) as seen:
        model(input_ids=ONE, pixel_values=torch.randn(3, 3, 16, 16))
    assert seen.to_dataframe()["sink_token"].isna().tolist() == [True] * 12 + [False] * 4
    with pytest.warns(UserWarning, match=r"^report: no page has text_model\S*: sample is 1, and its batch has 1 entry$") as told:
        [(names, _)] = seen.inspections()
    assert len(told) == 1 and names == ["vision_model.encoder.layers.0.self_attn"]


def test_report_tells_the_call_with_the_most_tokens():
    """Rows of padding are none."""
    model, ids = decoder("Llama"), torch.randint(3, 60, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    with torch.no_grad(), heed.record(model, sample=1) as seen:
        model.generate(ids, attention_mask=mask, max_new_tokens=2, min_new_tokens=2, do_sample=False, prefill_chunk_size=4)
    [(_, shown)] = seen.inspections()
    assert shown.statistics.visible_keys[0, 0].tolist() == [1, 2, 3, 4]
    with torch.no_grad(), heed.record(model, sample=1) as seen:
        model(ids, attention_mask=torch.tensor([[1] * 9, [1] * 2 + [0] * 7]))
        model(ids[:, :6])
    assert [shown.statistics.entropy.shape[-1] for _, shown in seen.inspections()] == [6]


def test_an_entry_of_padding():
    model = decoder("Llama")
    with torch.no_grad(), heed.record(model, tokenizer=Names(), sample=1) as seen:
        model(torch.cat((ONE, OTHER)), attention_mask=torch.tensor([[1] * 4, [0] * 4]))
    with pytest.raises(ValueError, match="no entry's q and k were kept: of entry 1 it sees nothing but padding$"):
        seen.inspections()
    frame = seen.to_dataframe()
    mine = frame[frame["sample"] == 1]
    assert set(mine["sink_key"]) == {-1} and mine["sink_share"].isna().all() and mine["sink_token"].isna().all()
    assert (frame[frame["sample"] == 0]["sink_key"] >= 0).all()


def test_an_entry_without_keys_has_a_page_without_names():
    """All that the encoder gave is padding."""
    model = transformers.BartModel(transformers.BartConfig(
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=32,
        decoder_ffn_dim=32, vocab_size=50, max_position_embeddings=64)).eval()
    both, names = torch.cat((ONE, OTHER)), list("abcd")
    with torch.no_grad(), heed.record(model, tokens=[names] * 2) as seen:
        model(both, attention_mask=torch.tensor([[0] * 4, [1] * 4]), decoder_input_ids=both)
    pages = {name: page for layers, page in seen.inspections() for name in layers}
    assert pages["decoder.layers.0.encoder_attn"].tokens == [] and pages["decoder.layers.0.self_attn"].tokens == names


def test_places_beside_a_cache_with_a_mask_of_its_own():
    """Added, beside a cache that grows; boolean, beside one that has room for more."""
    model, more = decoder("Llama"), torch.tensor([[14, 15]])
    with torch.no_grad(), heed.record(model, tokenizer=Names()) as seen:
        cache = model(ONE).past_key_values
        model(more, past_key_values=cache, attention_mask=torch.zeros(1, 1, 2, 6).masked_fill(torch.ones(2, 6).triu(5).bool(), -1e9))
    rows = seen.to_dataframe("row")
    rows = rows[(rows["call"] == 1) & (rows["head"] == 0) & (rows["layer"] == 0)]
    assert rows["row"].tolist() == [4, 5] and rows["token"].tolist() == ["t14", "t15"]
    cache = transformers.StaticCache(config=model.config, max_cache_len=12)
    with torch.no_grad(), heed.record(model) as seen:
        for first, last in ((0, 3), (3, 4)):
            mask = torch.arange(12) <= torch.arange(first, last)[:, None]
            model(ONE[:, first:last], past_key_values=cache, attention_mask=mask[None, None])
    assert [(call.keys, call.start) for call in seen.calls[::3]] == [(12, 0), (12, 3)]


def test_a_layer_called_by_itself():
    """Of what its tokens are nothing is known."""
    model = decoder("Llama")
    layer = model.model.layers[0].self_attn
    with torch.no_grad(), heed.record(model, tokenizer=Names()) as seen:
        x = torch.randn(1, 2, 64)
        cache = model(ONE).past_key_values
        layer(x, model.model.rotary_emb(x, torch.tensor([[4, 5]])), torch.ones(1, 1, 2, 6, dtype=torch.bool), past_key_values=cache)
    assert seen.calls[-1].start is None and seen.calls[-1].ids is None and seen.to_dataframe("row")["row"].isna().sum() == 8


def test_padding_of_sound():
    """Its mask counts samples, of which a frame has many."""
    torch.manual_seed(6)
    config = transformers.Wav2Vec2Config(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, conv_dim=(8, 8),
                                         conv_stride=(4, 4), conv_kernel=(4, 4), num_feat_extract_layers=2, feat_extract_norm="layer",
                                         num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
    model, mask = transformers.Wav2Vec2Model(config).eval(), torch.ones(2, 160, dtype=torch.long)
    mask[1, 64:] = 0
    with torch.no_grad(), heed.record(model) as seen:
        model(torch.randn(2, 160), attention_mask=mask)
    assert [call.tokens.sum(-1).tolist() for call in seen.calls] == [[10, 4]] and seen.calls[0].ids is None


def test_masks_that_are_made_before_the_model_runs():
    """generate() does so for a cache of a fixed size: nothing but the masks knows of padding then."""
    config = transformers.Llama4TextConfig(**TEXTS, num_key_value_heads=2, head_dim=8, intermediate_size_mlp=48, num_local_experts=2,
                                           attention_chunk_size=4, no_rope_layers=[1])
    model, ids = transformers.Llama4ForCausalLM(config).eval(), torch.randint(3, 60, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    with torch.no_grad(), heed.record(model, sample=1) as seen:
        model.generate(ids, attention_mask=mask, max_new_tokens=3, min_new_tokens=3, do_sample=False, cache_implementation="static",
                       disable_compile=True)
    assert np.array_equal(seen.calls[0].tokens, mask.bool()) and [call.start for call in seen.calls] == [0, 3, 3]
    assert [shown.statistics.entropy.shape[-1] for _, shown in seen.inspections()] == [5]
