"""tests/evidence.py: a page names the source that it is of, and whoever changes the source is told."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402

SOURCE_OF = evidence.source


def git(folder, *words):
    """As nobody, whatever the user has set."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example", *words], cwd=folder, check=True,
                   env={**clean, "GIT_CONFIG_GLOBAL": "/dev/null"})


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with one file of source, of which a page is."""
    monkeypatch.setattr(evidence, "PAGES", tmp_path / "docs")
    monkeypatch.setattr(evidence, "NAMES", ("page",))
    monkeypatch.setattr(evidence, "TABLES", {})
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "a.cc").write_text("int a;\n")
    for words in (["init", "-q"], ["add", "src"], ["commit", "-qm", "a: begins"]):
        git(tmp_path, *words)
    monkeypatch.setattr(evidence, "source", lambda: SOURCE_OF(tmp_path))
    monkeypatch.setattr(evidence, "SOURCE", evidence.source())
    (tmp_path / "docs" / "page.md").write_text(f"# A page\n\n`./dev it`, {evidence.today()}: all is well.\n")
    return tmp_path


@pytest.mark.parametrize("flags, sets", [("", ["scalar"]), ("fpu avx2 sse", ["scalar", "avx2"]), ("fp asimd", ["scalar", "neon"]),
                                         ("avx512f avx2 avx512_bf16", ["scalar", "avx2", "avx512", "avx512_bf16"])])
def test_the_instruction_sets_are_those_of_the_cpu_and_the_widest_is_named(monkeypatch, flags, sets):
    monkeypatch.setattr(evidence, "of_cpu", lambda *names: flags if "flags" in names else "")
    assert evidence.instruction_sets() == sets and f"({sets[-1]}), " in evidence.cpu()


def test_a_page_of_this_source_is_not_told(tree, capsys):
    command = next(line for line in evidence.__doc__.splitlines() if line.startswith("    git "))
    name = subprocess.run(command, shell=True, cwd=tree, capture_output=True, text=True, check=True).stdout
    assert f", source {name[:12]}:" in (tree / "docs" / "page.md").read_text()
    assert evidence.main([]) == 0
    assert capsys.readouterr().out == f"0 pages are not of source {name[:12]}, 0 are missing or unknown, 0 places tell of something wrong\n"


@pytest.mark.parametrize("change", ["a file", "a new file", "a commit"])
def test_a_page_of_other_source_is_told(tree, capsys, change):
    (tree / "src" / ("b.cc" if change == "a new file" else "a.cc")).write_text("int b;\n")
    if change == "a commit":
        git(tree, "commit", "-qam", "a: changes")
    assert evidence.main([]) == 1
    told = capsys.readouterr().out
    assert "page.md: source " in told
    # A new file is of no commit yet.
    assert (", since then no tracked file\n" if change == "a new file" else
            ", since then 1 file changed, 1 insertion(+), 1 deletion(-)\n") in told
    assert evidence.source().endswith(" with changes") == (change != "a commit")


def test_a_page_of_a_source_that_is_in_no_commit_says_so(tree, capsys):
    page = tree / "docs" / "page.md"
    page.write_text(page.read_text().replace(evidence.source(), "source 0123456789ab"))
    assert evidence.main([]) == 1
    assert "page.md: source 0123456789ab, of no commit\n" in capsys.readouterr().out


def test_a_seeded_fault_that_its_page_does_not_name_is_told(tree, capsys):
    (tree / "tests" / "mutants").mkdir(parents=True)
    for name in ("01-known", "02-new"):
        (tree / "tests" / "mutants" / f"{name}.patch").touch()
    (tree / "docs" / "mutants.md").write_text(f"{evidence.today()}\n\n| fault |\n|---|\n| 01-known |\n")
    assert evidence.main([tree / "docs" / "mutants.md"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "mutants.md: 02-new is not there"
    assert evidence.main([tree / "docs" / "page.md"]) == 0   # which is of something else


def test_a_page_that_names_no_source_is_told(tree, capsys):
    (tree / "docs" / "page.md").write_text("all is well\n")
    assert evidence.main([tree / "docs" / "page.md"]) == 1
    assert capsys.readouterr().out.startswith("page.md: names no source\n")


def test_a_page_that_is_not_there_is_told_and_one_of_fewer_instruction_sets_is_known(tree, capsys):
    page = tree / "docs" / "page.md"
    (tree / "docs" / "page_without_avx2.md").write_text(page.read_text())
    assert evidence.main([]) == 0
    assert evidence.main([tree / "docs" / "pages.md"]) == 1
    assert f"{tree / 'docs' / 'pages.md'} is not there\n" in capsys.readouterr().out
    page.unlink()
    assert evidence.main([]) == 1
    assert "page.md is not there\n" in capsys.readouterr().out


def test_each_table_between_marks_is_judged_alone(tree, monkeypatch, capsys):
    monkeypatch.setattr(evidence, "TABLES", {"numerics.md": ("new", "old, 1")})
    (tree / "numerics.md").write_text(f"<!-- new -->\n{evidence.today()}\n<!-- /new -->\n\n<!-- old, 1 -->\nsource 0123456789ab\n<!-- /old, 1 -->\n")
    assert evidence.main([]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "numerics.md, old, 1: source 0123456789ab, of no commit" and told[1].startswith("1 pages are not of")


def test_a_source_that_is_in_no_commit_is_not_this_one(tree, capsys):
    (tree / "src" / "a.cc").write_text("int b;\n")
    (tree / "docs" / "page.md").write_text(f"`./dev it`, {evidence.source()}: all is well.\n")
    (tree / "src" / "a.cc").write_text("int c;\n")
    assert evidence.main([]) == 1
    assert " with changes, since then 1 file changed" in capsys.readouterr().out


def test_a_repository_around_an_archive_is_not_the_archives(tree):
    (tree / "heed" / "src").mkdir(parents=True)
    assert SOURCE_OF(tree / "heed") == "source unknown"


def test_where_there_is_no_repository_the_source_is_unknown(tmp_path):
    assert evidence.source(tmp_path) == "source unknown"


@pytest.mark.parametrize(("flags", "widest"), [
    ("flags : sse2 avx2 avx512f avx512_bf16", "avx512_bf16"), ("flags : avx512f avx2 fma", "avx512"), ("flags\t\t: fma avx2", "avx2"),
    ("flags : sse2", "scalar"), ("Features : fp asimd bf16", "neon_bf16"), ("Features : fp asimd", "neon")])
def test_a_page_tells_the_widest_instructions_of_its_cpu(monkeypatch, flags, widest):
    monkeypatch.setattr(pathlib.Path, "read_text", lambda _: f"model name : A CPU\n{flags}\n")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert f", A CPU ({widest}), 3 cores, source " in evidence.today()


@pytest.mark.parametrize("text", [
    "3000 passed, 393 failed, 2 skipped", "| results | passed | failed |\n|---|---:|---:|\n| a.xml | 3 | 1 |", "Failed: `all.one`",
    "| part | shards | not run | cases |\n|---|---|---|---|\n| core | 44 | 3 | 1,000 |", "| 01-gone | What. | **survived** |", "2 were not run",
    "| target | by these | findings |\n|---|---|---|\n| npy | 0 | 0 |", "| target | by these | findings |\n|---|---|---|\n| npy | 1,000 | 2 |",
    "| npy | F2 | not run | | |", "| a.cc | words | 1 | **not known** |", "Not as it should be: src/io: 1 line.", "| lib/libheed.a | **differs** |",
    "| a | failed |\n|---|---|\n| x \\| y | 3 |", "| a | failed |\n|---|---|\n| x | y | 0 |",
    "| AMD | heed info | FAILED |", "Not as it should be: bin/heed is not installed"])
def test_a_page_that_tells_of_something_wrong_is_told(tree, capsys, text):
    page = tree / "docs" / "page.md"
    page.write_text(page.read_text() + text + "\n")
    assert evidence.main([]) == 1 and ", 1 places tell of something wrong" in capsys.readouterr().out


@pytest.mark.parametrize("text", [
    "3000 passed, 0 failed, 2 skipped", "| results | passed | failed |\n|---|---:|---:|\n| a.xml | 3 | 0 |", "Failed: none.", "Not as it should be: nothing.",
    "| target | by these | findings |\n|---|---|---|\n| npy | 1,000 | 0 |\n\n| file | lines missed |\n|---|---|\n| a.cc | 2 |", "0 were not run",
    "28 of 28 files are the same."])
def test_a_page_where_all_is_well_is_not_told(tree, text):
    page = tree / "docs" / "page.md"
    page.write_text(page.read_text() + text + "\n")
    assert evidence.main([]) == 0


def test_what_was_skipped_on_a_page_of_all_instruction_sets_is_wrong(tree, capsys):
    text = "| part | shards | failed | skipped |\n|---|---|---|---|\n| core block | 44 | 0 | 44 |"
    named = {name: tree / "docs" / f"{name}.md" for name in ("page", "full_sanitized", "full_sanitized_without_avx512_bf16")}
    for page in named.values():
        page.write_text(f"{evidence.today()}\n\n{text}\n")
    assert [name for name, page in named.items() if evidence.main([page]) == 1] == ["full_sanitized"]
    assert "full_sanitized.md: core block: skipped 44\n" in capsys.readouterr().out
    for page in (tree / "docs" / "sanitize.md", tree / "docs" / "test.md", tree / "docs" / "sanitize_without_avx512f.md"):
        page.write_text(f"{evidence.today()}\n\n{text}\n")
        assert evidence.main([page]) == 0   # tests/tally.py had a reason
        page.write_text(f"{evidence.today()}\nThis CPU has no AVX-512: kernels stay untested.\n\n{text}\n")
        assert evidence.main([page]) == ("without" not in page.stem)


@pytest.mark.parametrize("name, flags, told", [
    ("full", "avx2", "needs a CPU with avx512f and avx512_bf16"), ("coverage", "avx2 avx512f", "needs a CPU with avx512_bf16"),
    ("full", "avx2 avx512f avx512_bf16", ""), ("page", "avx2", ""), ("full_without_avx512_bf16", "avx2 avx512f", ""),
    ("full_without_avx512_bf16", "avx2", "needs a CPU with avx512f"),
    ("full_without_avx512_bf16", "avx2 avx512f avx512_bf16", "needs a CPU without avx512_bf16")])
def test_a_page_of_other_source_tells_where_another_cpu_must_make_it_anew(tree, monkeypatch, capsys, name, flags, told):
    monkeypatch.setattr(evidence, "KERNEL_ISAS", ("avx2", "avx512f", "avx512_bf16"))
    monkeypatch.setattr(evidence, "of_cpu", lambda *_: flags)
    page = tree / "docs" / f"{name}.md"
    page.write_text("source 0123456789ab\n")
    assert evidence.main([page]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{name}.md: source 0123456789ab, of no commit{told and ', ' + told}"


def test_dev_has_a_command_that_tells_of_all_pages():
    root = pathlib.Path(evidence.__file__).parents[1]
    by_command, alone = (subprocess.run(command, cwd=root, capture_output=True, text=True)
                         for command in (["./dev", "evidence"], [sys.executable, "tests/evidence.py"]))
    assert alone.stderr == "" and re.search(r"^\d+ pages are not of source .*, \d+ places tell of something wrong\n\Z", alone.stdout, re.M)
    assert by_command.stdout.endswith(alone.stdout) and by_command.returncode == alone.returncode


def test_a_page_that_is_missing_or_unknown_is_told(tree, capsys):
    (tree / "docs" / "page.md").rename(tree / "docs" / "pages.md")
    assert evidence.main([]) == 1
    told = capsys.readouterr().out
    assert "page.md is not there\npages.md is in no list of pages\n" in told and ", 2 are missing or unknown" in told


def test_a_table_that_is_missing_or_unknown_is_told(tree, monkeypatch, capsys):
    monkeypatch.setattr(evidence, "TABLES", {"numerics.md": ("one", "two")})
    assert evidence.main([]) == 1 and "numerics.md, one is not there\nnumerics.md, two is not there\n" in capsys.readouterr().out
    table = lambda name: f"<!-- {name} -->\n{evidence.today()}\n<!-- /{name} -->\n"
    page = tree / "numerics.md"   # beside the folder of pages
    page.write_text(table("one") + table("two"))
    assert evidence.main([]) == 0
    page.write_text(table("one") + table("three") + "<!-- two -->\n")
    capsys.readouterr()
    assert evidence.main([]) == 1
    assert "numerics.md, two is not there\nnumerics.md, three is in no list of tables\n" in capsys.readouterr().out


def test_a_page_of_fewer_checks_than_there_are_says_so(monkeypatch, tmp_path, capsys):
    found = importlib.util.spec_from_file_location("old_cpus", pathlib.Path(evidence.__file__).parent / "runtime" / "old_cpus.py")
    old_cpus = importlib.util.module_from_spec(found)
    found.loader.exec_module(old_cpus)
    page = tmp_path / "old_cpus.md"
    monkeypatch.setattr(old_cpus.shutil, "which", lambda _: "there")
    monkeypatch.setattr(sys, "argv", ["old_cpus.py", "--python", "python", "--summary", str(page)])
    monkeypatch.setattr(old_cpus, "checks", lambda *_: [("Haswell", "heed info", lambda: None, ())] * old_cpus.CHECKS)
    assert old_cpus.main() == 0 and not evidence.wrong(page.read_text())
    monkeypatch.setattr(old_cpus, "checks", lambda *_: [("Haswell", "heed info", lambda: None, ())])
    assert old_cpus.main() == 1 and "1 checks; expected" in capsys.readouterr().out
    assert len(evidence.wrong(page.read_text())) == 1
