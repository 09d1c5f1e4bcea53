"""heed inside Hugging Face's transformers: attn_implementation="heed".

::

    import heed.transformers
    heed.transformers.register()
    model = AutoModel.from_pretrained(path, attn_implementation="heed")
"""

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from . import _core
from . import torch as heed_torch
from ._attention import AttentionResult
from ._options import pack
from ._record import observers
from ._torch_ops import each, pointer
from ._torch_checks import readable, unrecorded, unwatched
from ._transformers_mask import RuleMask, check_rules, mask_for_heed

__all__ = ["register", "attention_forward", "mask_for_heed"]

HARMLESS = frozenset((
    # what other parts of a model use
    "position_ids", "cache_position", "position_embeddings", "past_key_values", "past_key_value", "layer_idx",
    "use_cache", "return_dict", "output_hidden_states", "output_router_logits", "num_items_in_batch", "labels",
    "input_ids", "inputs_embeds", "token_type_ids", "logits_to_keep", "encoder_hidden_states",
    "encoder_attention_mask",
    # how other implementations run, not what they compute
    "deterministic", "kernel_options", "target_dtype", "max_length_q", "max_length_k", "use_top_left_mask"))
"""Keywords that change nothing of what attention computes."""


def register(name: str = "heed") -> None:
    """Makes attn_implementation="heed" known to transformers: the attention function together with its mask function.

    With the attention function alone, transformers would make no mask, and padding would count as tokens.

    :param name: what attn_implementation is to be called
    :raises ImportError: this version of transformers makes masks that heed does not understand
    """
    check_rules()
    AttentionMaskInterface.register(name, mask_for_heed)
    AttentionInterface.register(name, attention_forward)


def attention_forward(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
                      attention_mask: Tensor | None, dropout: float = 0.0, scaling: float | None = None,
                      is_causal: bool | None = None, sliding_window: int | None = None, softcap: float | None = None,
                      s_aux: Tensor | None = None, position_bias: Tensor | None = None,
                      output_attentions: bool | None = None, **rest) -> tuple[Tensor, Tensor | None]:
    """What a model of transformers calls: softmax(scaling * query key' + mask) value.

    ::

        query [B, H, Tq, D], key [B, Hk, Tk, D], value [B, Hk, Tk, Dv], any strides
        -> output [B, Tq, H, Dv], and the weights [B, H, Tq, Tk] where output_attentions is asked for, else None

    :param attention_mask: a boolean one keeps where True, a floating one is added; with one, is_causal and
        sliding_window are part of it already, as everywhere in transformers
    :param is_causal: without a mask and for more than one query: from the first query and key on; the module's if None
    :param sliding_window: keys that a query may see, its own among them, where there is no mask
    :param s_aux: [H], a sink for each head
    :param position_bias: added to the scores
    :raises ValueError: naming a keyword that asks for what heed does not compute
    """
    refuse(rest, attention_mask)
    if query.dim() != 4:
        raise ValueError(f"heed.transformers: query has {query.dim()} axes; expected [B, H, Tq, D]")
    query, key, value = heed_torch.autocast(*of_one_batch(query, key, value))
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if isinstance(attention_mask, RuleMask) and not attention_mask.fits(query, key):
        attention_mask = attention_mask.dense()
    options = {"scale": scaling, "softcap": softcap, "sinks": sinks_of(s_aux, query),
               **of_mask(attention_mask, query, key, is_causal, sliding_window)}
    if position_bias is not None:
        options["bias"] = position_bias if options.get("bias") is None else options["bias"] + position_bias
    watching = observers(module)
    wanted = bool(output_attentions) or attentions_are_captured()
    scale = scaling if isinstance(scaling, Tensor) else None
    given = (query, key, value, options.get("bias"), options["sinks"], scale)
    read = (*given, options.get("mask"), options.get("key_lengths"))
    if not (dropout or wanted or watching) and readable(*read) and unrecorded(*given) and unwatched(*given):
        return straight(query, key, value, options), None
    more = {"return_weights": wanted, "return_lse": bool(watching), "statistics": bool(watching)}
    seen = heed_torch.attention(query, key, value, dropout_p=dropout, **options, **more)
    if not isinstance(seen, AttentionResult):
        seen = AttentionResult(seen)
    for observer in watching:
        observer._see(module, query, key, seen, options, attention_mask)
    return seen.output.transpose(1, 2).contiguous(), seen.weights


def straight(query, key, value, options) -> Tensor:
    """The call where nothing of PyTorch has to learn of it. [B, Tq, H, Dv]: heads beside each other, as the next layer
    wants them, so that nothing is copied."""
    output = query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3]))
    packed = dict(options)
    for name in ("sinks", "bias", "mask", "key_lengths"):
        packed[name] = each(packed.get(name))
    if isinstance(packed["scale"], Tensor):
        packed["scale"] = packed["scale"].detach()
    _core.attention_forward(pointer(query), pointer(key), pointer(value), pointer(output.transpose(1, 2)), None, None, None,
                            pack(**packed), torch.get_num_threads())
    return output


def of_mask(mask, query, key, is_causal, window) -> dict:
    """The options that say what a query may see."""
    rows, keys = query.shape[2], key.shape[2]
    if isinstance(mask, RuleMask):
        return mask.rule.options()
    if mask is not None:
        if mask.dtype is torch.bool:
            return {"mask": mask}
        if not mask.is_floating_point():
            raise TypeError(f"heed.transformers: attention_mask is {mask.dtype}; expected torch.bool, which keeps, or a floating "
                            "type, which is added")
        return {"bias": mask}
    causal = bool(is_causal) and rows > 1
    if window is None or window >= keys:
        return {"causal": causal}
    if rows != keys and rows != 1:
        raise ValueError(f"heed.transformers: sliding_window is {window} for {rows} queries and {keys} keys, without an "
                         "attention_mask; expected a mask, which says where the queries stand")
    return {"causal": causal, "window": (window - 1, window - 1), "query_start": keys - rows or None}


def of_one_batch(query, key, value):
    """Learned queries of batch 1 are for all entries."""
    batch = max(query.shape[0], key.shape[0])
    return tuple(x if x.shape[0] == batch else x.expand(batch, -1, -1, -1) for x in (query, key, value))


def sinks_of(s_aux, query):
    if s_aux is None:
        return None
    if s_aux.numel() != query.shape[1]:
        raise ValueError(f"heed.transformers: s_aux has shape {tuple(s_aux.shape)}; expected one number for each of "
                         f"{query.shape[1]} heads")
    s_aux = s_aux.reshape(-1)
    return s_aux if s_aux.dtype in (torch.float32, torch.float64) else s_aux.float()


def refuse(rest, mask) -> None:
    """No keyword is lost without a word."""
    for name, value in rest.items():
        if value is None or value is False or name in HARMLESS:
            continue
        if name in ("cu_seq_lens_q", "cu_seq_lens_k"):
            if mask is None and len(value) > 2:
                raise ValueError(f"heed.transformers: {name} packs {len(value) - 1} sequences, and there is no "
                                 "attention_mask that keeps them apart; expected one of them alone, or a mask")
            continue
        raise ValueError(f"heed.transformers: the model passes {name!r} to attention, which heed does not serve; expected "
                         f"nothing but {', '.join(SERVED)}. Choose attn_implementation=\"eager\" for this model")


SERVED = ("attention_mask", "dropout", "scaling", "is_causal", "sliding_window", "softcap", "s_aux", "position_bias",
          "output_attentions")


def attentions_are_captured() -> bool:
    """A model was called with output_attentions=True, which transformers tells only to the hooks that collect them."""
    collected = collector.get() if collector is not None else None
    return bool(collected) and any("attentions" in key for key in collected)


try:
    from transformers.utils.output_capturing import _active_collector as collector
except ImportError:
    collector = None  # then output_attentions is served where the model passes it on
