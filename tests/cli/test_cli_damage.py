"""Damaged files at the command line: cut, or with a bit turned over, they are refused in one line, or are
legal tensors; nothing else is written. The library's tests read every cut and every bit (damage_test.cc);
here a part of them goes through the program, each in a folder and a process of its own."""

import concurrent.futures
import io
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save as safetensors_bytes

from cli_support import HEED, SANITIZED, draw, load

DATA = 16 * 30 * 4  # bytes of the damaged file's elements: with headers about 2 KiB
Q, K, V = draw(1, 16, 30), draw(2, 7, 30), draw(3, 7, 5)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(array):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("q.npy"), npy(array))
    return file.getvalue()


SAMPLES = {"npy": npy(Q), "npz": npz(Q), "safetensors": safetensors_bytes({"q": Q})}


def start_of_data(whole):
    return whole.index(Q.tobytes())


def run_with(folder, ending, damaged):
    """Exit code, stdout, stderr and the output, of a run whose q is damaged, in a folder of its own."""
    place = pathlib.Path(tempfile.mkdtemp(dir=folder))
    (place / f"q.{ending}").write_bytes(damaged)
    done = subprocess.run([HEED, "run", f"q.{ending}", "../k.npy", "../v.npy", "-o", "out.npy", "--threads", "1"],
                          cwd=place, capture_output=True, text=True, timeout=600)
    output = load(place / "out.npy")["output"] if done.returncode == 0 else None
    assert (place / f"q.{ending}").read_bytes() == damaged
    assert sorted(os.listdir(place)) == [*(["out.npy"] if done.returncode == 0 else []), f"q.{ending}"]
    shutil.rmtree(place)
    return done.returncode, done.stdout, done.stderr, output


def runs(folder, ending, all_damaged):
    """The same of many, two at a time."""
    np.save(folder / "k.npy", K)
    np.save(folder / "v.npy", V)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda damaged: run_with(folder, ending, damaged), all_damaged))
    assert sorted(os.listdir(folder)) == ["k.npy", "v.npy"]
    return results


def is_refusal(ending, code, output, error):
    """ "heed run: FILE: [member ..:] expected E, found F, at offset N", in one line."""
    name = rf"heed run: q\.{ending}: "
    return code == 3 and output == "" and error[:-1].isprintable() and re.fullmatch(
        name + r'(member "[^\n]*": )?expected [^\n]+, found [^\n]+, at offset \d+\n', error)


@pytest.mark.parametrize("ending", SAMPLES)
def test_a_file_that_is_cut_is_a_bad_input(ending, tmp_path):
    """At every byte of the headers and every sixteenth of the elements; under sanitizers at each seventh of these."""
    whole = SAMPLES[ending]
    data = start_of_data(whole)
    cuts = [size for size in range(len(whole)) if not data < size < data + DATA or (size - data) % 16 == 0][::7 if SANITIZED else 1]
    for size, (code, output, error, _) in zip(cuts, runs(tmp_path, ending, [whole[:size] for size in cuts]), strict=True):
        assert is_refusal(ending, code, output, error), (size, code, output, error)


@pytest.mark.parametrize("ending", SAMPLES)
def test_a_header_bit_turned_over_is_a_bad_input_or_a_legal_tensor(ending, tmp_path):
    """Each twenty-ninth: all eight places in a byte, each field. A legal tensor may be one that does not fit
    k and v, or integers, which the command refuses (exit 2)."""
    whole = SAMPLES[ending]
    data = start_of_data(whole)
    bits = [bit for bit in range(0, 8 * len(whole), 29) if not data <= bit // 8 < data + DATA]
    damaged = []
    for bit in bits:
        turned = bytearray(whole)
        turned[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(turned))
    seen = set()
    for bit, (code, output, error, result) in zip(bits, runs(tmp_path, ending, damaged), strict=True):
        seen.add(code)
        if code == 0:
            assert error == "" and result.ndim >= 2 and result.shape[-1] == V.shape[-1], bit
        elif code == 2:
            assert output == "" and re.fullmatch("heed run: [^\n]+\n", error), (bit, output, error)
        else:
            assert is_refusal(ending, code, output, error), (bit, code, output, error)
    assert 3 in seen
