"""Figures of matplotlib from the arrays of an inspection or a study, for those who want them otherwise."""

import numpy as np

from ._inspection import entropy_share
from ._options import integer

MOST_LABELS = 24  # below an axis; of more rows some are named


def pyplot():
    try:
        from matplotlib import figure
    except ImportError as error:
        raise ImportError("heed: figures need matplotlib, which is not installed: pip install matplotlib. Pictures of "
                          "heed's own need nothing: .pictures of an inspection, .svg of a study") from error
    return figure


def of_inspection(seen, name, layer, head):
    """The figure of that name."""
    kinds = {"poster": poster, "head": one_head, "entropy": entropy, "max_weight": max_weight, "histogram": histogram,
             "distance": distance, "keys": keys}
    if name not in kinds:
        raise ValueError(f"figure: name is {name!r}; expected one of {', '.join(kinds)}")
    layers, heads = stacked(seen.lse, 1).shape[:2]
    if not layers or not heads:
        raise ValueError(f"figure: there are {layers} layers of {heads} heads; expected at least one")
    if name == "head":
        for argument, value, size in (("layer", layer, layers), ("head", head, heads)):
            integer("figure", argument, value, 0, size - 1)
    made = pyplot().Figure(layout="constrained")
    kinds[name](made, seen, layer, head)
    return made


def stacked(x, per_head: int):
    """[L, H, ..], from arrays whose head axis, or both, may be missing."""
    lead = {0: (1, 1), 1: (*x.shape[:1], 1), 2: x.shape[:2]}[x.ndim - per_head]
    return x.reshape(*lead, *x.shape[x.ndim - per_head:])


def poster(figure, seen, *_):
    maps = stacked(seen.lift_map, 2)
    reach = np.log2(max(2, maps.shape[-1]))
    figure.set_size_inches(max(5, 1.1 * maps.shape[1] + 1.5), max(3.5, 1.1 * maps.shape[0] + 1))
    axes = figure.subplots(*maps.shape[:2], squeeze=False)
    for layer, row in enumerate(axes):
        for head, ax in enumerate(row):
            drawn = ax.imshow(maps[layer, head], cmap="PuOr_r", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            if layer == 0:
                ax.set_title(f"{head}", fontsize=8)
        row[0].set_ylabel(f"{layer}", rotation=0, ha="right", va="center", fontsize=8)
    figure.supxlabel("head (above), keys from left to right")
    figure.supylabel("layer, queries downwards")
    figure.colorbar(drawn, ax=axes, label="lift: log2 of weight over uniform")


def one_head(figure, seen, layer, head):
    maps = stacked(seen.mean_map, 2)[layer, head]
    ax = figure.subplots()
    drawn = ax.imshow(maps, cmap="viridis", vmin=0, interpolation="nearest")
    ax.set(title=f"layer {layer}, head {head}", xlabel="key", ylabel="query")
    tokens = seen.tokens
    if tokens and len(tokens) == maps.shape[1] <= 48:
        ax.set_xticks(range(len(tokens)), tokens, rotation=90, parse_math=False)  # "$" is a token like others
        if maps.shape[0] == len(tokens):
            ax.set_yticks(range(len(tokens)), tokens, parse_math=False)
    figure.colorbar(drawn, ax=ax, label="weight" if maps.shape == seen.lse.shape[-1:] * 2 else "mean weight of a cell")


def of_layers(figure, numbers, label):
    """[L, H] as a table of colours."""
    figure.set_size_inches(1.5 + 0.45 * numbers.shape[1], 1.2 + 0.45 * numbers.shape[0])
    ax = figure.subplots()
    drawn = ax.imshow(numbers, cmap="viridis", vmin=0, vmax=1)
    ax.set(xlabel="head", ylabel="layer", xticks=range(numbers.shape[1]), yticks=range(numbers.shape[0]))
    figure.colorbar(drawn, ax=ax, label=label)


def of_rows(numbers, seen, average):
    """[L, H], over rows as in .found: those that see no key, and those with a NaN, are left out."""
    heads = stacked(numbers, 1)
    there = (stacked(seen.statistics.visible_keys, 1) > 0) & ~np.isnan(heads)
    return np.array([[average(rows[left]) if left.any() else np.nan for rows, left in zip(*layer)] for layer in zip(heads, there)])


def entropy(figure, seen, *_):
    share = entropy_share(seen.statistics.entropy, seen.statistics.visible_keys)
    of_layers(figure, of_rows(share, seen, np.mean), "entropy share, mean over rows")


def max_weight(figure, seen, *_):
    of_layers(figure, of_rows(seen.statistics.max_weight, seen, np.median), "largest weight, median over rows")


def histogram(figure, seen, *_):
    counts = stacked(seen.score_histogram, 1)[..., 1:-1].sum((0, 1))
    edges = np.linspace(-32, 32, 257)
    full = np.flatnonzero(counts)
    ax = figure.subplots()
    ax.stairs(counts, edges, fill=True)
    if full.size:
        ax.set_xlim(edges[full[0]], edges[full[-1] + 1])
    ax.set(xlabel="score", ylabel="visible scores, all heads")


def distance(figure, seen, *_):
    mass = stacked(seen.distance_mass, 1)
    share = mass / np.maximum(mass.sum(-1, keepdims=True), np.finfo(mass.dtype).tiny)
    reach = mass.shape[-1] // 2
    ax = figure.subplots()
    for layer, heads in enumerate(share):
        ax.plot(range(-reach, reach + 1), heads.mean(0), label=f"layer {layer}")
    ax.set(xlabel="key - position of the query", ylabel="share of the weight, mean over heads")
    ax.legend(fontsize=8)


def keys(figure, seen, *_):
    sums = stacked(seen.column_sums, 1)
    ax = figure.subplots()
    for layer, heads in enumerate(sums):
        ax.plot(heads.sum(0) / np.maximum(heads.sum(), np.finfo(sums.dtype).tiny), label=f"layer {layer}")
    if seen.tokens and len(seen.tokens) <= 48:
        ax.set_xticks(range(len(seen.tokens)), seen.tokens, rotation=90, parse_math=False)
    ax.set(xlabel="key", ylabel="share of all weight")
    ax.legend(fontsize=8)


def of_table(title, columns):
    """All columns of numbers against the first ones, as many as it takes to tell rows apart."""
    keys = leading(columns)
    rest = [name for name, values in columns.items() if np.asarray(values).dtype.kind in "fiu" and name not in keys]
    made = pyplot().Figure(figsize=(7, 1 + 1.6 * ((len(rest) + 2) // 3)), layout="constrained")
    axes = made.subplots(-(-len(rest) // 3), min(3, len(rest)), squeeze=False)
    places = labels(columns, keys)
    step = -(-len(places) // MOST_LABELS)
    for ax, name in zip(axes.flat, rest):
        ax.bar(range(len(places)), columns[name])
        ax.set_title(name, fontsize=9)
        ax.set_xticks(range(0, len(places), step), places[::step], rotation=90 if max(map(len, places)) > 3 else 0, fontsize=7,
                      parse_math=False)
    for ax in axes.flat[len(rest):]:
        ax.remove()
    made.suptitle(f"{title}, by {', '.join(keys)}")
    return made


def leading(columns):
    """The first column, and those behind it until no two rows have the same labels."""
    for n in range(1, len(columns)):
        keys = list(columns)[:n]
        if len(set(labels(columns, keys))) == len(columns[keys[0]]):
            return keys
    return list(columns)[:1]


def labels(columns, keys):
    """A row's, with four digits of what is no whole number."""
    told = [[f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value) for value in columns[name]] for name in keys]
    return [" ".join(row) for row in zip(*told)]
