"""What takes hours: whole blocks of the case matrix, 5,000 draws of each property, 2^x and 16 bits of all floats.

    python3 tests/full/run.py [--preset release|asan|tsan] [--jobs N] [--minutes M] [--only REGEX] [--summary FILE]
                              [--allow-missing-isa] [--check]

Each test of the programs below is a shard of its own: a process, whose result is kept in build/full. A shard that
passed or failed is not run again as long as its program is the same file and the CPU has the same instruction sets, so a run can
be stopped and gone on with, and what failed once has failed; --minutes stops it by itself, the shards under way are ended and lost. The summary says what
passed, what failed and what was not run. On a CPU without AVX-512 or its dot products of bfloat16 nothing is run, for
kernels would stay untested; with --allow-missing-isa the rest is run, and the summary, which counts what was skipped,
goes to a page of its own beside FILE, so that a page of more instructions stays: full_without_avx512_bf16.md. AVX2 and
FMA must be there, for which the oracle is compiled. With --only the shards that REGEX is found in are run; the summary is
printed and FILE stays as it is, for a part is no page of the whole. --check looks at the arguments and at the CPU, runs nothing, and
prints which page the summary would go to.
Under ThreadSanitizer only the bitwise bases are run: they are what has threads; under AddressSanitizer not DRAWN.

Exits with 1 if a shard failed, was skipped without leave or ran other cases than the manifest says, with 2 if an
argument is wrong or --only fits no shard, with 3 if shards are left, with 4 if programs or tests are missing, or instruction sets.
"""

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release" / "tests"
KEPT = ROOT / "build" / "full"
MATRIX = "full/full_matrix"
BASES = "full/full_bases"
GRADIENTS = "full/full_gradients"
RANDOM = "full/full_random"
OPTIONS = "full/full_options"
# Of each block of the matrix: its shards, and the cases of a shard.
BLOCKS = {MATRIX: (5 * 44, 720),  # types x sizes of heads; 36 lengths x 19 maskings and packed sequences
          BASES: (4 * 8, 3220),   # types x sizes of heads; comparisons: 10 lengths x 14 maskings x 23
          OPTIONS: (5, 5283),     # types; layouts 11^3 x 3 maskings, then masks, heads, values and scales
          RANDOM: (100, 10_000),
          GRADIENTS: (10 + 3 * 12, 168)}  # sizes by complex steps, types x sizes; 12 lengths x 14 maskings
DOTS = "bf16_dots"   # what shards of dot products of bfloat16 are called, which alone may be skipped
# T5: the outputs of which nine tenths are zeros are counted in these, in every type.
COUNTED = (MATRIX, OPTIONS, RANDOM)
# Cases of a shard without keys: zeros are what they must give (5 queries, 0 keys, every masking and packed).
WITHOUT_KEYS = {MATRIX: 20}
MOST_MISTRUSTED = 0.01  # of the other cases of a part
DRAWS = 5000
PROPERTIES = ("forward/forward_properties_bits_test", "forward/forward_properties_truth_test")
# Of other programs the drawn tests: what they are called, and how many are run. Gradients of packed sequences (packing_truth_test)
# stay at their usual number, for an hour: the block of gradients has them, too.
DRAWN = {"merge/merge_test": (r"of_parts_is_attention", 2),
         "packing/packing_test": (r"ward_(mode_)?has_the_bits_of_calls", 5),
         "packing/packing_half_test": (r"calls_on_each_sequence|rounded_once", 3),
         "packing/packing_truth_test": (r"outputs_of_each_sequence", 4),
         "cache/cache_test": (r"^kv_cache\.holds_what_a_plain_model_holds", 2),
         "inspection/inspect_weights_test": (r"random_calls", 2),
         "backward/backward_complex_step_test": (r"random_problems", 1)}
SWEEPS = "internal/kernels_test"
# Of each sweep its floats, for exp2 those from -0 to the last NaN, and NaNs without a sign.
SWEPT = {"exp2.of_all_floats_that_are_not_positive": 2**31 + 2**23 - 1,
         "conversions.every_float_becomes_the_nearest_and_of_two_the_even_one": 2**32}
PROGRAMS = (*PROPERTIES, *DRAWN, SWEEPS, *(block for block in BLOCKS if block != MATRIX), MATRIX)   # in this order
# By preset: how the summary calls the run, and what of the programs is run.
PRESETS = {"release": ("`./dev test --full`", PROGRAMS),
           "asan": ("`./dev test --full`, under AddressSanitizer and UndefinedBehaviorSanitizer",
                    tuple(program for program in PROGRAMS if program not in DRAWN)),
           "tsan": ("`./dev test --full`, under ThreadSanitizer", (BASES,))}
ENDED = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)   # a shard that somebody else ended has found nothing
OF_ORACLE = ("avx2", "fma") if platform.machine() == "x86_64" else ()   # fused_oracle.cc is compiled for these
ISAS = tuple(isa for isa in evidence.KERNEL_ISAS if isa not in OF_ORACLE)   # that a CPU may lack


def digest(program):
    """Of what a result depends on: the program itself, whatever it was made of and how."""
    return hashlib.sha256(str(DRAWS).encode() + (BUILD / program).read_bytes()).hexdigest()


def written_tests(program, root=ROOT):
    """How many tests the source of this program has: a program that lists fewer is not the one of this tree."""
    folder, _, name = program.partition("/")
    source = root / "tests" / folder / (name.removeprefix(folder + "_") + ".cc")
    return len(re.findall(r"^TEST(?:_F)?\(", source.read_text(), re.MULTILINE))


def unexpected(found, programs):
    """What is wrong with a list of these programs' shards: too few, or too many; nothing if all is well."""
    count = {program: sum(one == program for one, _ in found) for program in programs}
    wanted = {program: len(SWEPT) if program == SWEEPS else BLOCKS[program][0] if program in BLOCKS
              else DRAWN[program][1] if program in DRAWN else written_tests(program) for program in programs}
    return [f"{program} has {count[program]} tests; expected {wanted[program]}" for program in programs
            if count[program] != wanted[program]]


def listed(program):
    """(program, test) of one program."""
    told = subprocess.run([BUILD / program, "--gtest_list_tests"], capture_output=True, text=True, check=True)
    suite, found = "", []
    for line in told.stdout.splitlines()[1:]:
        if not line.startswith(" "):
            suite = line.split()[0]
        else:
            found.append((program, suite + line.split()[0]))
    return found


def is_part(program, test):
    """Whether the tier runs this test of a program, of which it may run some only."""
    return test in SWEPT if program == SWEEPS else program not in DRAWN or re.search(DRAWN[program][0], test) is not None


def shards(programs):
    """(program, test) of all, of the core block its cheap types first."""
    found = []
    for program in programs:
        found += [shard for shard in listed(program) if is_part(*shard)]
    order = ("bf16_dots", "f32", "bf16_d", "f16", "f64")
    found.sort(key=lambda shard: next((n for n, word in enumerate(order, 1) if "/" + word in shard[1]), 0)
               if shard[0] == MATRIX else 0)
    return found


def kept_at(shard):
    return KEPT / (re.sub(r"[^A-Za-z0-9_.]+", "_", shard[1]) + ".json")


def kept(shard, programs):
    """What was found by these programs, of each a digest."""
    try:
        result = json.loads(kept_at(shard).read_text())
    except (OSError, ValueError):
        return None
    return result if result.get("program") == programs[shard[0]] else None


def run(shard, programs, until):
    """Runs one shard and keeps what it found; None if its time was over first."""
    left = until - time.monotonic()
    if left <= 0:
        return None
    program, test = shard
    report = kept_at(shard).with_suffix(".gtest")
    begin = time.monotonic()
    try:
        done = subprocess.run([BUILD / program, f"--gtest_filter={test}", f"--gtest_output=json:{report}"],
                              env={**os.environ, "HEED_TEST_DRAWS": str(DRAWS), "HEED_EXHAUSTIVE": "1"}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=None if math.isinf(left) else left)
    except subprocess.TimeoutExpired:
        return None
    if -done.returncode in ENDED:
        return None
    told = {}
    if report.exists():
        told = json.loads(report.read_text())["testsuites"][0]["testsuite"][0]
        report.unlink()
    skipped = told.get("result") == "SKIPPED"
    cases = int(told.get("cases", 0))
    wanted = BLOCKS[program][1] if program in BLOCKS else SWEPT.get(test, DRAWS)
    told_all = cases == wanted and (program not in COUNTED or "mistrusted" in told)
    result = {"program": programs[program], "test": test, "seconds": round(time.monotonic() - begin, 1), "cases": cases,
              "mistrusted": int(told.get("mistrusted", 0)), "skipped": skipped,
              "passed": done.returncode == 0 and not skipped and told_all, "output": "" if done.returncode == 0 else done.stdout[-4000:]}
    kept_at(shard).write_text(json.dumps(result))
    return result


def kind(shard):
    if shard[0] == SWEEPS:
        return "2^x of all floats" if shard[1].startswith("exp2") else "16 bits of all floats"
    if shard[0] not in BLOCKS:
        return f"properties, {DRAWS} draws each"
    block = {MATRIX: "core block", BASES: "bitwise bases", GRADIENTS: "gradients", RANDOM: "random cases",
             OPTIONS: "layouts, masks, heads, values, scales"}[shard[0]]
    return f"{block}, " + re.search(r"/(bf16_dots|[a-z]+\d+)(?:_|$)", shard[1])[1]


# What the summary says of the parts.
MEANING = {
    BASES: ("A case of the bitwise bases is one comparison of all bits: a number of threads (1, 2, 3, 4, 7, 8, 16, 64; of a call whose batch",
            "is repeated until up to 8, of each eighth base up to 64 have work, which nine tenths must reach), a place in a",
            "batch, rows alone or among others, hidden keys appended, on the instruction sets in turn, of which the scalar path takes",
            "calls of 3 million operations at most, the next one its turn in larger ones."),
    GRADIENTS: ("Gradients in float64 are held against complex steps, those in other types against the formula in higher precision",
                "within their bounds, on every instruction set."),
    MATRIX: (f"A shard of the core block is one size of heads with every length and every masking and as packed sequences, {BLOCKS[MATRIX][1]} cases, each on every",
             "instruction set of this machine; of 5 queries on no key and of 4,096 on one the causal masking stands for the four local ones.",
             "The 16-bit types stand for the bits of float32 rounded once and within their bounds, `bf16_dots` for dot products of bfloat16.",
             "Under a sanitizer the scalar path, here, in random cases and in properties, takes cases of 3 million operations at most. An output of which",
             "nine tenths are zeros proves little: of the cases that have keys at most one in a hundred of a part may be so. They are",
             "counted for each type: in float32, float64 and `bf16_dots` in the oracle's output, in the 16-bit types in what is left of the",
             "output when it is rounded. Where a part has no number they are not counted."),
    SWEEPS: ("2^x is within its bound and has the same bits on every instruction set. Of 16 bits of all floats a case is one of the 2^32",
             "floats, rounded to float16 and to bfloat16 on every instruction set: the nearest number, of two the even one, NaN stays NaN."),
    RANDOM: ("A random case draws sizes, layouts, masking, values, scale, dropout, the types of masks and whether its entries are packed",
             "sequences, and is judged as the core block is."),
}


def summary(all_shards, programs, called, missing):
    lines = ["# The full tier", "",
             f"{called}, {evidence.today(missing)}. Hours are of a shard's process, on a machine that",
             "may be busy.", "", *[line for program in programs for line in MEANING.get(program, ())], "",
             "| part | shards | passed | failed | skipped | not run | cases | nearly zero | hours |", "|---|---|---|---|---|---|---|---|---|"]
    parts, doubtful = {}, []
    for shard in all_shards:
        parts.setdefault(kind(shard), []).append((shard[0], kept(shard, programs)))
    for name, found in parts.items():
        ran = [one for _, one in found if one]
        with_keys = sum(one["cases"] - WITHOUT_KEYS.get(program, 0) for program, one in found if one and not one["skipped"])
        zeros = sum(max(0, one["mistrusted"] - WITHOUT_KEYS.get(program, 0)) for program, one in found if one)
        if zeros > MOST_MISTRUSTED * with_keys:
            doubtful.append(f"{name}: {zeros} of {with_keys} outputs are nearly all zeros")
        skipped = sum(one["skipped"] for one in ran)
        passed = sum(one["passed"] for one in ran)
        lines.append(f"| {name} | {len(found)} | {passed} | {len(ran) - passed - skipped} | {skipped} | {len(found) - len(ran)} | "
                     f"{sum(one['cases'] for one in ran):,} | {f'{zeros:,}' if found[0][0] in COUNTED else '-'} | {sum(one['seconds'] for one in ran) / 3600:.2f} |")
    whole = [one for found in parts.values() for _, one in found if one]
    failed = doubtful + [f"`{one['test']}`" for one in whole if not one["passed"] and not one["skipped"]]
    skipped = [one["test"] for one in whole if one["skipped"]]
    may_be = [test for test in skipped if missing and DOTS in test]
    failed += [f"`{test}`, skipped" for test in skipped if test not in may_be]
    lines += ["", "Failed: " + (", ".join(failed) if failed else "none.")]
    if may_be:
        lines += ["", f"Skipped, and not known to be right: {len(may_be)} shards that this CPU has no instructions for."]
    return "\n".join([*lines, ""]), len(failed), len(skipped), len(all_shards) - len(whole)


def told_as(kind_of, fits, expected):
    """A reader of an argument that says what was expected."""
    def read(text):
        try:
            value = kind_of(text)
        except (ValueError, re.error):
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"is {text!r}; expected {expected}")
        return value
    return read


minutes = told_as(float, lambda number: math.isfinite(number) and number > 0, "a number of minutes above 0")
jobs = told_as(int, lambda number: number > 0, "1 or more")
pattern = told_as(re.compile, lambda _: True, "a regular expression")


def main(arguments, flags):
    global BUILD, KEPT
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="release")
    parser.add_argument("--jobs", type=jobs, default=os.cpu_count())
    parser.add_argument("--minutes", type=minutes)
    parser.add_argument("--only", type=pattern, default=re.compile(""), metavar="REGEX")
    parser.add_argument("--summary", metavar="FILE")
    parser.add_argument("--allow-missing-isa", action="store_true")
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args(arguments)
    missing = evidence.missing_isas(flags, OF_ORACLE)
    if missing:
        print(f"this CPU has no {' and no '.join(missing)}: the oracle of the core block cannot run", file=sys.stderr)
        return 4
    missing = evidence.missing_isas(flags, ISAS)
    if not evidence.may_lack(missing, chosen.allow_missing_isa):
        return 4
    page = chosen.summary and evidence.page_without(missing, ROOT / chosen.summary)
    if chosen.check:
        if page:
            print(page)
        return 0
    if chosen.preset != "release":
        BUILD, KEPT = ROOT / "build" / chosen.preset / "tests", KEPT / chosen.preset
    called, needed = PRESETS[chosen.preset]
    lacking = [f"{program} is not built" for program in needed if not (BUILD / program).exists()]
    found = [] if lacking else shards(needed)
    wrong = lacking or unexpected(found, needed)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 4
    wanted = [shard for shard in found if chosen.only.search(shard[1])]
    if not wanted:
        parser.error(f"argument --only: {chosen.only.pattern!r} fits none of {len(found)} shards")
    KEPT = KEPT / "_".join(["with", *(isa for isa in ISAS if isa not in missing)])   # a shard runs on those that are there
    KEPT.mkdir(parents=True, exist_ok=True)
    programs = {program: digest(program) for program in needed}
    until = math.inf if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    judged = {shard: one for shard in wanted if (one := kept(shard, programs)) and not one["skipped"]}
    left = [shard for shard in wanted if shard not in judged]
    print(f"{len(wanted)} shards, {sum(one['passed'] for one in judged.values())} of them passed before", file=sys.stderr)
    for shard, one in judged.items():
        if not one["passed"]:   # who runs until it passes proves nothing
            print(f"FAILED before  {shard[1]}; without {kept_at(shard)} it would run again", file=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        for shard, result in zip(left, pool.map(lambda one: run(one, programs, until), left)):
            if result:
                word = "skipped" if result["skipped"] else "passed" if result["passed"] else "FAILED"
                print(f"{word}  {shard[1]}  {result['seconds']} s", file=sys.stderr)
    text, failed, skipped, not_run = summary(found, programs, called, missing)
    if page and not chosen.only.pattern:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    else:
        print(text)
    if failed or (skipped and not chosen.allow_missing_isa):
        return 1
    return 3 if not_run and not chosen.only.pattern else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], evidence.of_cpu("flags", "Features")))
