"""Every flag that --help lists stands in a call that is accepted, and in some test beside this one.

That its name stands in a test is not enough: the call there may be one that is refused.
"""

import functools
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from cli_support import draw, heed, heed_ok, operands, save, save_bf16, snapshot

HERE = pathlib.Path(__file__).resolve().parent
TESTS = "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("test_cli_*.py"))
                if path.name != pathlib.Path(__file__).name)

SCORES = {"--scale": "0.7", "--normalize-qk": "", "--softcap": "0.5", "--alibi": "1,0.5,0.2,0.1", "--bias": "bias.npy",
          "--causal": "", "--window": "1,0", "--key-lengths": "4,2", "--query-lengths": "3,2", "--keep": "keep.npy",
          "--drop": "keep.npy", "--sinks": "0,1,-1,2"}
OTHERS = {"--layout": "bthd", "--max-bytes": "1G", "--threads": "2"}
RUN = {**SCORES, **OTHERS, "--query-start": ("in.npz -o out.npz --causal", "2"),
       "--dropout": ("in.npz -o out.npz --seed 1", "0.5"), "--seed": ("in.npz -o out.npz --dropout 0.5", "1"),
       "--output": ("in.npz", "out.npz"), "--weights": "", "--lse": "", "--gradients": ("in.npz -o out.npz --d-output d.npy", ""),
       "--d-output": ("in.npz -o out.npz --gradients", "d.npy"), "--dtype": "float64",
       "--reproducible": ("bf16.safetensors -o out.npz", ""), "--in-place": ("in.npz -o in.npz", ""), "--check-finite": "",
       "--allow-trailing": ("long.npy long.npy long.npy -o out.npz", ""), "--json": "", "--quiet": ""}
INSPECT = {**SCORES, **OTHERS, "--query-start": ("in.npz --json --causal", "2"), "--d-output": "d.npy", "--html": "page.html",
           "--pictures": "p", "--against": ("in.npz --pictures p", "other.npz"), "--rows": "1,2",
           "--tile": ("in.npz --html page.html", "1,1"), "--heads": ("in.npz --pictures p", "1.3"),
           "--top": ("in.npz --html page.html", "2"), "--map": ("in.npz --pictures p", "2"), "--tokens": "words.txt",
           "--saturation": "0.5", "--saturated": ("in.npz --json --saturation 0.5", "1"), "--peaked": "0.9", "--uniform": "0.1",
           "--range": "0.1", "--in-range": ("in.npz --json --range 0.1", "0"), "--sink": "0.01",
           "--vanishing": ("in.npz --json --d-output d.npy", "1"),
           "--vanished": ("in.npz --json --d-output d.npy --vanishing 1", "1"),
           "--comparable": ("in.npz --json --d-output d.npy", "1"), "--allow-trailing": ("long.npy long.npy", ""),
           "--json": ("in.npz", ""), "--quiet": ("in.npz", "")}
# One change to a call of each flag; a pair where the call is another one.
EACH = {"run": ("in.npz -o out.npz", RUN), "inspect": ("in.npz --json", INSPECT)}
# What changes nothing in them: limits that hold, and threads and instructions, which no bit depends on.
UNSEEN = {"--max-bytes", "--check-finite", "--threads", "--reproducible"}

# Calls that hold all flags together; measuring takes too long for a call of each.
TOGETHER = {
    "": ["--version"],
    "study": ["strategies --seed 2 --input in.npz --output-dir out --format csv", "strategies --numpy-seed 2 --json"],
    "bench": ["--batch 2 --heads 2/1 --n 8 --d 4 --dtype f64 --mask causal --layout bthd --decode-order key-by-key --threads 2 "
              "--weights --statistics --seconds 0.001 --check max_error<=1 --format csv", "--n 8 --d 4 --seconds 0.001 --json"],
    "info": ["--json"],
    "demo": [""],
}


def flags_of(*command):
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", heed_ok(*command, "--help"), re.M))


@pytest.fixture
def inputs(tmp_path):
    folder = tmp_path / "inputs"
    folder.mkdir()
    tensors = operands(kv_heads=4, queries=4, keys=4)
    save(folder / "in.npz", tensors)
    save(folder / "other.npz", operands(kv_heads=4, queries=4, keys=4, seed=9))
    save_bf16(folder / "bf16.safetensors", tensors)
    np.save(folder / "d.npy", draw(4, 2, 4, 4, 6))
    np.save(folder / "bias.npy", draw(5, 4, 4, 4))
    np.save(folder / "keep.npy", np.tril(np.ones((4, 4), bool)))
    np.save(folder / "long.npy", tensors["q"])
    with open(folder / "long.npy", "ab") as file:
        file.write(b"surplus")
    (folder / "words.txt").write_text("all\nof\nthe\nkeys\n")
    return folder


def effect(call, inputs):
    """Exit code, text and files, but for times and for what the call repeats of itself."""
    folder = inputs.parent / "call"
    shutil.copytree(inputs, folder)
    done = heed(*call.split(), folder=folder)
    text = re.sub(r"[\d.]+ [mu]?s, ", "", done.stdout)
    if text.startswith("{"):
        text = {name: value for name, value in json.loads(text).items() if name not in ("options", "settings", "seconds")}
    files = snapshot(folder)
    shutil.rmtree(folder)
    return done.returncode, text, files


def used_elsewhere(flags):
    return {flag for flag in flags if f'"{flag}"' in TESTS}


@pytest.mark.parametrize("command", EACH)
def test_every_flag_is_accepted_and_makes_a_difference(command, inputs):
    base, values = EACH[command]
    flags = flags_of(command)
    assert {*values, "--help"} == used_elsewhere(flags) == flags
    without = functools.cache(lambda call: effect(call, inputs))
    for flag, value in values.items():
        call, value = value if isinstance(value, tuple) else (base, value)
        done = effect(f"{command} {call} {flag} {value}", inputs)
        assert done[0] == 0, (call, flag)
        assert flag in UNSEEN or done != without(f"{command} {call}"), (call, flag)


@pytest.mark.parametrize("command", TOGETHER)
def test_every_flag_is_used(command, inputs):
    for call in TOGETHER[command]:
        heed_ok(*command.split(), *call.split(), folder=inputs)
    flags = flags_of(*command.split())
    assert {"--help", *re.findall(r"--[a-z-]+", " ".join(TOGETHER[command]))} == used_elsewhere(flags) == flags


@pytest.mark.parametrize("command", ["run in.npz -o out.npz", "inspect", "study variance", "bench"])
def test_a_value_of_nothing_is_not_the_next_word(command, inputs):
    command = command.split()
    flags = re.findall(r"^  (?:-\w,)?(--[a-z-]+) [A-Z]", heed_ok(command[0], "--help"), re.M)
    assert len(flags) > 3
    before = snapshot(inputs)
    for flag in flags:
        call = command[:2] if flag == "--output" else command
        done = heed(*call, f"{flag}=", "--json", folder=inputs)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.startswith(f"heed {command[0]}: {flag}: expected ") and "got ''" in done.stderr, done
    assert snapshot(inputs) == before


def test_the_list_of_flags_is_read_as_a_reader_would():
    assert {"--scale", "--normalize-qk", "--output", "--quiet", "--max-bytes"} <= flags_of("run")
    assert len(flags_of("run")) == 31
