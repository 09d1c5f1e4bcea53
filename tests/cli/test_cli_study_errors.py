"""heed study: what is refused, in one line, with nothing written."""

import numpy as np
import pytest

from cli_support import heed, save, snapshot

REFUSED = {
    "none": ([], 2, "no study given; heed study --help lists them, heed study all runs them"),
    "misspelt": (["varience"], 2, "unknown study 'varience'; did you mean variance?"),
    "strange": (["masks", "joy"], 2, "unknown study 'joy'; expected variance, scaling, gradients, "
                "strategies, initialisation, complexity, masks, precision, training or all"),
    "two_seeds": (["masks", "--seed", "1", "--numpy-seed", "1"], 2, "--seed and --numpy-seed exclude each other"),
    "seed": (["masks", "--seed", "-1"], 2, "--seed: expected 0 to 18446744073709551615, got -1"),
    "numpy_seed": (["masks", "--numpy-seed", "4294967296"], 2,
                   "--numpy-seed: expected 0 to 4294967295, got 4294967296"),
    "numpy_seed_of_20_digits": (["masks", "--numpy-seed", "99999999999999999999"], 2,
                                "--numpy-seed: expected 0 to 4294967295, got 99999999999999999999"),
    "two_formats": (["masks", "--json", "--format", "csv"], 2, "--json and --format exclude each other"),
    "format": (["masks", "--format", "xml"], 2, "--format: expected table, markdown, csv or jsonl, got 'xml'"),
    "input": (["masks", "--input", "q.npz"], 2, "--input: only scaling, gradients and strategies take tensors"),
    "training_numpy": (["training", "--numpy-seed", "1"], 2,
                       "--numpy-seed: training draws from heed's own generator only; give --seed"),
    "missing": (["scaling", "--input", "q.npz"], 4, "q.npz: cannot open: No such file or directory"),
    "table_and_json": (["masks", "--json", "--format", "table"], 2, "--json and --format exclude each other"),
    "folder": (["initialisation", "-o", "file"], 4, "file: cannot make the folder: HERE/file is no folder"),
    "below": (["initialisation", "-o", "file/new"], 4, "file/new: cannot make the folder: HERE/file is no folder"),
    "taken": (["initialisation", "-o", "."], 4, "./initialisation.csv: cannot write: it exists and is no regular file"),
    **{f"dangling{below}": (["initialisation", "-o", f"dangling{below}"], 4, f"dangling{below}: cannot make the folder: "
                            "HERE/dangling is no folder") for below in ("", "/", "/new")},
    **{f"{name} in the place of {result}": (["all", "--input", name, "-o", "sd"], 2, f"--output-dir: sd/{result} is the input {name}")
       for name, result in (("sd/scaling.csv", "scaling.csv"), ("own.npz", "strategies.svg"))},
    "lengths": (["scaling", "--input", "unequal.npz"], 2, "head size of k is 3, of q 4; they must be equal"),
    "empty": (["scaling", "--input", "empty.npz"], 2, "k has shape [0, 4]; expected axes of length 1 or more"),
    "no_size": (["scaling", "--input", "no_size.npz"], 2, "q has shape [2, 0]; expected axes of length 1 or more"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_call_is_refused_in_one_line(case, tmp_path):
    (tmp_path / "file").write_text("x")
    save(tmp_path / "unequal.npz", {"q": np.ones((2, 4)), "k": np.ones((2, 3)), "v": np.ones((2, 3))})
    save(tmp_path / "empty.npz", {"q": np.ones((2, 4)), "k": np.ones((0, 4)), "v": np.ones((0, 4))})
    save(tmp_path / "no_size.npz", {name: np.ones((2, 0)) for name in "qkv"})
    (tmp_path / "dangling").symlink_to("gone/away")
    (tmp_path / "sd").mkdir()
    for name in ("sd/scaling.csv", "own.npz"):
        save(tmp_path / "in.npz", {name: np.ones((2, 4)) for name in "qkv"})
        (tmp_path / "in.npz").rename(tmp_path / name)
    (tmp_path / "sd" / "strategies.svg").symlink_to("../own.npz")
    (tmp_path / "initialisation.csv").mkdir()
    arguments, code, message = REFUSED[case]
    message = message.replace("HERE", str(tmp_path))
    before = snapshot(tmp_path)
    done = heed("study", *arguments, folder=tmp_path, limit=20)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"heed study: {message}\n")
    assert snapshot(tmp_path) == before
