"""What takes hours: the whole core block of the case matrix, and 5,000 draws of each property.

    python3 tests/full/run.py [--jobs N] [--minutes M] [--only REGEX] [--summary FILE]

Each test of the programs below is a shard of its own: a process, whose result is kept in build/full. A shard that
passed is not run again as long as the sources stay as they are, so a run can be stopped and gone on with; --minutes
stops it by itself, the shards under way are ended and lost. The summary says what passed, what failed and what was not
run. Exits with 1 if a shard failed or ran other cases than the manifest says, with 3 if shards are left.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release" / "tests"
KEPT = ROOT / "build" / "full"
SOURCES = ("src", "include", "tests/forward", "tests/backward", "tests/jvp", "tests/oracle", "tests/full")
MATRIX = "full/full_matrix"
CASES = 684          # of a shard of the matrix: 36 lengths x 19 maskings
DRAWS = 5000
PROPERTIES = ("forward/forward_properties_bits_test", "forward/forward_properties_truth_test")


def digest():
    whole = hashlib.sha256(str(DRAWS).encode())
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file():
                whole.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def shards(only):
    """(program, test) of all, the cheap types of the matrix first."""
    found = []
    for program in (*PROPERTIES, MATRIX):
        listed = subprocess.run([BUILD / program, "--gtest_list_tests"], capture_output=True, text=True, check=True)
        suite = ""
        for line in listed.stdout.splitlines()[1:]:
            if not line.startswith(" "):
                suite = line.split()[0]
            else:
                found.append((program, suite + line.split()[0]))
    order = ("bf16_dots", "f32", "bf16_d", "f16", "f64")
    found.sort(key=lambda shard: next((n for n, word in enumerate(order, 1) if "/" + word in shard[1]), 0))
    return [shard for shard in found if re.search(only, shard[1])]


def kept_at(shard):
    return KEPT / (re.sub(r"[^A-Za-z0-9_.]+", "_", shard[1]) + ".json")


def kept(shard, sources):
    try:
        result = json.loads(kept_at(shard).read_text())
    except (OSError, ValueError):
        return None
    return result if result["sources"] == sources else None


def run(shard, sources, until):
    """Runs one shard and keeps what it found; None if its time was over first."""
    left = until - time.monotonic()
    if left <= 0:
        return None
    program, test = shard
    report = kept_at(shard).with_suffix(".gtest")
    begin = time.monotonic()
    try:
        done = subprocess.run([BUILD / program, f"--gtest_filter={test}", f"--gtest_output=json:{report}"],
                              env={**os.environ, "HEED_TEST_DRAWS": str(DRAWS)}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=left)
    except subprocess.TimeoutExpired:
        return None
    told = {}
    if report.exists():
        told = json.loads(report.read_text())["testsuites"][0]["testsuite"][0]
        report.unlink()
    skipped = told.get("result") == "SKIPPED"
    cases = int(told.get("cases", 0))
    wanted = CASES if program == MATRIX and not skipped else 0
    result = {"sources": sources, "test": test, "seconds": round(time.monotonic() - begin, 1), "cases": cases,
              "mistrusted": int(told.get("mistrusted", 0)), "skipped": skipped,
              "passed": done.returncode == 0 and cases == wanted, "output": "" if done.returncode == 0 else done.stdout[-4000:]}
    kept_at(shard).write_text(json.dumps(result))
    return result


def kind(shard):
    if shard[0] != MATRIX:
        return f"properties, {DRAWS} draws each"
    return "core block, " + re.search(r"/(bf16_dots|[a-z]+\d+)_d", shard[1])[1]


def summary(all_shards, sources):
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown CPU")
    lines = ["# The full tier", "",
             f"`./dev test --full`, {datetime.date.today()}, {cpu}, {os.cpu_count()} cores. A shard of the core block is one size of",
             f"heads with every length and every masking, {CASES} cases, each on every instruction set of this machine; the 16-bit types",
             "stand for the bits of float32 rounded once, `bf16_dots` for dot products of bfloat16 within their bound.", "",
             "| part | shards | passed | failed | skipped | not run | cases | CPU hours |", "|---|---|---|---|---|---|---|---|"]
    parts = {}
    for shard in all_shards:
        parts.setdefault(kind(shard), []).append(kept(shard, sources))
    for name, found in parts.items():
        ran = [one for one in found if one]
        skipped = sum(one["skipped"] for one in ran)
        passed = sum(one["passed"] and not one["skipped"] for one in ran)
        lines.append(f"| {name} | {len(found)} | {passed} | {len(ran) - passed - skipped} | {skipped} | {len(found) - len(ran)} | "
                     f"{sum(one['cases'] for one in ran):,} | {sum(one['seconds'] for one in ran) / 3600:.2f} |")
    failed = [one["test"] for found in parts.values() for one in found if one and not one["passed"]]
    lines += ["", "Failed: " + (", ".join(f"`{name}`" for name in failed) if failed else "none.")]
    mistrusted = sum(one["mistrusted"] for found in parts.values() for one in found if one)
    lines += ["", f"Mistrusted cases (nine tenths of the output are zeros, by the nature of the case): {mistrusted:,}.", ""]
    return "\n".join(lines), len(failed), sum(one is None for found in parts.values() for one in found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--summary", metavar="FILE")
    chosen = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    sources, until = digest(), time.monotonic() + min(60 * chosen.minutes, 1e9)
    wanted = shards(chosen.only)
    left = [shard for shard in wanted if not (kept(shard, sources) or {}).get("passed")]
    print(f"{len(wanted)} shards, {len(wanted) - len(left)} of them passed before", file=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        for shard, result in zip(left, pool.map(lambda one: run(one, sources, until), left)):
            if result:
                word = "skipped" if result["skipped"] else "passed" if result["passed"] else "FAILED"
                print(f"{word}  {shard[1]}  {result['seconds']} s", file=sys.stderr)
    text, failed, missing = summary(shards(""), sources)
    if chosen.summary:
        (ROOT / chosen.summary).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / chosen.summary).write_text(text)
    else:
        print(text)
    return 1 if failed else 3 if missing and not chosen.only else 0


if __name__ == "__main__":
    sys.exit(main())
