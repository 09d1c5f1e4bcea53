"""heed.torch's options: none is rounded, ignored or lost, and a wrong one is refused by its name."""

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import heed
import heed.torch
from heed._torch_checks import LARGEST_SCALES

Q, K, V = (torch.randn(2, 4, n, 8, generator=torch.Generator().manual_seed(n)) for n in (7, 9, 9))
BF16 = [x.bfloat16() for x in (torch.randn(1, 2, 300, 64, generator=torch.Generator().manual_seed(i)) for i in range(3))]
NATIVE = heed.instruction_set() in ("avx512_bf16", "neon_bf16")


@pytest.mark.parametrize("options,error,text", [
    ({"query_start": 1.5}, TypeError, "attention: query_start is of type float; expected an integer"),
    ({"key_lengths": [3.7, 4]}, TypeError, r"attention: key_lengths\[0\] is of type float; expected an integer"),
    ({"query_lengths": np.array([3.7, 4])}, TypeError, "attention: query_lengths is an array of torch.float64"),
    ({"key_lengths": torch.tensor([3.7, 4])}, TypeError, "key_lengths is float32"),
    ({"dropout_p": 0.5, "seed": 1.7}, TypeError, "attention: seed is of type float; expected an integer"),
    ({"dropout_p": 0.5, "seed": "x"}, TypeError, "attention: seed is of type str; expected an integer"),
    ({"dropout_p": 0.5, "seed": torch.tensor(1.7)}, TypeError, r"attention: seed has shape \(\) and is torch.float32"),
    ({"dropout_p": 0.5, "seed": torch.tensor([1, 2])}, TypeError, r"attention: seed has shape \(2,\)"),
    ({"window": ()}, ValueError, r"attention: window is not a pair, but has 0 elements; expected \(left, right\)"),
    ({"window": 5}, TypeError, r"attention: window is not a pair, but of type int; expected \(left, right\)"),
    ({"window": (1.5, None)}, TypeError, "attention: window.left is of type float; expected an integer"),
    ({"alibi": torch.zeros(4, dtype=torch.complex64)}, TypeError, "attention: alibi is torch.complex64; expected real"),
    ({"q": None}, TypeError, "attention: q is of type NoneType; expected a torch.Tensor"),
    ({"key_lengths": [2**70, 1]}, ValueError, r"^attention: key_lengths\[0\] is 1180591620717411303424; expected one that fits"),
    ({"packing": ([], [])}, ValueError, "^attention: packing is given, and the batch size is 2"),
    ({"scale": 10**400}, ValueError, "^attention: scale is an integer beyond the largest float64; expected"),
    ({"scale": True}, TypeError, "^attention: scale is of type bool; expected a number"),
    ({"scale": [True] * 4}, TypeError, r"^attention: scale\[0\] is of type bool; expected a number"),
    ({"scale": [1, "2", 3, 4]}, TypeError, r"^attention: scale\[1\] is of type str; expected a number"),
    ({"alibi": "abcd"}, TypeError, "^attention: alibi is of type str; expected a torch.Tensor or a list of numbers"),
    ({"alibi": np.ones(4, bool)}, TypeError, "^attention: alibi is of type bool; expected a torch.Tensor or a list of numbers"),
    ({"sinks": object()}, TypeError, "^attention: sinks is of type object; expected a torch.Tensor or a list of numbers"),
    ({"alibi": [torch.tensor(1.0, requires_grad=True)] * 4}, ValueError, r"^attention: alibi\[0\] requires a gradient, and heed"),
    ({"query_start": "1"}, TypeError, "^attention: query_start is of type str; expected an integer, a torch.Tensor or a list"),
    ({"packing": ("ab", None)}, TypeError, "^attention: packing.query_offsets is of type str; expected an integer, a torch"),
    ({"key_lengths": np.array([3, "x"], object)}, TypeError, "^attention: key_lengths is of type ndarray; expected an integer"),
    ({"mask": heed.Mask(4, torch.ones(7, 9, dtype=torch.bool))}, ValueError, r"^attention: mask\.role is 4; expected 1 \(keep"),
    ({"mask": heed.Mask("keep", torch.ones(7, 9))}, TypeError, r"^attention: mask\.role is of type str; expected an integer"),
    ({"mask": heed.Mask(1, None)}, TypeError, r"^attention: mask\.array is None; expected an array"),
    ({"softcap": True}, TypeError, "^attention: softcap is of type bool; expected a number"),
    ({"window": (True, 1)}, TypeError, "^attention: window.left is of type bool; expected an integer"),
    ({"key_lengths": True}, TypeError, "^attention: key_lengths is of type bool; expected an integer"),
    ({"dropout_p": 0.5, "seed": True}, TypeError, "^attention: seed is of type bool; expected an integer"),
    ({"dropout_p": 0.0, "seed": "x"}, TypeError, "^attention: seed is of type str; expected an integer"),
    ({"alibi": 1.0}, ValueError, r"^attention: alibi has shape \[\]; expected"),
    ({"sinks": 1.0}, ValueError, r"^attention: sinks has shape \[\]; expected"),
    ({"threads": True}, TypeError, "^threads is of type bool; expected an integer"),
    ({"threads": 1.5}, TypeError, "threads is of type float; expected an integer"),
    ({"statistics": "entropy"}, TypeError, "attention: statistics is the string 'entropy'; expected a list of names"),
    ({"statistics": 5}, TypeError, "attention: statistics is of type int"),
    ({"reproducible": "yes"}, TypeError, "reproducible is of type str; expected True or False"),
    ({"return_lse": "no"}, TypeError, "^return_lse is of type str; expected True or False"),
    ({"return_weights": 1}, TypeError, "^return_weights is of type int; expected True or False"),
    ({"seed": 3}, ValueError, "^attention: seed is given, but dropout_p is not; expected both"),
    ({"mask": torch.zeros(7, 8)}, ValueError, r"^attention: mask has shape \[7, 8\]; expected"),
    ({"mask": heed.add(torch.zeros(7, 8))}, ValueError, r"^attention: mask has shape \[7, 8\]; expected"),
    ({"bias": torch.zeros(7, 8)}, ValueError, r"^attention: bias has shape \[7, 8\]; expected"),
    ({"mask": heed.add(torch.zeros(7, 9, dtype=torch.complex64))}, TypeError, "^attention: mask is torch.complex64"),
    ({"mask": (1, torch.ones(7, 9))}, TypeError, "^attention: mask is of type tuple; expected a torch.Tensor"),
    ({"k": torch.nested.nested_tensor([K[0], K[1]])}, ValueError, "^attention: k has layout nested; expected"),
    ({"softcap": torch.tensor(3.0, requires_grad=True)}, ValueError, "^attention: softcap requires a gradient, and heed.to"),
    ({"dropout_p": torch.tensor(0.5, requires_grad=True), "seed": 1}, ValueError, "^attention: dropout_p requires a gradient"),
    ({"causal": 1}, TypeError, "^attention: causal is of type int; expected True or False"),
    ({"causal": torch.tensor(True)}, TypeError, "^attention: causal is of type Tensor; expected True or False"),
    ({"normalize_qk": 0}, TypeError, "^attention: normalize_qk is of type int; expected True or False"),
    ({"scale": "0.5"}, TypeError, "^attention: scale is of type str; expected a number"),
    ({"scale": np.ones(4, bool)}, TypeError, "^attention: scale is of type bool; expected a torch.Tensor or a list of numbers"),
])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_wrong_option_is_refused(options, error, text, recorded):
    given = {"q": Q, "k": K, "v": V.clone().requires_grad_(recorded)} | options
    with pytest.raises(error, match=text):
        heed.torch.attention(given.pop("q"), given.pop("k"), given.pop("v"), **given)


@pytest.mark.parametrize("option", [{"scale": True}, {"scale": "0.5"}, {"softcap": True}, {"causal": 1}, {"normalize_qk": 0}])
@pytest.mark.parametrize("within", ["grad", "vmap", "compile"])
def test_transforms_take_no_other_options(option, within):
    def loss(q):
        return heed.torch.attention(q, K, V, **option).sum()

    transformed = {"grad": torch.func.grad(loss), "vmap": lambda q: torch.vmap(loss)(q[None]),
                   "compile": torch.compile(loss, backend="eager")}[within]
    with pytest.raises(TypeError, match=f"attention: {next(iter(option))} is of type"):
        transformed(Q)


class OfSizes(torch.nn.Module):
    """Numbers and a choice that sizes decide."""

    def forward(self, q):
        own = heed.torch.attention(q, q, q, scale=q.shape[3]**-0.5, causal=q.shape[2] > 1, softcap=q.shape[3] * 3)
        return own + heed.torch.scaled_dot_product_attention(q, q, q, scale=q.shape[3]**-0.5, is_causal=q.shape[2] > 1)


@pytest.mark.parametrize("way", ["compile", "compile, dynamic", "export", "make_fx"])
def test_numbers_may_be_symbols(way):
    """Of sizes; fullgraph asks for one graph."""
    module = OfSizes()
    if way == "export":
        traced = torch.export.export(module, (Q,), dynamic_shapes=[{2: torch.export.Dim("t", min=2)}]).module()
    elif way == "make_fx":
        traced = make_fx(module, tracing_mode="symbolic")(Q)
    else:
        torch._dynamo.reset()
        traced = torch.compile(module, backend="eager", fullgraph=True, dynamic=way.endswith("dynamic") or None)
    for rows in (7, 5, 4):
        assert torch.equal(traced(Q[:, :, :rows]), module(Q[:, :, :rows]))


def test_numbers_of_compiled_code_may_vary():
    torch._dynamo.reset()
    call = torch.compile(lambda scale, softcap: heed.torch.attention(Q, K, V, scale=scale, softcap=softcap), backend="eager",
                         fullgraph=True)
    for scale, softcap in ((0.5, 2), (0.25, 3), (2, 0.5), (3, 4.5)):
        assert torch.equal(call(scale, softcap), heed.torch.attention(Q, K, V, scale=scale, softcap=softcap))


ENDS = [[0, x, 7] for x in (4, 3, 5)]


@pytest.mark.parametrize("name,values", [
    ("seed", (4, 3, 2**40)), ("query_start", (4, 3, -2)), ("query_start", ([4, 3], [3, 5], [2, 6])),
    ("key_lengths", (4, 3, 5)), ("key_lengths", ([4, 3], [3, 5], [2, 6])), ("query_lengths", (4, 3, 5)),
    ("query_lengths", ([4, 3], [3, 5], [2, 6])), ("window", ((4, 3), (3, 5), (2, 6))), ("window", ([4, None], [3, None], [2, None])),
    ("packing", [(ends, ends) for ends in ENDS]), ("threads", (4, 3, 2))])
def test_integers_of_compiled_code_may_vary(name, values):
    """Without a break in the graph; the second makes symbols of them, the third needs no graph of its own."""
    more = {"dropout_p": 0.5, **({} if name == "seed" else {"seed": 1}), "causal": name == "query_start"}
    q = Q[:1] if name == "packing" else Q

    def call(q, value):
        return heed.torch.attention(q, q, q, **{name: value}, **more)

    torch._dynamo.reset()
    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, backend=counted, fullgraph=True)
    outputs = []
    for value in values:
        made = []
        for run in (compiled, call):
            given = q.clone().requires_grad_()
            output = run(given, value)
            made.append((output, *torch.autograd.grad(output.square().sum(), given)))
        assert all(torch.equal(a, b) for a, b in zip(*made))
        outputs.append(output)
    assert counted.frame_count <= 2
    assert name == "threads" or not torch.equal(outputs[0], outputs[1])


class Decoding(torch.nn.Module):
    """Integers that the sizes of a growing cache decide."""

    def forward(self, q, k):
        rest = k.shape[2] - q.shape[2]
        return heed.torch.attention(q, k, k, causal=True, query_start=rest, key_lengths=[rest + 1, k.shape[2]],
                                    window=(rest, None), dropout_p=0.5, seed=rest)


@pytest.mark.parametrize("way", ["compile", "compile, dynamic", "export", "make_fx"])
def test_integers_may_be_symbols(way):
    module, q = Decoding(), Q[:, :, :2]
    sizes = [{}, {2: torch.export.Dim("t", min=3)}]
    if way == "export":
        traced = torch.export.export(module, (q, K), dynamic_shapes=sizes).module()
    elif way == "make_fx":
        traced = make_fx(module, tracing_mode="symbolic")(q, K)
    else:
        torch._dynamo.reset()
        traced = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=way.endswith("dynamic") or None)
    for keys in (9, 7, 5, 4):
        assert torch.equal(traced(q, K[:, :, :keys]), module(q, K[:, :, :keys]))


def test_a_seed_in_a_tensor_counts_by_its_bits():
    def dropped(seed):
        return heed.torch.attention(Q, K, V, dropout_p=0.5, seed=seed)

    for seed in (-1, torch.iinfo(torch.int64).min):
        for dtype in (torch.int64, torch.uint64):
            assert torch.equal(dropped(torch.tensor(seed).to(dtype)), dropped(seed % 2**64))
    with pytest.raises(ValueError, match=r"^attention: seed is -1; expected 0 \.\. 2\^64 - 1$"):
        dropped(-1)


TWO = torch.tensor(2.0)


@pytest.mark.parametrize("name,call", [
    ("softcap", lambda x: heed.torch.attention(Q, K, V, softcap=x)),
    ("dropout_p", lambda x: heed.torch.attention(Q, K, V, dropout_p=x / 4, seed=1)),
    (r"scale\[0\]", lambda x: heed.torch.attention(Q, K, V, scale=[x] * 4)),
    (r"alibi\[1\]", lambda x: heed.torch.attention(Q, K, V, alibi=[1.0, x, x, x])),
    (r"sinks\[3\]", lambda x: heed.torch.attention(Q, K, V, sinks=[0, 0, 0, x])),
    ("scale", lambda x: heed.torch.scaled_dot_product_attention(Q, K[:, :, :7], V[:, :, :7], scale=x)),
])
@pytest.mark.parametrize("way", ["jvp", "jacfwd", "dual"])
def test_a_tangent_of_a_number_is_refused_not_lost(name, call, way):
    """A tangent of zeros would be wrong."""
    def dual():
        with torch.autograd.forward_ad.dual_level():
            call(torch.autograd.forward_ad.make_dual(TWO, torch.ones(())))

    run = {"jvp": lambda: torch.func.jvp(call, (TWO,), (TWO,)), "jacfwd": lambda: torch.func.jacfwd(call)(TWO), "dual": dual}
    with pytest.raises(ValueError, match=f": {name} has a tangent of forward mode, and heed.torch has none for it; expected"):
        run[way]()
    torch.func.jvp(lambda x: x * call(TWO).sum(), (TWO,), (TWO,))  # which has a tangent of its own is all the same


def capped(x, q=Q):
    return heed.torch.attention(q, K, V, softcap=x)


@pytest.mark.parametrize("lost,run", [
    ("has a tangent", lambda: torch.func.jvp(lambda x: torch.func.grad(lambda q: capped(x, q).sum())(Q), (TWO,), (TWO,))),
    ("has a tangent", lambda: torch.func.jvp(lambda x: torch.vmap(lambda q: capped(x, q[None]))(Q), (TWO,), (TWO,))),
    ("has a tangent", lambda: torch.func.jvp(lambda x: torch.func.jvp(lambda q: capped(x, q), (Q,), (Q,))[1], (TWO,), (TWO,))),
    ("has a tangent", lambda: torch.func.jvp(lambda x: torch.func.jvp(lambda q: capped(x + 0 * q.sum().detach(), q), (Q,), (Q,))[1],
                                             (TWO,), (TWO,))),
    ("has a tangent", lambda: torch.compile(lambda x: torch.func.jvp(capped, (x,), (x,))[1], backend="eager")(TWO)),
    ("requires a gradient", lambda: torch.func.grad(lambda x: torch.func.jvp(lambda q: capped(x, q), (Q,), (Q,))[1].sum())(TWO)),
    ("requires a gradient", lambda: torch.func.grad(lambda x: torch.vmap(lambda q: capped(x, q[None]))(Q).sum())(TWO)),
], ids=range(7))
def test_no_derivative_of_an_outer_transform_is_lost(lost, run):
    with pytest.raises(ValueError, match=f"^attention: softcap {lost}"):
        run()


def test_numbers_of_numpy_have_no_gradient_and_cost_none():
    """As a list: the forward pass took them, the backward pass did not."""
    for scale in (np.array([0.5, 0.25, 1, 2]), np.array([0.5, 0.25, 1, 2], np.float32), [0.5, 0.25, 1, 2]):
        q = Q.clone().requires_grad_()
        made = heed.torch.attention(q, K, V, scale=scale)
        assert np.array_equal(made.detach(), heed.attention(Q, K, V, scale=np.asarray(scale)))
        made.sum().backward()
        if isinstance(scale, list):
            assert torch.equal(q.grad, first)
        first = q.grad


SDPA_OPTIONS = [
    ({"scale": float("inf")}, ValueError, "scale is inf; expected a number that is finite as float32, also times log2"),
    ({"scale": float("nan")}, ValueError, "scale is nan; expected a number that is finite"),
    ({"scale": 1e39}, ValueError, r"scale is 1e\+39; expected a number that is finite"),
    ({"scale": 2.5e38}, ValueError, r"scale is 2.5e\+38; expected a number that is finite"),
    ({"scale": True}, TypeError, "scale is of type bool; expected a number"),
    ({"scale": [1.0, 2.0]}, TypeError, "scale is of type list; expected a number"),
    ({"dropout_p": 0.999995}, ValueError, r"dropout_p is 0.999995; expected 0 <= p < 1, and 1 - p above 2\^-17"),
    ({"dropout_p": 1.5}, ValueError, "dropout_p is 1.5; expected 0 <= p < 1"),
    ({"dropout_p": -0.5}, ValueError, "dropout_p is -0.5; expected 0 <= p < 1"),
    ({"dropout_p": float("nan")}, ValueError, "dropout_p is nan; expected 0 <= p < 1"),
    ({"dropout_p": "x"}, TypeError, "dropout_p is of type str; expected a number"),
    ({"dropout_p": np.zeros(2)}, TypeError, "dropout_p is of type ndarray; expected a number"),
    ({"is_causal": 1}, TypeError, "is_causal is of type int; expected True or False"),
    ({"enable_gqa": "x"}, TypeError, "enable_gqa is of type str; expected True or False"),
]


@pytest.mark.parametrize("options,error,text", SDPA_OPTIONS, ids=[text for _, _, text in SDPA_OPTIONS])
def test_a_wrong_option_of_pytorchs_signature_has_its_name(options, error, text):
    for query in (Q, Q.clone().requires_grad_()):
        with pytest.raises(error, match="^scaled_dot_product_attention: " + text):
            heed.torch.scaled_dot_product_attention(query, K, V, **options)


@pytest.mark.parametrize("dtype,real", [(torch.float32, np.float32), (torch.bfloat16, np.float32), (torch.float64, np.float64)])
def test_the_largest_scale_is_that_of_the_compiled_part(dtype, real):
    """Its words, from heed.attention, and those that torch.compile can look at agree on the numbers next to it."""
    largest = real(LARGEST_SCALES[real.__name__])
    q, k, v = (x.to(dtype) for x in (Q, K, V))
    for scale in (largest, -largest):
        heed.torch.scaled_dot_product_attention(q, k, v, scale=float(scale))
        heed.attention(q, k, v, scale=float(scale))
        beyond = float(np.nextafter(scale, real(np.inf) * np.sign(scale)))
        for call in (heed.torch.scaled_dot_product_attention, heed.attention):
            with pytest.raises(ValueError, match=f"scale is .* finite as {real.__name__}, also times log2"):
                call(q, k, v, scale=beyond)


def test_the_largest_share_of_dropout_is_that_of_the_compiled_part():
    edge = 1 - 2.0**-17
    heed.torch.scaled_dot_product_attention(Q, K, V, dropout_p=np.nextafter(edge, 0))
    heed.attention(Q, K, V, dropout_p=np.nextafter(edge, 0), seed=1)
    for call, more in ((heed.torch.scaled_dot_product_attention, {}), (heed.attention, {"seed": 1})):
        with pytest.raises(ValueError, match=f"^{call.__name__}: dropout_p is .*; expected 0 <= p < 1, and 1 - p above"):
            call(Q, K, V, dropout_p=edge, **more)


def test_an_operator_refuses_a_role_that_is_none():
    mask = torch.ones(7, 9, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^mask\.role is 7; expected 1 \(keep\), 2 \(drop\) or 3 \(add\)"):
        torch.ops.heed.attention_forward(Q, K, V, None, mask, *[None] * 9, mask_role=7)


@pytest.mark.parametrize("name", ["scale", "softcap", "dropout_p"])
def test_no_gradient_of_a_number_is_lost(name):
    learned, rest = torch.tensor(0.5, requires_grad=True), {"seed": 1} if name == "dropout_p" else {}
    with pytest.raises(ValueError, match=f"^{name} requires a gradient.*call heed.torch.attention, or pass {name}.detach"):
        heed.attention(Q, K, V, **{name: learned}, **rest)
    plain = heed.attention(Q, K, V, **{name: 0.5}, **rest)
    assert torch.equal(heed.attention(Q, K, V, **{name: learned.detach()}, **rest), plain)
    if name == "scale":
        assert heed.torch.attention(Q, K, V, scale=learned).requires_grad
    else:
        assert torch.equal(heed.torch.attention(Q, K, V, **{name: learned.detach()}, **rest), plain)
    if name == "softcap":
        return
    with pytest.raises(ValueError, match=f"^scaled_dot_product_attention: {name} requires a gradient, and heed.torch has"):
        heed.torch.scaled_dot_product_attention(Q, K, V, **{name: learned})
    with heed.torch.enabled(), pytest.warns(UserWarning, match=f"{name} requires a gradient"):
        with pytest.raises(TypeError, match=f"'{name}' must be float, not Tensor"):  # PyTorch's own answer
            torch.nn.functional.scaled_dot_product_attention(Q, K, V, **{name: learned})


def test_nested_tensors_are_named():
    nested = torch.nested.nested_tensor([K[0], K[1]])
    for given, name in (((nested, K, V), "q"), ((Q, nested, V), "k"), ((Q, K, nested), "v")):
        with pytest.raises(ValueError, match=f"^{name} has layout nested; expected torch.strided"):
            heed.attention(*given)


def test_integers_of_every_kind_are_integers():
    q, k, v = (x.numpy() for x in (Q, K, V))
    for lengths in ([9, 3], np.array([9, 3], np.uint16), torch.tensor([9, 3]), np.array([9, 3])):
        seen = heed.torch.attention(Q, K, V, key_lengths=lengths, query_start=np.int32(2), causal=True,
                                    window=[np.int64(3), None])
        assert np.array_equal(seen, heed.attention(q, k, v, key_lengths=[9, 3], query_start=2, causal=True,
                                                   window=(3, None)))
    mask = torch.ones(7, 9).tril().to(torch.uint16)
    assert torch.equal(heed.torch.attention(Q, K, V, mask=heed.keep(mask)),
                       heed.torch.attention(Q, K, V, mask=mask.bool()))
    seen = heed.torch.attention(Q, K, V, statistics=np.True_)
    assert all(x is not None for x in seen.statistics)


def test_numbers_lie_on_the_cpu_whatever_the_default_device():
    def results():
        torch.manual_seed(0)
        x = Q.clone().requires_grad_()
        seen = [heed.torch.attention(x, K, V, **options) for options in (
            {"query_start": 2, "causal": True}, {"key_lengths": [9, 3]},
            {"scale": [0.1, 0.2, 0.3, 0.4]},
            {"query_lengths": np.array([2, 7])}, {"sinks": np.ones(4, np.float32)},
            {"dropout_p": 0.5, "seed": 7}, {"dropout_p": 0.5})]
        seen.append(heed.torch.scaled_dot_product_attention(x, K, V, dropout_p=0.5))
        torch.stack(seen).square().sum().backward()
        return *seen, x.grad

    expected = results()
    with torch.device("meta"):
        seen = results()
    for one, other in zip(seen, expected, strict=True):
        assert one.device.type == "cpu" and torch.equal(one, other)


def test_five_axes_without_heads_or_batch():
    for lead in ((2, 2, 0), (2, 0, 2), (0, 0, 0)):
        shape = (*lead, 5, 8)
        for mask in (torch.ones(5, 5, dtype=torch.bool), torch.zeros(*lead, 1, 5)):
            seen = heed.torch.scaled_dot_product_attention(*(torch.zeros(shape) for _ in range(3)), mask)
            assert seen.shape == shape


@pytest.mark.parametrize("way", ["plain", "recorded", "compiled", "vmap"])
def test_reproducible_has_the_bits_of_float32_rounded(way):
    q, k, v = (x.clone().requires_grad_(way != "plain") for x in BF16)
    wide = heed.torch.attention(*(x.float() for x in BF16), causal=True).bfloat16()
    for reproducible in (True, False):
        def call(*qkv):
            return heed.torch.attention(*qkv, causal=True, reproducible=reproducible)

        if way == "compiled":
            call = torch.compile(call, fullgraph=True, backend="aot_eager")
        seen = torch.vmap(call)(*(x[None].detach() for x in (q, k, v)))[0] if way == "vmap" else call(q, k, v)
        assert torch.equal(seen, wide) == (reproducible or not NATIVE)
        if way not in ("recorded", "compiled"):
            continue
        d_output = torch.ones_like(seen)
        made = torch.autograd.grad(seen, (q, k, v), d_output)
        forward = heed.attention(*BF16, causal=True, return_lse=True, reproducible=reproducible)
        expected = heed.attention_backward(*BF16, forward.output, forward.lse, d_output, causal=True,
                                           reproducible=reproducible)
        assert all(torch.equal(a, b) for a, b in zip(made, expected[:3]))


def test_operators_take_reproducible_by_name():
    torch.library.opcheck(torch.ops.heed.attention_forward, (*BF16, *[None] * 11), {"reproducible": True},
                          test_utils=("test_schema", "test_faketensor"))
    assert "bool reproducible" in str(torch.ops.heed.attention_backward.default._schema)
