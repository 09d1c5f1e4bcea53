"""Gradients and forward mode against central differences of the definition, in float64."""

import numpy as np
import pytest
from support import close, definition, draw, inputs

import heed

B, H, TQ, TK = 2, 4, 5, 7
Q, K, V = (x.astype(np.float64) for x in inputs())
BIAS, SINKS = draw(4, 1, H, TQ, TK).astype(np.float64), draw(5, H).astype(np.float64)
ALIBI, SCALE = np.array([0.5, 0.2, 0.1, 0.3]), np.array([0.3, 0.2, 0.4, 0.25])
D_OUTPUT = draw(8, B, H, TQ, 6).astype(np.float64)
PARAMETERS = {"dq": Q, "dk": K, "dv": V, "dscale": SCALE, "dalibi": ALIBI, "dbias": BIAS, "dsinks": SINKS}


def told(name=None, moved=None):
    """q, k, v and the options of heed, one of them replaced."""
    now = {**PARAMETERS, **({name: moved} if name else {})}
    return (now["dq"], now["dk"], now["dv"]), {"scale": now["dscale"], "alibi": now["dalibi"], "bias": now["dbias"],
                                              "sinks": now["dsinks"], "softcap": 2.0, "causal": True}


def loss(name, moved):
    tensors, options = told(name, moved)
    return (definition(*tensors, **options)[0] * D_OUTPUT).sum()


@pytest.mark.parametrize("name", PARAMETERS)
def test_gradient_is_the_central_difference(name):
    tensors, options = told()
    forward = heed.attention(*tensors, return_lse=True, **options)
    seen = heed.attention_backward(*tensors, forward.output, forward.lse, D_OUTPUT, gradients=[name], **options)
    assert {field for field, value in seen._asdict().items() if value is not None} == {name}
    gradient, value = getattr(seen, name), PARAMETERS[name]
    assert gradient.shape == value.shape
    for at in np.random.default_rng(2).permutation(value.size)[:12]:
        step = np.zeros(value.size)
        step[at] = 1e-6
        step = step.reshape(value.shape)
        difference = (loss(name, value + step) - loss(name, value - step)) / 2e-6
        assert abs(gradient.ravel()[at] - difference) < 1e-7, (name, at)


def test_the_usual_three_of_float16_are_those_of_float32_rounded():
    halves = [x.astype(np.float16) for x in (Q, K, V, D_OUTPUT)]
    output, lse = heed.attention(*halves[:3], return_lse=True)[0::2]
    seen = heed.attention_backward(*halves[:3], output, lse, halves[3])
    wide = heed.attention_backward(*(x.astype(np.float32) for x in (*halves[:3], output)), lse,
                                   halves[3].astype(np.float32))
    for half, single in zip(seen[:3], wide[:3], strict=True):
        assert half.dtype == np.float16 and np.array_equal(half, single.astype(np.float16))


def test_a_mask_that_adds_has_a_gradient():
    tensors, options = told()
    forward = heed.attention(*tensors, return_lse=True, **options)
    of_bias = heed.attention_backward(*tensors, forward.output, forward.lse, D_OUTPUT, gradients=["dbias"], **options)
    options["mask"] = heed.add(options.pop("bias"))
    seen = heed.attention_backward(*tensors, forward.output, forward.lse, D_OUTPUT, gradients=["dbias"], **options)
    assert seen.dbias.shape == BIAS.shape and seen.dbias.any() and np.array_equal(seen.dbias, of_bias.dbias)


def test_forward_mode_is_the_central_difference():
    tensors, options = told()
    forward = heed.attention(*tensors, return_lse=True, **options)
    tangents = [draw(20 + i, *x.shape).astype(np.float64) for i, x in enumerate((*tensors, BIAS))]
    seen = heed.attention_jvp(*tensors, forward.output, forward.lse, tangent_q=tangents[0], tangent_k=tangents[1],
                              tangent_v=tangents[2], tangent_bias=tangents[3], **options)

    def at(step):
        moved = [x + step * t for x, t in zip((*tensors, BIAS), tangents)]
        return definition(*moved[:3], **{**options, "bias": moved[3]})

    for i, value in ((0, seen.output), (1, seen.lse)):
        close(value, (at(1e-5)[i] - at(-1e-5)[i]) / 2e-5, 1e-8)


def test_dropout_is_the_same_in_both_passes():
    options = {"dropout_p": 0.5, "seed": 11}
    forward = heed.attention(Q, K, V, return_lse=True, return_weights=True, **options)
    seen = heed.attention_backward(Q, K, V, forward.output, forward.lse, D_OUTPUT, **options)
    dv = np.einsum("bhij,bhie->bhje", forward.weights, D_OUTPUT).reshape(B, 2, 2, TK, 6).sum(2)
    close(seen.dv, dv, 1e-12)


def test_what_does_not_fit_is_refused():
    forward = heed.attention(Q, K, V, return_lse=True)
    given = (Q, K, V, forward.output, forward.lse, D_OUTPUT)
    for names, text in ((["dx"], "'dx'; expected names among dq"), (["dbias"], "bias is None"),
                        (["dalibi"], "dalibi is wanted, but alibi is None; expected both"),
                        (["dsinks"], "dsinks is wanted, but sinks is None; expected both")):
        with pytest.raises(ValueError, match=text):
            heed.attention_backward(*given, gradients=names)
    with pytest.raises(TypeError, match="d_output is float32, q is float64"):
        heed.attention_backward(*given[:5], D_OUTPUT.astype(np.float32))
    with pytest.raises(ValueError, match="attention_jvp: tangent_q has shape"):
        heed.attention_jvp(*given[:5], tangent_q=K)
    with pytest.raises(TypeError, match="^attention_backward: got an unexpected keyword argument 'casual'"):
        heed.attention_backward(*given, casual=True)
