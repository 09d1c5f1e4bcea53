"""heed inspect: the files it writes and refuses to write, wrong calls, memory."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from cli_support import HEED, SANITIZED, draw, heed, heed_ok, peak_bytes, save_file, snapshot
from inspect_support import inspect, save


def test_a_page_is_written_and_holds_the_numbers(tmp_path):
    q, k = draw(50, 2, 3, 9, 8), draw(51, 2, 3, 9, 8)
    path = save(tmp_path, q=q, k=k)
    text = heed_ok("inspect", path, "--html", tmp_path / "page.html", "--rows", "2,4")
    assert text.endswith(f"written to {tmp_path / 'page.html'}\n")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")   # nothing to fetch
    (tmp_path / "shut").mkdir()
    done = heed("inspect", path, "--html", tmp_path / "none" / "page.html")
    assert done.returncode == 4 and "none" in done.stderr


def test_a_file_that_is_read_is_never_replaced(tmp_path):
    q, k = draw(75, 1, 1, 9, 8), draw(76, 1, 1, 9, 8)
    path = save(tmp_path, q=q, k=k)
    (tmp_path / "words.txt").write_text("w\n" * 9)
    (tmp_path / "link.html").symlink_to(path)
    for folder in ("all", "own"):
        (tmp_path / folder).mkdir()
    (tmp_path / "all" / "poster.csv").symlink_to(tmp_path / "words.txt")
    np.save(tmp_path / "bias.npy", np.zeros((9, 9), np.float32))
    before = snapshot(tmp_path)
    for flags in [("--html", path), ("--html", tmp_path / "link.html"),
                  ("--html", tmp_path / "all" / ".." / path.name),
                  ("--tokens", tmp_path / "words.txt", "--html", tmp_path / "words.txt"),
                  ("--bias", tmp_path / "bias.npy", "--html", tmp_path / "bias.npy"),
                  ("--tokens", tmp_path / "words.txt", "--pictures", tmp_path / "all"),
                  ("--pictures", tmp_path / "new", "--html", tmp_path / "words.txt", "--against",
                   tmp_path / "words.txt"),
                  ("--pictures", tmp_path / "new", "--html", tmp_path / "new"),
                  ("--pictures", tmp_path / "new.html" / "below", "--html", tmp_path / "all" / ".." / "new.html"),
                  ("--pictures", tmp_path / "own", "--html", tmp_path / "own" / "poster.svg")]:
        done = heed("inspect", path, *flags)
        assert done.returncode in (2, 4), (flags, done)
        assert done.returncode == 4 or " is the " in done.stderr, (flags, done.stderr)
        assert snapshot(tmp_path) == before, flags
    assert done.stderr.endswith("poster.svg is the page of --html\n")
    done = heed("inspect", path, "--pictures", tmp_path / "new", "--html", tmp_path / "new" / "poster.svg")
    assert done.returncode == 2 and done.stderr.endswith("poster.svg is the page of --html\n") and snapshot(tmp_path) == before


@pytest.mark.parametrize("folder", ["drawn", "drawn/", "./drawn", "drawn/below"])
def test_a_page_may_lie_in_the_folder_that_is_made_for_pictures(folder, tmp_path):
    path = save(tmp_path, q=draw(75, 1, 1, 9, 8), k=draw(76, 1, 1, 9, 8))
    page = folder + "/page.html"
    text = heed_ok("inspect", path, "--pictures", folder, "--html", page, folder=tmp_path)
    assert f"written to {page}\n" in text and (tmp_path / page).is_file() and (tmp_path / folder / "poster.svg").is_file()


def test_places_that_cannot_be_written_are_refused_before_any_work(tmp_path):
    path = tmp_path / "none.npz"   # not even read
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to("gone")
    for flags, told in [(("--html", tmp_path / "folder"), "folder: cannot write"),
                        (("--html", tmp_path / ("a" * 256)), "cannot write: File name too long"),
                        (("--pictures", tmp_path / ("a" * 256)), "cannot make the folder: File name too long"),
                        (("--html", tmp_path / "none" / "page.html"), "page.html: cannot open"),
                        (("--pictures", tmp_path / "file"), "file: cannot make the folder"),
                        (("--pictures", tmp_path / "dangling", "--html", tmp_path / "page.html"), "dangling is no folder"),
                        (("--pictures", tmp_path / "file" / "below"), "cannot make the folder")]:
        done = heed("inspect", path, *flags)
        assert done.returncode == 4 and told in done.stderr and ".npy" not in done.stderr, done
    (tmp_path / "left").mkdir()
    done = subprocess.run(["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", HEED, "inspect", path, "--pictures", "s"],
                          cwd=tmp_path / "left", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (4, "heed inspect: s: cannot make the folder: No such file or directory\n")


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is(tmp_path):
    path = save(tmp_path, q=draw(77, 1, 1, 12, 8), k=draw(78, 1, 1, 12, 8))
    (tmp_path / "all" / "story_l0_h0_row9.svg").mkdir(parents=True)
    before = snapshot(tmp_path)
    done = heed("inspect", path, "--rows", "9", "--html", "r.html", "--pictures", "all", folder=tmp_path)
    told = "heed inspect: all/story_l0_h0_row9.svg: cannot write: it exists and is no regular file\n"
    assert (done.returncode, done.stdout, done.stderr) == (4, "", told)
    assert snapshot(tmp_path) == before
    (tmp_path / "all" / "story_l0_h0_row9.svg").rmdir()
    heed_ok("inspect", path, "--rows", "9", "--html", "r.html", "--pictures", "all", folder=tmp_path)


def test_a_call_that_fails_leaves_nothing_behind(tmp_path):
    path = save(tmp_path, q=draw(77, 1, 1, 9, 8), k=draw(78, 1, 1, 9, 8))
    np.savez(tmp_path / "other.npz", q=draw(79, 1, 1, 5, 8), k=draw(80, 1, 1, 5, 8))
    (tmp_path / "words.txt").write_text("w\n" * 9)
    (tmp_path / "bad.npz").write_text("no archive")
    before = snapshot(tmp_path)
    page, folder = ("--html", tmp_path / "r.html"), ("--pictures", tmp_path / "new")
    done = heed("inspect", path, "--against", tmp_path / "other.npz", "--rows", "7", "--tokens",
                tmp_path / "words.txt", *page, *folder)
    assert done.returncode == 2 and "cannot be compared" in done.stderr
    assert snapshot(tmp_path) == before
    assert heed("inspect", path, "--against", tmp_path / "bad.npz", *page, *folder).returncode == 3
    assert heed("inspect", tmp_path / "bad.npz", *page, *folder).returncode == 3
    assert snapshot(tmp_path) == before


def test_pictures_are_written_with_their_numbers(tmp_path):
    q, k = draw(52, 1, 2, 9, 8), draw(53, 1, 2, 9, 8)
    path = save(tmp_path, q=q, k=k)
    text = heed_ok("inspect", path, "--pictures", tmp_path / "all", "--causal")
    files = sorted(file.name for file in (tmp_path / "all").iterdir())
    assert text.endswith(f"{len(files)} files written to {tmp_path / 'all'}\n")
    for name in ["poster", "entropy", "saturation", "mask", "histogram", "distance", "head_l0_h1",
                 "arcs_l0_h0", "story_l0_h0_row4"]:
        assert f"{name}.svg" in files and f"{name}.csv" in files, name
    rasters = sorted((tmp_path / "all").glob("*.png"))
    assert [file.stem for file in rasters] == ["entropy", "head_l0_h0", "head_l0_h1", "mask", "poster", "saturation"]
    assert {file.read_bytes()[:8] for file in rasters} == {b"\x89PNG\r\n\x1a\n"}
    # the mean distance of the CSV is that of the JSON, to the last digit
    lines = (tmp_path / "all" / "distance.csv").read_text().splitlines()
    told = [repr(x) if x else "0" for x in inspect(path, "--causal")["found"][0]["distance_mass"]]
    cells = {cell for line in lines for cell in line.split(",")}
    assert [x for x in told if x not in cells and x.removesuffix(".0") not in cells] == []


def test_two_runs_are_compared(tmp_path):
    (tmp_path / "before").mkdir()
    before = save(tmp_path / "before", q=draw(54, 1, 2, 9, 8), k=draw(55, 1, 2, 9, 8))
    after = save(tmp_path, q=draw(56, 1, 2, 9, 8), k=draw(55, 1, 2, 9, 8))
    heed_ok("inspect", after, "--against", before, "--pictures", tmp_path / "both", "--quiet")
    lines = (tmp_path / "both" / "difference_numbers.csv").read_text().splitlines()
    first, second = inspect(before)["found"][1], inspect(after)["found"][1]
    row = next(line.split(",") for line in lines
               if line.startswith("0,1,") and "entropy_share," in line)
    numbers = [float(cell) for cell in row[3:] if cell.replace(".", "").replace("-", "").replace("e", "").isdigit()]
    assert first["entropy_share"]["mean"] in numbers and second["entropy_share"]["mean"] in numbers
    other = save(tmp_path / "before", q=draw(57, 1, 3, 9, 8), k=draw(58, 1, 3, 9, 8))
    after, other = after.relative_to(tmp_path), other.relative_to(tmp_path)
    done = heed("inspect", after, "--against", other, "--pictures", "both", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2, "", f"heed inspect: --against: {other} cannot be compared: two runs are compared head by head and cell by cell; these "
        f"differ in size: {other}; 1 x 3 heads, 9 queries, 9 keys and {after}; 1 x 2 heads, 9 queries, 9 keys\n")


# The file of --against, flags beside it, exit code, message; q is [2, 4, 9, 8], k [2, 2, 9, 8].
AGAINST = {
    "flag": ({"q": (3, 4, 9, 8), "k": (3, 2, 9, 8)}, ["--key-lengths", "3,4"], 2,
             "b.npz: --key-lengths has shape [2]; expected [3], one for each batch entry"),
    "option": ({"q": (2, 4, 9, 8), "k": (2, 2, 9, 8), "key_lengths": (3,)}, [], 2, "b.npz: key_lengths "),
    "gradient": ({"q": (2, 4, 9, 8), "k": (2, 2, 9, 8)}, ["--d-output", "g.npy"], 2,
                 "b.npz: --d-output is given, but no v: gradients take both; put v into the file\n"),
    "no_v": ({"q": (2, 4, 9, 8), "k": (2, 2, 9, 8), "d_output": (2, 4, 9, 8)}, [], 3,
             "b.npz: d_output is given, but no v: gradients take both; put v into the file\n"),
    "size": ({"q": (2, 4, 9, 8), "k": (2, 2, 9, 5)}, [], 2,
             "b.npz: head size of k is 5, of q 8; they must be equal\n"),
    "rank": ({"q": (2, 4, 9, 8), "k": (2, 2, 9, 8), "bias": (1, 1, 1, 1, 1)}, [], 2,
             "b.npz: bias has 5 axes, [1, 1, 1, 1, 1]; expected at most 4\n"),
    "no_q": ({"k": (2, 2, 9, 8)}, [], 3, "b.npz: no tensor named q; found k\n"),
    "refused": ({"q": (2, 4, 9, 8), "k": (2, 2, 9, 8), "softcap": ()}, [], 2,
                "b.npz holds a tensor named softcap, which only the flag --softcap sets; leave the tensor out\n"),
    "missing": (None, [], 4, "b.npz: cannot open: No such file or directory\n"),
    "heads": ({"q": (2, 3, 9, 8), "k": (2, 3, 9, 8)}, ["--heads", "1.3"], 2, "b.npz cannot be compared: two runs "),
    "memory": ({"q": (2, 4, 9000, 8), "k": (2, 2, 9000, 8)}, ["--max-bytes", "40M"], 5, "b.npz: the inspection "),
}


@pytest.mark.parametrize("name,shown,said", [("head", "head", "head size of k is 5, of q 8; they must be equal\n"),
                                             ("a\nb", "a\\nb", "head size of k is 5, of q 8; they must be equal\n"),
                                             ("no\nfile", "no\\nfile", "cannot open: No such file or directory\n")])
def test_the_file_of_the_other_run_is_named_once_whatever_its_name(name, shown, said, tmp_path):
    for seed, one in enumerate("qk"):
        np.save(tmp_path / f"{one}.npy", draw(seed, 2, 2, 9, 8))
    if "file" not in name:
        np.savez(tmp_path / "b.npz", q=draw(5, 2, 2, 9, 8), k=draw(6, 2, 2, 9, 5))
        (tmp_path / "b.npz").rename(tmp_path / name)
    done = heed("inspect", "q.npy", "k.npy", "--against", name, "--pictures", "p", folder=tmp_path)
    assert done.stderr == f"heed inspect: --against: {shown}: {said}", done.stderr


def test_warnings_of_the_other_run_name_its_file(tmp_path):
    for name, tokens in ("one", 9), ("other", 3):
        save_file({"q": draw(1, 1, 2, 9, 8), "k": draw(2, 1, 2, 9, 8), "more": np.zeros(1)}, tmp_path / f"{name}.safetensors",
                  metadata={"tokens": json.dumps(["t"] * tokens)})
    done = heed("inspect", "one.safetensors", "--against", "other.safetensors", "--pictures", "p", folder=tmp_path)
    told = done.stderr.splitlines()
    assert len(told) == 2 and all("more" in line for line in told), told
    assert told[1] == told[0].replace("heed inspect: ", "heed inspect: --against: other.safetensors: ").replace("of one", "of other")


@pytest.mark.parametrize("case", AGAINST)
def test_an_error_of_the_other_run_names_its_file(case, tmp_path):
    shapes, flags, code, message = AGAINST[case]
    for seed, (name, heads) in enumerate((("q", 4), ("k", 2), ("v", 2), ("g", 4))):
        np.save(tmp_path / f"{name}.npy", draw(seed, 2, heads, 9, 8))
    if shapes is not None:
        np.savez(tmp_path / "b.npz", **{name: draw(5, *shape) for name, shape in shapes.items()})
    before = snapshot(tmp_path)
    done = heed("inspect", "q.npy", "k.npy", "v.npy", *flags, "--against", "b.npz", "--pictures", "p", folder=tmp_path)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert done.stderr.startswith(f"heed inspect: --against: {message}"), done.stderr
    assert done.stderr.count("b.npz") == (2 if case == "heads" else 1) and snapshot(tmp_path) == before


@pytest.mark.parametrize("tensors, flags, code, message", [
    ({}, ["--top", "0"], 2, "--top: expected 1 to 64, got 0"),
    ({}, ["--map", "257"], 2, "--map: expected 1 to 256, got 257"),
    ({}, ["--rows", "5"], 2, "--rows: expected 0 to 4, got 5"),
    ({}, ["--rows", "-1"], 2, "--rows: expected 0 to 4, got -1"),
    ({}, ["--threads", "-1"], 2, "--threads: expected 0 to 4096, got -1"),
    ({}, ["--softcap", "0"], 2, "--softcap is 0; expected 2^-100 .. 2^100"),
    ({}, ["--against", "x.npz"], 2,
     "--against: what changed is shown by pictures; give --pictures FOLDER"),
    ({}, ["--tile", "1,1"], 2, "--tile: exact tiles are shown by the report; give --html FILE"),
    *[({}, ["--range", x], 2, f"--range: expected a number from 2^-1022 to below 2^1023, got {x}")
      for x in ("-3", "0", "inf", "nan", "1e-310", "1e+308", "8.98846567431158e+307")],
    ({}, ["--in-range", "2"], 2, "--in-range: expected 0 to 1, got 2"),
    ({}, ["--sink", "-1"], 2, "--sink: expected 0 to 1, got -1"),
    *[({}, [flag, x], 2, f"{flag}: expected {expected}, got {x}")
      for flag, x, expected in (("--saturation", "1.0000001", "0 to 1"), ("--vanishing", "-1e-300", "0 to 1"),
                                ("--comparable", "0.99999999", "a finite number from 1 on"))],
    ({}, ["--saturated", "1.1"], 2, "--saturated: expected 0 to 1, got 1.1"),
    ({"k": draw(1, 1, 1, 5, 3)}, [], 2, "head size of k is 3, of q 8; they must be equal"),
])
def test_wrong_calls_say_what_is_wrong(tmp_path, tensors, flags, code, message):
    path = save(tmp_path, **{"q": draw(1, 1, 1, 5, 8), "k": draw(2, 1, 1, 5, 8), **tensors})
    done = heed("inspect", path, *flags)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"heed inspect: {message}\n"


@pytest.mark.parametrize("bound", [sys.float_info.min, sys.float_info.max / 2])
def test_the_widest_and_the_narrowest_range_are_taken(bound, tmp_path):
    path = save(tmp_path, q=draw(1, 1, 1, 5, 8), k=draw(2, 1, 1, 5, 8))
    assert inspect(path, "--range", repr(bound))["found"][0]["in_range"] == (bound > 1)


@pytest.mark.parametrize("q, k", [((1, 2, 0, 4), (1, 2, 3, 4)), ((1, 2, 3, 4), (1, 2, 0, 4))])
def test_what_there_is_nothing_of_is_no_number(tmp_path, q, k):
    path = save(tmp_path, q=np.ones(q, np.float32), k=np.ones(k, np.float32))
    text = heed_ok("inspect", path)
    assert "nan" not in text and " - " in text
    path = save(tmp_path, q=np.full((1, 2, 3, 4), np.nan, np.float32), k=np.ones((1, 2, 3, 4), np.float32))
    assert "nan .. nan" in heed_ok("inspect", path)


def test_a_file_without_keys_is_refused(tmp_path):
    done = heed("inspect", save(tmp_path, q=draw(1, 1, 1, 5, 8)))
    assert done.returncode == 3
    assert "no tensor named k; found q" in done.stderr


def test_one_npy_file_is_not_enough(tmp_path):
    np.save(tmp_path / "q.npy", draw(1, 5, 8))
    done = heed("inspect", tmp_path / "q.npy")
    assert done.returncode == 2 and done.stderr.endswith("give two files, Q.npy K.npy\n")


def test_positions_may_be_as_far_as_they_can(tmp_path):
    path = save(tmp_path, q=draw(1, 1, 1, 5, 8), k=draw(2, 1, 1, 5, 8))
    for start in [2**63 - 1, -2**63]:
        assert inspect(path, "--query-start", start)["found"][0]["empty_rows"] == 0


def test_nothing_to_look_at_is_no_error(tmp_path):
    for q, k in [((1, 1, 0, 8), (1, 1, 5, 8)), ((1, 1, 5, 8), (1, 1, 0, 8)), ((0, 2, 5, 8), (0, 2, 5, 8))]:
        told = json.loads(heed_ok("inspect", save(tmp_path, q=np.zeros(q, np.float32), k=np.zeros(k, np.float32)), "--json"))
        assert told["queries"] == q[2] and len(told["found"]) == q[0] * q[1]


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
def test_long_input_takes_no_square_of_memory(tmp_path):
    q, k = draw(1, 1, 1, 8192, 8), draw(2, 1, 1, 8192, 8)
    path = save(tmp_path, q=q, k=k)
    told = inspect(path, "--causal", "--allow-trailing", "--rows", "4000")
    assert told["found"][0]["entropy_share"]["rows"] == 8192
    assert [top["row"] for top in told["found"][0]["top"]][:1] in ([0], [4000])
    # the square would be 256 MiB
    assert peak_bytes("inspect", path, "--causal", "--json") < 100 << 20


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
def test_max_bytes_bounds_the_results_too(tmp_path):
    q, k = draw(1, 8, 8, 512, 8), draw(2, 8, 8, 512, 8)   # 2 MiB each
    path = save(tmp_path, q=q, k=k)
    done = heed("inspect", path, "--max-bytes", "8M")
    assert done.returncode == 5 and done.stdout == ""
    assert "more than the 8.0 MiB of --max-bytes" in done.stderr
    least = 4 << 20   # what it takes by its own word, and in truth
    while heed("inspect", path, "--max-bytes", least, "--json").returncode == 5:
        least = least * 5 // 4
    empty = peak_bytes("inspect", "--json")
    assert peak_bytes("inspect", path, "--json") - empty < least


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("shapes, flags", [
    (((1, 40, 32, 2), (1, 40, 500, 2)), ["--rows", ",".join(map(str, range(32)))]),   # each number of a story
    (((1, 1, 60_000, 1), (1, 1, 1, 1)), ["--top", "1"])])                             # each row
def test_max_bytes_bounds_what_json_says_too(shapes, flags, tmp_path):
    call = ["inspect", save(tmp_path, q=draw(1, *shapes[0]), k=draw(2, *shapes[1])), *flags, "--json"]
    least = 4 << 20
    while heed(*call, "--max-bytes", least).returncode == 5:
        least = least * 9 // 8
    assert peak_bytes(*call) - peak_bytes("info") < least < 256 << 20


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("letter", ["x", "\x01"])   # which is written as four
def test_max_bytes_bounds_a_long_token_in_every_row(letter, tmp_path):
    q, k = np.zeros((1, 4, 48, 2), np.float32), np.zeros((1, 4, 1000, 2), np.float32)
    q[..., 0], k[:, :, 0, 0] = 10, 10   # all look at the first key
    (tmp_path / "tokens").write_text("\n".join([letter * 100_000, *"y" * 999]))
    call = ["inspect", save(tmp_path, q=q, k=k), "--tokens", tmp_path / "tokens", "--pictures", tmp_path / "drawn", "-q"]
    least = 8 << 20
    while heed(*call, "--max-bytes", least).returncode == 5:
        least = least * 9 // 8
    assert peak_bytes(*call) - peak_bytes("info") < least < 256 << 20


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("place, form", [("file", "--json"), ("file", "--quiet"), ("metadata", "--json")])
def test_max_bytes_bounds_the_tokens_too(place, form, tmp_path):
    path, flags, tokens = tmp_path / "qk.safetensors", [form], [[]] * 1_000_000   # no strings, and not used
    if place == "file":      # 12 MiB, of which JSON makes 72
        tokens, flags = ["\x01" * 2**21] * 6, [form, "--tokens", tmp_path / "tokens"]
        (tmp_path / "tokens").write_text("\n".join(tokens))
    save_file({"q": draw(1, 1, 1, 6, 8), "k": draw(2, 1, 1, 6, 8)}, path,
              metadata={} if place == "file" else {"tokens": json.dumps(tokens, separators=(",", ":"))})
    least = 13 << 20
    while (done := heed("inspect", path, *flags, "--max-bytes", least)).returncode == 5:
        assert "leaves no more" in done.stderr or "more than the" in done.stderr
        least = least * 9 // 8
    assert done.returncode == 0 and peak_bytes("inspect", path, *flags) - peak_bytes("info") < least < 512 << 20


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("flags", [("--html", "r.html"), ("--pictures", "all", "--map", "256"),
                                   ("--pictures", "all", "--against", "qk.safetensors", "--html", "r.html")])
def test_max_bytes_bounds_page_and_pictures_too(tmp_path, flags):
    path = save(tmp_path, q=draw(1, 3, 8, 256, 8), k=draw(2, 3, 8, 256, 8))
    flags = [str(tmp_path / flag) if flag[0] != "-" and not flag.isdigit() else flag for flag in flags]
    limit = ("--max-bytes", 4 << 20)   # enough to read what there is

    def told(*more):
        done = heed("inspect", path, "--quiet", *more, *limit)
        assert done.returncode == 5 and not (tmp_path / "all").exists(), done
        number, unit = re.search(r" take[s]? ([\d.]+) (\w+), more than the 4.0 MiB of --max-bytes", done.stderr).groups()
        assert ("inspection and what is drawn of it take " in done.stderr) == bool(more)
        return float(number) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit]

    with_them = told(*flags)
    assert with_them > told()
    assert peak_bytes("inspect", path, "--quiet", *flags) - peak_bytes("info") < with_them
    heed_ok("inspect", path, "--quiet", *flags, "--max-bytes", int(1.01 * with_them))


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("flags", [(), ("--rows", "7")])
def test_the_mask_is_looked_at_for_pictures_only(tmp_path, flags):
    # 2^20 pairs at a time, of scores and weights in two types: 24 MiB, where all else takes a few
    path = save(tmp_path, q=draw(1, 1, 1, 2048, 8), k=draw(2, 1, 1, 2048, 8))
    numbers = peak_bytes("inspect", path, "--causal", *flags)
    drawn = peak_bytes("inspect", path, "--causal", *flags, "--html", tmp_path / "r.html")
    assert drawn - numbers > 12 << 20
