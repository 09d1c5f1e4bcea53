"""bare.py takes the skips that its CPU is the reason of, and no others, of what tests/tally.py allows."""

import platform
import re
import subprocess

import pytest

import bare

ALL = ("avx2", "avx512f", "avx512_bf16")
DOTS = "this CPU has no dot products of bfloat16"


def skips(monkeypatch, capsys, folder, flags, *cases):
    """What tally prints of these skipped tests, and what of it is not the CPU's."""
    found = "".join(f'<testcase name="{name}" status="notrun"><skipped message="SKIP_"/><system-out>: Skipped\n{words}\n</system-out></testcase>'
                    for name, words in cases)
    (folder / "ctest.xml").write_text(f'<testsuite><testcase name="a.b" status="run"/>{found}</testsuite>')
    monkeypatch.setattr(bare.evidence, "of_cpu", lambda *names: " ".join(flags))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert bare.tally.main([folder / "ctest.xml"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"(?m)^\d+ passed, 0 failed, \d+ skipped$", told) and told.count("skipped: ") == len({name.partition("[")[0] for name, _ in cases})
    return re.findall(bare.other_skips(flags), told)


@pytest.mark.parametrize("flags", [ALL, ALL[:1]])
def test_what_root_may_do_is_not_skipped(monkeypatch, capsys, tmp_path, flags):
    mount = [(f"write.a[{n}]", "this process may not mount a tmpfs") for n in range(2)]
    wrong = skips(monkeypatch, capsys, tmp_path, flags, *mount, ("placement.b", "no address space for 9 bytes"))
    assert [line.split()[2] for line in wrong] == ["write.a:", "placement.b:"]


def test_what_the_cpu_has_no_instructions_for_may_be_skipped(monkeypatch, capsys, tmp_path):
    dots = [(f"paired.a[{n}]", DOTS) for n in range(2)]
    assert skips(monkeypatch, capsys, tmp_path, ALL[:2], *dots, ("bf16_kernels.b", DOTS)) == []
    told = f"skipped: ctest.xml: paired.a: {DOTS} (nothing there could run)"
    assert re.findall(bare.other_skips(ALL), told) == [told]   # which tally would not allow


@pytest.mark.parametrize("never, passed", [("(?!)", 1), ("(?m)^skipped: .*", 0)])
def test_a_try_fails_if_what_must_never_be_printed_is(monkeypatch, tmp_path, never, passed):
    tried = bare.Bare(tmp_path)
    monkeypatch.setattr(tried, "in_root", lambda *_: subprocess.CompletedProcess([], 0, "skipped: one\nend\n"))
    tried.tries("root", "./dev test", 0, "(?m)^end", never=never)
    assert (tried.passed, tried.failed) == (passed, 1 - passed)
    assert ("and not ['skipped: one']" in tried.lines[-1]) == (not passed)
