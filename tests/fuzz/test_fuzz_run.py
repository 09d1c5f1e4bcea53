"""tests/fuzz/run.py: what it counts, what fails, and where its table goes.

Method: programs of a few lines stand where the fuzz targets would be.
"""

import importlib.util
import json
import pathlib

import pytest

found = importlib.util.spec_from_file_location("fuzz_run", pathlib.Path(__file__).resolve().parent / "run.py")
fuzz_run = importlib.util.module_from_spec(found)   # tests/full has a run.py, too
found.loader.exec_module(fuzz_run)

BEGIN, END = fuzz_run.marks(fuzz_run.ALL)
PAGE = "by hand\n" + BEGIN + "an old table\n" + END + "by hand, too\n"


@pytest.fixture
def fuzz(tmp_path, monkeypatch):
    """fuzz(one=.., two=.., arguments) runs both targets; each is the executions that it tells of, or a script."""
    monkeypatch.setattr(fuzz_run, "BUILD", tmp_path)
    monkeypatch.setattr(fuzz_run, "HERE", tmp_path / "here")
    monkeypatch.setattr(fuzz_run, "READERS", ("one",))
    monkeypatch.setattr(fuzz_run, "TARGETS", {"one": ("the first", 10), "two": ("the second", 10)})
    (tmp_path / "page.md").write_text(PAGE)

    def ran(*arguments, one=5, two=7):
        for target, told in {"one": one, "two": two}.items():
            script = told if isinstance(told, str) else f"echo 'cov: 11 corp: 3/9b'; echo 'stat::number_of_executed_units: {told}'"
            path = pathlib.Path(fuzz_run.fuzzer(target))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        return fuzz_run.main([*(arguments or ("1",)), "--summary", str(tmp_path / "page.md")])

    monkeypatch.setattr(fuzz_run.evidence, "instruction_sets", lambda: ["scalar", "wide"])
    monkeypatch.setattr(fuzz_run.evidence, "KERNEL_ISAS", ())
    monkeypatch.setattr(fuzz_run.evidence, "lacking", list)
    return ran


def row(tmp_path, target):
    """executions, by these, seconds .. of the table."""
    (line,) = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith(f"| {target} |")]
    return [cell.strip() for cell in line.split("|")[3:-1]]


def test_executions_add_up_and_those_of_the_present_program_stand_apart(fuzz, tmp_path):
    assert fuzz() == 0 and row(tmp_path, "one")[:2] == ["5", "5"]
    assert fuzz() == 0 and row(tmp_path, "one")[:2] == ["10", "10"]
    assert fuzz(one=3000) == 0 and row(tmp_path, "one")[:2] == ["3,010", "3,000"]
    assert row(tmp_path, "two")[:2] == ["21", "21"] and row(tmp_path, "two")[3:6] == ["11", "3", "0"]


@pytest.mark.parametrize("script", ["echo stat::number_of_executed_units: 0", "echo nothing is told"])
def test_a_target_that_executed_nothing_fails(fuzz, capsys, script):
    assert fuzz() == 0
    assert fuzz(two=script) == 1   # whatever it did before
    assert "two: executed nothing" in capsys.readouterr().out


ARTIFACT = "for i in \"$@\"; do case $i in -artifact_prefix=*) : > ${i#*=}crash;; esac; done"


@pytest.mark.parametrize("script", ["exit 77", ARTIFACT, ARTIFACT + "; exit 77"])
def test_a_finding_stays_one_until_its_file_is_taken_away(fuzz, tmp_path, capsys, script):
    assert fuzz(one="echo stat::number_of_executed_units: 9; " + script) == 1
    assert row(tmp_path, "one")[-2] == "1" and "one: see build/fuzz/one.log" in capsys.readouterr().out
    assert fuzz("0") == 1
    assert fuzz() == 1 and row(tmp_path, "one")[-2] == "1"   # whatever later runs come to
    (left,) = (tmp_path / "findings").iterdir()
    assert ARTIFACT in script or left.read_text() == "stat::number_of_executed_units: 9\n"
    left.unlink()
    assert fuzz("0") == 0 and row(tmp_path, "one")[-2] == "0"


@pytest.mark.parametrize("end", ["exit 72", "kill -TERM $$", "kill -INT $$"])
def test_who_is_stopped_has_found_nothing(fuzz, tmp_path, end):
    assert fuzz(one="echo stat::number_of_executed_units: 9; " + end) == 0
    assert row(tmp_path, "one")[-2] == "0" and not list((tmp_path / "findings").iterdir())
    assert fuzz(one=ARTIFACT + "; " + end) == 1   # a file is a finding all the same


def test_executions_of_another_source_are_not_by_these(fuzz, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fuzz_run.evidence, "SOURCE", "source aaaa")
    assert fuzz("1", "--least", "5") == 0
    monkeypatch.setattr(fuzz_run.evidence, "SOURCE", "source bbbb")   # without a build
    assert fuzz("0", "--least", "5") == 1 and row(tmp_path, "one")[:2] == ["5", "0"]
    assert "one: 0 executions by the program and of the source that are there" in capsys.readouterr().out
    assert fuzz("1", "--least", "5") == 0 and row(tmp_path, "one")[:2] == ["10", "5"]


@pytest.mark.parametrize("programs", [{}, {"programs": {"": 400, "DIGEST": 600}}])
def test_results_without_a_source_add_to_the_executions_alone(fuzz, tmp_path, programs):
    assert fuzz("0") == 0   # the programs are there
    (tmp_path / "results").mkdir()
    past = {"executions": 1000, "seconds": 60, "edges": 1, "inputs": 1, "date": "2026-11-22", "findings": 0, **programs}
    (tmp_path / "results/one.json").write_text(json.dumps(past).replace("DIGEST", fuzz_run.these("one").split()[-1]))
    assert fuzz("0") == 0 and row(tmp_path, "one") == ["1,000", "0", "60", "1", "1", "0", "2026-11-22"]
    assert fuzz() == 0 and row(tmp_path, "one")[:2] == ["1,005", "5"]


def test_the_table_takes_the_place_between_the_marks(fuzz, tmp_path):
    assert fuzz("1", "one") == 0
    page, table = (tmp_path / "page.md").read_text(), (tmp_path / "fuzzing.md").read_text()
    assert page == PAGE.replace("an old table\n", table) and row(tmp_path, "two")[0] == "not run"
    assert fuzz("1", "two") == 0 and (tmp_path / "page.md").read_text().count("| one |") == 1


def test_a_cpu_without_some_instruction_set_has_a_table_of_its_own(fuzz, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_run.evidence, "KERNEL_ISAS", ("wide",))
    monkeypatch.setattr(fuzz_run.evidence, "lacking", lambda: ["This CPU has no wide: kernels stay untested."])
    begin, end = "\n<!-- fuzzing_without_wide -->\n", "<!-- /fuzzing_without_wide -->\n"
    for _ in range(2):
        assert fuzz() == 0
        table = (tmp_path / "fuzzing.md").read_text()
        assert (tmp_path / "page.md").read_text() == PAGE.replace(END, END + begin + table + end)
        assert "\nThis CPU has no wide: kernels stay untested.\n" in table
    assert fuzz_run.evidence.wrong(table, "fuzzing") == ["This CPU has no wide: kernels stay untested."]   # where all are to be
    assert fuzz_run.evidence.wrong(table, "fuzzing_without_wide") == []


@pytest.mark.parametrize("page", [None, "no marks\n", BEGIN, END + BEGIN, PAGE + PAGE])
def test_a_page_without_a_place_is_refused_before_anything_runs(fuzz, tmp_path, capsys, page):
    (tmp_path / "page.md").unlink() if page is None else (tmp_path / "page.md").write_text(page)
    with pytest.raises(SystemExit) as stop:
        fuzz()
    assert stop.value.code == 2 and "no place for the table" in capsys.readouterr().err and not (tmp_path / "results").exists()


def test_no_seconds_run_nothing(fuzz, tmp_path):
    assert fuzz("0") == 0 and not (tmp_path / "results").exists() and row(tmp_path, "one")[0] == "not run"


def test_an_unknown_target_is_refused(fuzz, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        fuzz("1", "three")
    assert stop.value.code == 2 and "no target three; there are one, two" in capsys.readouterr().err


def telling(count, folder):
    """A program that executes so many and writes down what it was called with."""
    return f"echo $* >>{folder}/calls; echo stat::number_of_executed_units: {count}"


def test_a_reader_goes_on_until_its_present_program_had_enough_executions(fuzz, tmp_path):
    def called(*arguments, **counts):
        (tmp_path / "calls").write_text("")
        assert fuzz(*arguments, **counts) == 0
        words = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
        return [tuple(word for word in call if word.startswith(("-max_total_time=", "-runs="))) for call in words]

    script = telling(5, tmp_path)
    longest = f"-max_total_time={fuzz_run.LONGEST}"
    assert called("3", "--least", "12", one=script) == [("-max_total_time=3",), (longest, "-runs=7"), (longest, "-runs=2")]
    assert row(tmp_path, "one")[:2] == ["15", "15"] and row(tmp_path, "two")[:2] == ["7", "7"]   # which is no reader
    assert called("3", "--least", "20", one=script) == [("-max_total_time=3",)]   # had enough
    assert called("3", "one", "--least", "6", one=telling(5, tmp_path) + " ") == [("-max_total_time=3",), (longest, "-runs=1")]   # another
    assert row(tmp_path, "one")[:2] == ["30", "10"]


@pytest.mark.parametrize("then", ["exit 77", "echo stat::number_of_executed_units: 0"])
def test_a_reader_that_found_something_or_stands_still_does_not_go_on(fuzz, tmp_path, capsys, then):
    script = f"echo call >>{tmp_path}/calls; echo stat::number_of_executed_units: 5; [ $(wc -l <{tmp_path}/calls) = 1 ] || {{ {then}; }}"
    assert fuzz("1", "one", "--least", "1000", one=script) == 1
    assert (tmp_path / "calls").read_text() == "call\n" * 2 and "one: " in capsys.readouterr().out


def test_the_table_names_the_command_and_the_instruction_sets_of_the_run(fuzz, tmp_path, monkeypatch):
    monkeypatch.setitem(fuzz_run.TARGETS, "one", ("the first on {sets}", 10))
    assert fuzz("0", "--called", "./dev fuzz 1 --least 2") == 0
    assert "`./dev fuzz 1 --least 2`, " in (tmp_path / "page.md").read_text()
    assert "| one | the first on instruction sets | not run |" in (tmp_path / "page.md").read_text()
    assert fuzz("1", "--least", "2", "one") == 0   # a target may stand last, too
    assert f"`python3 tests/fuzz/run.py 1 --least 2 one --summary {tmp_path}/page.md`, " in (tmp_path / "page.md").read_text()
    monkeypatch.setattr(fuzz_run.evidence, "instruction_sets", lambda: ["scalar"])   # what writes the page is another CPU
    assert fuzz("0") == 0 and "| one | the first on scalar, wide | 5 |" in (tmp_path / "page.md").read_text()


def test_a_reader_executed_too_seldom_by_its_present_program_fails(fuzz, capsys):
    assert fuzz("1", "--least", "5") == 0
    assert fuzz("0", "--least", "6") == 1
    assert "one: 5 executions by the program and of the source that are there; at least 6 are asked for" in capsys.readouterr().out
    assert fuzz("0", "two", "--least", "99") == 0   # is no reader
    assert fuzz("1", "--least", "10") == 0          # twice 5
    assert fuzz("0", "--least", "10", one=9) == 1   # by another program
    assert fuzz("1", one=9) == 0 and fuzz("0", "one", "--least", "9", one=9) == 0


def test_a_reader_that_never_ran_was_executed_too_seldom(fuzz, capsys):
    assert fuzz("0", "--least", "1") == 1 and "one: 0 executions" in capsys.readouterr().out


def minimising(*inputs):
    """A program that leaves these inputs, whatever it has."""
    return "; ".join(f"printf '{data}' > $2/{n}" for n, data in enumerate(inputs))


def test_what_is_kept_stays_and_is_run_whatever_minimising_leaves(fuzz, tmp_path):
    (tmp_path / "here/corpus").mkdir(parents=True)
    for name in ("found", "other"):
        (tmp_path / name).write_text(name)
        for _ in range(2):   # the second time it is there
            assert fuzz("0", "one", "--keep", str(tmp_path / name)) == 0
    assert fuzz("0", "one", "--minimise", one=minimising("small", "found", "large" * 20_000)) == 0
    assert fuzz_run.unpack(fuzz_run.kept("one")) == [b"found", b"other"]
    assert fuzz_run.unpack(fuzz_run.minimal("one")) == [b"small"]   # no input twice, none too large
    assert fuzz("1", "one") == 0
    executed = {path.read_bytes() for path in (tmp_path / "corpus/one").iterdir()}
    assert executed == {b"found", b"other", b"small"}


@pytest.mark.parametrize("targets", [(), ("one", "two")])
def test_to_keep_an_input_one_target_must_be_named(fuzz, capsys, targets):
    with pytest.raises(SystemExit) as stop:
        fuzz("0", *targets, "--keep", "any")
    assert stop.value.code == 2 and "--keep wants one target" in capsys.readouterr().err


# How many inputs each corpus of the tree has at least, those that reach something and those that once found something.
LEAST = {"npy_header": (150, 0), "npy": (1000, 0), "npz": (500, 1), "safetensors": (1200, 1), "flag_values": (350, 0),
         "command_line": (30, 1), "attention": (2000, 16), "instruction_sets": (1000, 0), "merge": (1500, 1), "packing": (1700, 0),
         "round_trip": (600, 0)}


def test_the_corpus_of_the_tree_is_whole_and_small():
    files = sorted((fuzz_run.HERE / "corpus").iterdir())
    assert {path.suffix for path in files} == {".inputs", ".kept"}
    assert {path.stem for path in files} == set(fuzz_run.TARGETS)
    for path in files:
        assert fuzz_run.pack(fuzz_run.unpack(path)) == path.read_bytes()
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert set(LEAST) == set(fuzz_run.TARGETS)
    for target, (least, least_kept) in LEAST.items():   # what fuzz.* and valgrind run again must not shrink unseen
        inputs, once_found = fuzz_run.unpack(fuzz_run.minimal(target)), fuzz_run.unpack(fuzz_run.kept(target))
        assert len(inputs) >= least and len(once_found) >= least_kept, target
        assert not set(inputs) & set(once_found)


def types_of(target):
    """Of calls, by the first byte, as with_type() in problem.h reads it."""
    first = [data[0] for data in fuzz_run.unpack(fuzz_run.minimal(target)) if data]
    return {"f64": sum(byte < 64 for byte in first), "f32": sum(64 <= byte < 192 for byte in first),
            "f16": sum(byte >= 192 and byte % 2 == 0 for byte in first), "bf16": sum(byte >= 192 and byte % 2 for byte in first)}


@pytest.mark.parametrize("target", ["attention", "instruction_sets", "packing"])
def test_the_corpus_of_the_tree_has_calls_in_every_type(target):
    assert min(types_of(target).values()) >= 50, types_of(target)


def test_the_corpora_take_at_most_a_megabyte():
    inputs = [path for path in fuzz_run.minimal("attention").parent.iterdir() if path.is_file()]
    assert len(inputs) > 10 and sum(path.stat().st_size for path in inputs) <= 1_000_000


def test_the_page_of_the_tree_has_a_place_and_every_target():
    table = (fuzz_run.ROOT / "docs/evidence/fuzzing.md").read_text().split(BEGIN)[1].split(END)[0]
    for target in fuzz_run.TARGETS:
        assert f"| {target} |" in table
