"""tests/tally.py: a skip that nobody gave a reason for fails a run, as a failure and a missing file do."""

import json
import pathlib
import platform
import re
import subprocess
import sys

import pytest

TALLY = pathlib.Path(__file__).resolve().parents[1] / "tally.py"
sys.path.insert(0, str(TALLY.parent))
import evidence  # noqa: E402
import tally  # noqa: E402

PASSED = '<testcase name="a.b" classname="a.b" status="run"/>'
LARGE_MAP = "inspect_weights.of_a_large_map_take_little_more_than_its_sums"
MEMORY = "a sanitizer's own memory counts as well"


def of_ctest(name, words):
    return (f'<testcase name="{name}" classname="{name}" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
            f"<system-out>[ RUN      ] {name}\n../../tests/x_test.cc:12: Skipped\n{words}\n[  SKIPPED ] {name}\n</system-out></testcase>")


def of_pytest(module, name, words):
    return f'<testcase classname="{module}" name="{name}"><skipped type="pytest.skip" message="{words}"/></testcase>'


def tallied(folder, build, *cases):
    path = folder / "build" / build / "ctest.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    done = subprocess.run([sys.executable, TALLY, path], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_what_passed_passes(tmp_path):
    code, told = tallied(tmp_path, "release", PASSED)
    assert (code, told.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 skipped")


@pytest.mark.parametrize("machine, flags, lacks", [
    ("x86_64", "fpu avx2 avx512f avx512_bf16", ""), ("x86_64", "fpu avx2 avx512f", "AVX-512 BF16"), ("x86_64", "avx2", "AVX-512 and no AVX-512 BF16"),
    ("x86_64", "fpu", "AVX2 and no AVX-512 and no AVX-512 BF16"), ("aarch64", "", "")])
def test_what_the_cpu_lacks_is_told_and_kept(tmp_path, monkeypatch, capsys, machine, flags, lacks):
    (tmp_path / "ctest.xml").write_text(f"<testsuite>{PASSED}</testsuite>")
    monkeypatch.setattr(tally.evidence, "of_cpu", lambda *names: flags if "flags" in names else "")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert tally.main([tmp_path / "ctest.xml"], tmp_path / "page.md", "./dev test") == 0
    line = f"This CPU has no {lacks}: kernels stay untested.\n" if lacks else ""
    assert capsys.readouterr().out == line + "1 passed, 0 failed, 0 skipped\n"
    assert f"on a machine that may be busy.\n{line}\n| results |" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("tested, goal, told", [
    (600, 10, ""), (601, None, ""),
    (990, 10, "The tests took 16.5 minutes; expected at most 10, on two cores that do nothing else.\n")])
def test_tests_that_took_longer_than_their_goal_are_told_and_kept(tmp_path, monkeypatch, capsys, tested, goal, told):
    (tmp_path / "ctest.xml").write_text(f"<testsuite>{PASSED}</testsuite>")
    monkeypatch.setattr(tally.evidence, "lacking", list)
    assert tally.main([tmp_path / "ctest.xml"], tmp_path / "page.md", "./dev test", (1200, tested), goal) == 0
    assert capsys.readouterr().out == told + "1 passed, 0 failed, 0 skipped\n"
    assert f"on a machine that may be busy.\n{told}\n| results |" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("cases", [
    [],
    [PASSED, '<testcase name="c.d" classname="c.d" status="fail"/>'],
    [PASSED, '<testcase name="c.d" classname="c.d" status="disabled"/>'],
    [PASSED, '<testcase name="c.d" classname="c.d" status="notrun"><skipped message="Unable to find executable"/></testcase>'],
    [PASSED, '<testcase classname="tests.x" name="y"><failure message="z"/></testcase>'],
], ids=range(5))
def test_what_did_not_pass_fails(tmp_path, cases):
    assert tallied(tmp_path, "release", *cases)[0] == 1


def test_a_missing_file_fails(tmp_path):
    assert tallied(tmp_path, "release", PASSED)[0] == 0
    done = subprocess.run([sys.executable, TALLY, tmp_path / "build/release/ctest.xml", tmp_path / "pytest.xml"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "no results" in done.stdout


def test_a_file_without_a_test_fails_beside_one_that_has_some(tmp_path):
    assert tallied(tmp_path, "release", PASSED)[0] == 0
    empty = tmp_path / "pytest.xml"
    empty.write_text('<testsuite tests="0"/>')
    done = subprocess.run([sys.executable, TALLY, tmp_path / "build/release/ctest.xml", empty], capture_output=True, text=True)
    assert done.returncode == 1 and f"failed: {empty}: no test passed" in done.stdout


def test_another_number_of_tests_fails(tmp_path):
    assert tallied(tmp_path, "asan", PASSED, of_ctest(LARGE_MAP, MEMORY))[0] == 0
    for tests, code in ((1, 1), (2, 0), (3, 1)):
        done = subprocess.run([sys.executable, TALLY, f"{tmp_path}/build/asan/ctest.xml={tests}"], capture_output=True, text=True)
        assert done.returncode == code and (f"2 tests were found; expected {tests}" in done.stdout) == (code == 1)


def test_what_one_file_lacks_another_does_not_make_up_for(tmp_path):
    for build in ("asan", "tsan"):
        assert tallied(tmp_path, build, PASSED)[0] == 0
    done = subprocess.run([sys.executable, TALLY, f"{tmp_path}/build/asan/ctest.xml=2", f"{tmp_path}/build/tsan/ctest.xml=0"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "2 passed, 2 failed" in done.stdout


def test_a_name_that_is_there_twice_fails(tmp_path):
    code, told = tallied(tmp_path, "release", PASSED, PASSED)
    assert code == 1 and "ctest.xml: a.b is there 2 times" in told


def test_a_command_that_failed_beside_its_tests_fails_on_its_page_too(tmp_path):
    assert tallied(tmp_path, "release", PASSED)[0] == 0
    results, page = tmp_path / "build/release/ctest.xml", tmp_path / "page.md"
    done = subprocess.run([sys.executable, TALLY, "--status", "1", "--summary", page, "--called", "./dev test", results],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "the command, which ended with 1" in done.stdout and "1 passed, 1 failed" in page.read_text()
    results.write_text(f"<testsuite>{PASSED}{PASSED.replace('a.b', 'c.d').replace('run', 'fail')}</testsuite>")
    done = subprocess.run([sys.executable, TALLY, "--status", "8", results], capture_output=True, text=True)
    assert done.returncode == 1 and "1 passed, 1 failed" in done.stdout   # which the status tells again


def test_a_page_is_kept_of_what_was_found(tmp_path):
    assert tallied(tmp_path, "asan", PASSED.replace("/>", ' time="1.75"/>'), of_ctest(LARGE_MAP, MEMORY))[0] == 0
    results, summary = tmp_path / "build/asan/ctest.xml", tmp_path / "page.md"
    subprocess.run([sys.executable, TALLY, "--summary", summary, "--called", "./dev sanitize", "--seconds", "1234", "600",
                    results], check=True, capture_output=True)
    told = summary.read_text()
    assert f"| {results} | 1 | 0 | 1 | 2 |" in told and f"{LARGE_MAP}: {MEMORY} (" in told
    assert "`./dev sanitize`, " in told and "1 passed, 0 failed, 1 skipped, 21 minutes with builds, 10 of them tests" in told
    assert told.count("one in 17") == 1   # which is so under sanitizers
    assert tallied(tmp_path, "release", PASSED)[0] == 0
    subprocess.run([sys.executable, TALLY, "--summary", summary, "--called", "./dev test", tmp_path / "build/release/ctest.xml"],
                   check=True, capture_output=True)
    assert "one in 17" not in summary.read_text()


@pytest.mark.parametrize("name, flags, written", [
    ("test", "avx2 fma", "test_without_avx512f_without_avx512_bf16"), ("sanitize", "avx2 avx512f", "sanitize_without_avx512_bf16"),
    ("test", "avx2 avx512f avx512_bf16", "test"), ("peers", "avx2 avx512f", "peers_without_avx512_bf16"), ("tidy", "avx2", "tidy")])
def test_a_page_of_fewer_instruction_sets_stands_beside_the_other(name, flags, written, tmp_path, monkeypatch):
    assert tallied(tmp_path, "release", PASSED)[0] == 0
    monkeypatch.setattr(evidence, "KERNEL_ISAS", ("avx2", "avx512f", "avx512_bf16"))
    monkeypatch.setattr(evidence, "of_cpu", lambda *names: flags)
    page = tmp_path / f"{name}.md"
    page.write_text("as it was")
    assert tally.main([tmp_path / "build/release/ctest.xml"], page, "./dev test") == 0
    assert "1 passed" in (tmp_path / f"{written}.md").read_text() and (page.read_text() == "as it was") == (written != name)


def test_tests_take_no_longer_than_the_command(tmp_path):
    done = subprocess.run([sys.executable, TALLY, "--summary", tmp_path / "page.md", "--called", "./dev clang", "--seconds", "60", "61",
                           tmp_path / "ctest.xml"], capture_output=True, text=True)
    assert done.returncode == 2 and "--seconds: tests ran 61 s; expected at most the 60 s" in done.stderr
    assert not (tmp_path / "page.md").exists()


def test_a_listed_skip_is_told_with_its_reason(tmp_path):
    code, told = tallied(tmp_path, "asan", PASSED, of_ctest(LARGE_MAP, MEMORY))
    assert code == 0 and f"skipped: {tmp_path}/build/asan/ctest.xml: {LARGE_MAP}: {MEMORY} (" in told
    module = "tests.cli.test_cli_inspect_files"
    code, told = tallied(tmp_path, "asan", PASSED, *(of_pytest(module, f"test_a[{n}]", "AddressSanitizer&apos;s own memory is large")
                                                     for n in range(3)))
    assert code == 0 and told.count("skipped:") == 1 and "3 times" in told


@pytest.mark.parametrize("build, case", [
    ("release", of_ctest(LARGE_MAP, MEMORY)),                 # there is no sanitizer
    ("asan", of_ctest("inspect_weights.is_right", MEMORY)),   # another test
    ("asan", of_ctest(LARGE_MAP, "no time")),                 # another reason
    ("asan", of_ctest(LARGE_MAP, "")),
    ("release", of_pytest("tests.io.test_cross", "test_x", "could not import numpy")),
    ("release", of_pytest("tests.io.test_cross", "test_x", "")),
], ids=range(6))
def test_any_other_skip_fails(tmp_path, build, case):
    code, told = tallied(tmp_path, build, PASSED, case)
    assert code == 1 and "was skipped, and tests/tally.py has no reason for it" in told


def test_each_skip_of_the_tests_in_python_is_known():
    """In a run without sanitizers nobody would notice one that is for them alone. A skip of tests/peers fails its run if it is not known."""
    paths = [path for path in sorted(TALLY.parent.rglob("test_*.py")) if path.parent.name != "peers"]
    found = [(f"tests.{path.parent.name}.{path.stem}", words) for path in paths
             for words in re.findall(r'(?m)^(?! *\().*(?:skipif\(.*reason=|pytest\.skip\()f?"([^"{]*)', path.read_text())]
    assert len(found) > 20
    assert not [skip for skip in found if not any(re.fullmatch(pattern, f"{skip[0]}::test_x") and re.search(said, skip[1])
                                                  for pattern, said, *_ in tally.ALLOWED)]


def of_a_part(folder, *without):
    """Code, what is told, and the page of a run of b and d of suite a, which also has c, beside suite e and a program."""
    build, page = folder / "build/neon", folder / "page.md"
    build.mkdir(parents=True, exist_ok=True)
    names = ("a/0.b", "a/1.b", "a/0.c/x", "a/1.c/y", "a/0.d", "e.f", "e.g", "g_test_NOT_BUILT")
    (build / "known.json").write_text(json.dumps({"tests": [{"name": name} for name in names]}))
    (build / "ctest.xml").write_text(f"<testsuite>{''.join(PASSED.replace('a.b', name) for name in ('a/0.b', 'a/1.b', 'a/0.d'))}</testsuite>")
    options = [word for one in without for word in ("--without", one)]
    done = subprocess.run([sys.executable, TALLY, "--summary", page, "--called", "./dev neon", "--known", build / "known.json", *options,
                           build / "ctest.xml"], capture_output=True, text=True)
    return done.returncode, done.stdout, page.read_text()


def test_an_emulator_has_the_instructions_that_this_cpu_may_lack(tmp_path, monkeypatch):
    monkeypatch.setattr(tally.evidence, "of_cpu", lambda *names: "")
    skip = of_ctest("paired.is_right", "this CPU has no dot products of bfloat16")
    (tmp_path / "ctest.xml").write_text(f"<testsuite>{PASSED}{skip}</testsuite>")
    (tmp_path / "known.json").write_text(json.dumps({"tests": [{"name": "a.b"}, {"name": "paired.is_right"}]}))
    assert tally.main([tmp_path / "ctest.xml"]) == 0
    assert tally.main([tmp_path / "ctest.xml"], known=tmp_path / "known.json") == 1


def test_what_a_part_leaves_out_is_told_with_its_reason(tmp_path):
    code, _, page = of_a_part(tmp_path, r"_NOT_BUILT$=time", r"^a/\d\.c=hours", r"^e\.=it is known")
    assert code == 0 and "| a | 3 |" in page
    assert "\n* a.c: hours\n* e (2): it is known\n* g_test: time\n" in page


def test_what_is_left_out_without_a_reason_fails(tmp_path):
    code, told, page = of_a_part(tmp_path, r"_NOT_BUILT$=time", r"^a/\d\.c=hours", r"^e\.f=it is known")
    assert code == 1 and "e.g was left out, and nobody says why" in told and "3 passed, 1 failed" in page


def test_dot_products_may_be_missing_where_the_cpu_has_none():
    words = "this CPU has no dot products of bfloat16"
    found = [re.search(r"TEST(?:_F)?\((\w+), (\w+)\)", text) for path in TALLY.parent.glob("*/*_test.cc")
             if f'GTEST_SKIP() << "{words}' in (text := path.read_text())]
    assert {test[1] for test in found} == {"paired", "bf16_kernels", "decode_order"}
    for test in found:
        said = (f"{test[1]}.{test[2]}", f"{words} (AVX512-BF16)", "build/release/ctest.xml")
        assert tally.why(*said, {"avx2", "avx512f"})
        assert tally.why(*said, {"avx2", "avx512f", "avx512_bf16"}) is None
