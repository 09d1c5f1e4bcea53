"""heed info tells what runs here and why; heed --version and --help answer at once."""

import json
import os
import platform
import re
import signal
import sys

import pytest

from cli_support import ROOT, heed, heed_ok, operands, save

sys.path.insert(0, str(ROOT / "tests"))
import evidence  # noqa: E402

WORDS = ["scalar", "neon", "avx2", "avx512", "avx512_bf16", "neon_bf16"]
# What /proc/cpuinfo has of a CPU that runs a set of x86-64: what Highway asks for, beside the set below it.
NEEDED = {"avx2": "ssse3 sse4_1 sse4_2 pclmulqdq aes avx avx2 abm bmi1 bmi2 fma f16c", "avx512": "avx512f avx512vl avx512dq avx512bw",
          "avx512_bf16": "avx512_bf16"}


def info(**environment):
    return json.loads(heed_ok("info", "--json", env=environment))


def test_json_names_cpu_compiler_sets_and_threads():
    told = info()
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["version"])
    assert told["cpu"] and "+" in told["compiler"]
    names = [entry["name"] for entry in told["instruction_sets"]]
    assert names == sorted(names, key=WORDS.index) and names[0] == "scalar"
    best = [entry["name"] for entry in told["instruction_sets"]
            if entry["compiled"] and entry["supported"] and not entry["slow"]]
    assert told["instruction_set"] == best[-1]
    assert 1 <= told["threads"] <= len(os.sched_getaffinity(0))
    assert told["threads_from"] in ("affinity", "cgroup quota")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX")
def test_all_sets_are_compiled_and_those_that_the_system_lists_are_supported():
    told = {entry["name"]: entry for entry in info()["instruction_sets"]}
    missing = set()
    for name, flags in NEEDED.items():
        assert told[name]["compiled"], f"a build without {name}"
        missing |= set(flags.split()) - set(evidence.of_cpu("flags").split())
        assert told[name]["supported"] == (not missing), (name, missing)


@pytest.mark.parametrize("command", ["run", "inspect", "study", "bench", "info", "demo"])
def test_help_of_a_command_has_examples_of_it(command):
    text = heed_ok(command, "--help")
    assert re.search(rf"Examples:\n  heed {command}\b", text) and " ..." not in text
    assert "how fast this machine computes it" not in text  # those of the whole program


def test_a_mark_stands_before_names(tmp_path):
    save(tmp_path / "--q.npz", operands())
    heed_ok("run", "-q", "-o", "out.npz", "--", "--q.npz", folder=tmp_path)
    assert (tmp_path / "out.npz").exists() and heed_ok("info", "--") == heed_ok("info")


def test_a_slow_set_is_told_and_taken_where_it_is_named():
    for entry in info()["instruction_sets"]:
        if entry["slow"] and entry["compiled"] and entry["supported"]:
            line = f"  {entry['name']:<12} slower on this CPU; HEED_MAX_ISA={entry['name']} takes it\n"
            assert line in heed_ok("info")
            told = info(HEED_MAX_ISA=entry["name"])
            assert (told["instruction_set"], told["reason"]) == (entry["name"], f"HEED_MAX_ISA={entry['name']}")
            return
    assert "slower" not in heed_ok("info")


@pytest.mark.parametrize("cap", [{}, {"HEED_MAX_ISA": "avx512_bf16"}, {"HEED_MAX_ISA": "neon_bf16"},
                                 {"HEED_MAX_ISA": "scalar"}])
def test_what_matters_to_bfloat16_only_is_told_and_what_all_else_has(cap, tmp_path):
    save(tmp_path / "in.npz", operands())
    ran = json.loads(heed_ok("run", "in.npz", "-o", "out.npz", "--json", folder=tmp_path, env=cap))["instruction_set"]
    told = info(**cap)
    assert told["instruction_set_but_bfloat16"] == ran
    used = re.findall(r"^  (\w+) +used: (.*)", heed_ok("info", env=cap), re.M)
    if ran == told["instruction_set"]:
        assert used == [(ran, told["reason"])]
    else:
        assert used == [(ran, "for all types but bfloat16"),
                        (told["instruction_set"], told["reason"] + "; for bfloat16 only")]
        assert told["instruction_set"] in ("avx512_bf16", "neon_bf16")


def test_cap_is_told():
    told = info(HEED_MAX_ISA="scalar")
    assert (told["instruction_set"], told["reason"]) == ("scalar", "HEED_MAX_ISA=scalar")
    assert "  scalar       used: HEED_MAX_ISA=scalar\n" in heed_ok("info", env={"HEED_MAX_ISA": "scalar"})


@pytest.mark.parametrize("variables,number,source", [
    ({"HEED_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3, "HEED_NUM_THREADS"),
    ({"OMP_NUM_THREADS": "5,2"}, 5, "OMP_NUM_THREADS")])
def test_threads_and_where_the_number_comes_from(variables, number, source):
    told = info(**variables)
    assert (told["threads"], told["threads_from"]) == (number, source)
    assert f"threads   {number}, from {source}\n" in heed_ok("info", env=variables)


def test_text_has_a_line_for_everything():
    text = heed_ok("info")
    for word in ("heed      ", "compiler  ", "CPU       ", "threads   ", "instruction sets\n", "used: "):
        assert word in text


def test_version():
    assert heed_ok("--version") == f"heed {info()['version']}\n"


@pytest.mark.parametrize("command", [[], ["run"], ["inspect"], ["study"], ["bench"], ["info"], ["demo"]])
def test_help_is_at_most_100_wide_and_goes_to_stdout(command):
    text = heed_ok(*command, "--help")
    assert text == heed_ok(*command, "-h")
    assert "Usage: heed" in text and max(map(len, text.splitlines())) <= 100


def test_help_shows_examples_before_flags():
    for command in ([], ["run"], ["study"], ["bench"]):
        text = heed_ok(*command, "--help")
        assert 0 < text.index("Examples:") < text.index("Usage:") < text.index("Flags:")


def test_help_is_a_word_too():
    assert heed_ok("help") == heed_ok("--help")
    assert heed_ok("help", "run") == heed_ok("run", "--help")


def test_every_exit_code_is_told_by_help_and_by_the_readme():
    header = (ROOT / "cli/exit_codes.h").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"^  \w+ = (\d+)", header, re.M)} - {128}
    codes |= {128 + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)}
    assert len(codes) == 10
    told = heed_ok("--help").split("Exit codes:\n")[1]
    assert {int(code) for code in re.findall(r"(?:^  |; )(\d+)\b", told, re.M)} == codes
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| exit code |")[1].split("\n\n")[0]
    assert {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.M) for code in row.split(",")} == codes
    for meaning in re.findall(r"^  [0-6] +(.*)", told, re.M):
        assert meaning in table.replace("`", ""), meaning


def test_unknown_words_in_the_environment_are_refused():
    done = heed("info", env={"HEED_MAX_ISA": "sse9"})
    assert done.returncode == 2 and done.stdout == "" and "sse9" in done.stderr
