"""The release build on x86-64 CPUs that this machine is not: under qemu-user, which ends a program at the first
instruction that the CPU does not have.

    python3 tests/runtime/old_cpus.py [--build build/release] [--python .venv/bin/python] [--jobs N] [--cpu Haswell].. [--summary FILE]

Each CPU first shows that it is one: instructions that it lacks must end a small program with SIGILL. Then `heed info` must
name the instruction set; `heed run` must write, byte for byte, what it writes here with every instruction set; `heed bench`
must measure what it measures here with the same one, its peak with that set's instructions; the fixed results of tests/*/machines_test.cc and a part of the matrix must hold; and the Python package must compute. NumPy's own
wheels need x86-64-v2: on older CPUs only the extension module is loaded. qemu 7.2 has no AVX-512, so of that path is shown that
it is not taken, and nothing else. Ends with "N passed, N failed"; exits with 1 if any failed.
"""

import argparse
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
QEMU = "qemu-x86_64"

# One instruction of each set, by name; the assembler takes them all, whatever the compiler's own target is.
INSTRUCTIONS = {"ssse3": "pabsb %xmm0, %xmm0", "sse4.2": "pcmpgtq %xmm0, %xmm0", "avx": "vaddps %ymm0, %ymm0, %ymm0",
                "avx2": "vpaddd %ymm0, %ymm0, %ymm0", "fma": "vfmadd231ps %ymm0, %ymm0, %ymm0",
                "avx512": "vaddps %zmm0, %zmm0, %zmm0"}

# What each CPU has of them, and the instruction set that heed should choose there.
CPUS = {"Haswell": (("ssse3", "sse4.2", "avx", "avx2", "fma"), "avx2"),        # 2013
        "SandyBridge": (("ssse3", "sse4.2", "avx"), "scalar"),                 # 2011
        "Nehalem": (("ssse3", "sse4.2"), "scalar"),                            # 2008: x86-64-v2
        "core2duo": (("ssse3",), "scalar"),                                    # 2006
        "Opteron_G1": ((), "scalar")}                                          # 2003: the first with x86-64
V2 = ("Haswell", "SandyBridge", "Nehalem")
SCALAR_FILTER = "matrix/0.scales:matrix/1.scales:matrix/0.masks_broadcast:matrix/0.heads_and_batch"

# Programs of build/tests, what of them is run, and on which CPUs. AVX2 takes minutes in the emulator where the scalar
# kernels take seconds; these kernels are the same code on all the others.
PROGRAMS = [("forward/forward_machines_test", "*", tuple(CPUS)), ("modules/modules_machines_test", "*", tuple(CPUS)),
            ("backward/backward_machines_test", "*", ("Haswell", "Opteron_G1")),
            ("jvp/jvp_machines_test", "*", ("Haswell", "Opteron_G1")),
            ("runtime/runtime_test", "isa.*:float_environment.*", tuple(CPUS)),
            ("forward/forward_matrix_test", "matrix/0.scales:matrix/1.scales:matrix/0.masks_broadcast", ("Haswell",)),
            ("forward/forward_matrix_test", SCALAR_FILTER, ("SandyBridge", "Nehalem", "core2duo", "Opteron_G1")),
            ("forward/forward_bits_test", "bits/0.no_instruction_set_changes_one", ("Haswell",)),
            ("full/full_random", "*/f32_draws0", tuple(CPUS))]  # 10,000 cases each

CHECKS = 80   # of all CPUs, with the Python package

# Flags of heed run, with the type of q, k, v and d_output.
RUNS = [("<f4", "--causal", "--lse", "--weights"), ("<f4", "--window", "9,3", "--alibi", "0.5,0.25", "--softcap", "5"),
        ("<f4", "--normalize-qk", "--dropout", "0.25", "--seed", "7"), ("<f4", "--gradients", "--causal", "--sinks", "0.5,1"),
        ("<f8", "--causal"), ("<f2", "--key-lengths", "77")]

# A few shapes of heed bench, one path of the kernels each, and what measures the peak.
BENCH = ("bench", "--json", "--seconds", "0.001", "--n", "33,1x90", "--d", "20", "--dtype", "float32,float64,float16,bfloat16")
PEAKS = {"avx2": "AVX2 multiply-adds of float32", "scalar": "std::fma of float32"}

ATTEND = """
import hashlib, heed, numpy as np
x = (np.arange(3 * 2 * 70 * 24) * 7919 % 1009 / np.float32(250) - np.float32(2)).astype(np.float32).reshape(3, 1, 2, 70, 24)
print(heed.instruction_set(), hashlib.sha256(heed.attention(*x, causal=True).tobytes()).hexdigest())
"""
LOAD = """
import glob, importlib.util, os
places = importlib.util.find_spec("heed").submodule_search_locations
spec = importlib.util.spec_from_file_location("heed._core", glob.glob(os.path.join(places[0], "_core*.so"))[0])
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
print(core.instruction_set())
"""


def on(cpu, *command, **variables):
    """Runs it on this CPU, or natively if there is none, with no HEED_ variables but these."""
    emulator = [QEMU, "-cpu", cpu] if cpu else []
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEED_")}
    return subprocess.run([*emulator, *map(str, command)], env={**clean, **variables}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)


def said(done):
    """The end of what it printed, without what qemu has to say about features of no concern."""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "TCG doesn't support" not in line]
    return f"exit code {done.returncode}: " + "\n".join(lines[-20:])


class Sample:
    """Files for heed run, and what it writes here."""

    def __init__(self, heed, folder):
        self.heed, self.folder = heed, folder
        draw = random.Random(11)
        for kind, letter in (("<f2", "e"), ("<f4", "f"), ("<f8", "d")):
            for name, rows in (("q", 37), ("k", 90), ("v", 90), ("d", 37)):
                header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (1, 2, {rows}, 20), }}".ljust(117) + "\n"
                numbers = [4 * draw.random() - 2 for _ in range(2 * rows * 20)]
                (folder / f"{name}{kind[1:]}.npy").write_bytes(
                    b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                    struct.pack(f"<{len(numbers)}{letter}", *numbers))

    def written(self, cpu, run, **variables):
        """The SHA-256 of the results, or what went wrong."""
        kind, *flags = run
        name = hashlib.sha256(repr((cpu, run, variables)).encode()).hexdigest()[:16]
        output = self.folder / f"{name}.{'safetensors' if len(flags) > 2 else 'npy'}"
        inputs = [self.folder / f"{letter}{kind[1:]}.npy" for letter in "qkv"]
        if "--gradients" in flags:
            flags += ["--d-output", self.folder / f"d{kind[1:]}.npy"]
        done = on(cpu, self.heed, "run", *inputs, "-o", output, "-q", *flags, **variables)
        if done.returncode or not output.exists():
            return said(done)
        return hashlib.sha256(output.read_bytes()).hexdigest()


def refuses_what_it_lacks(cpu, probe):
    for name in INSTRUCTIONS:
        done, has = on(cpu, probe, name), name in CPUS[cpu][0]
        if done.returncode != (0 if has else -signal.SIGILL):
            return f"{name}: {said(done)}; this CPU {'has' if has else 'does not have'} it"
    return None


def info_names_the_instruction_set(cpu, heed):
    for variables, isa in (({}, CPUS[cpu][1]), ({"HEED_MAX_ISA": "avx512"}, CPUS[cpu][1]), ({"HEED_MAX_ISA": "scalar"}, "scalar")):
        done = on(cpu, heed, "info", **variables)
        used = [line.split()[0] for line in done.stdout.splitlines() if " used: " in line]
        if done.returncode or used != [isa]:
            return f"with {variables} it uses {used}, expected {isa}; {said(done)}"
    return None


def writes_the_same_bytes(cpu, sample, run, isas):
    here = {isa: sample.written(None, run, HEED_MAX_ISA=isa) for isa in isas}
    there = sample.written(cpu, run)
    if len(there) != 64 or set(here.values()) != {there}:
        return f"here {here}, there {there}"
    return None


def bench_measures(cpu, heed):
    """The loops that measure the peak are vector code too, outside of the kernels."""
    isa = CPUS[cpu][1]
    here, there = on(None, heed, *BENCH, HEED_MAX_ISA=isa), on(cpu, heed, *BENCH)
    if here.returncode or there.returncode:
        return f"here {said(here)}, there {said(there)}"
    facts = [[(row["instruction_set"], row["fma_peak_of"], row["max_error"], row["hash"]) for row in json.loads(done.stdout)]
             for done in (here, there)]
    fine = facts[0] == facts[1] and {row[:2] for row in facts[1]} == {(isa, PEAKS[isa])}
    return None if fine else f"here {facts[0]}, there {facts[1]}"


def passes(cpu, program, chosen):
    done = on(cpu, program, f"--gtest_filter={chosen}", "--gtest_brief=1")
    # A filter that fits nothing passes, too, and a test that skips: "[==========] 0 tests from 0 test suites ran."
    ran, passed = re.search(r"\] (\d+) tests? from", done.stdout), re.search(r"\[  PASSED  \] (\d+) test", done.stdout)
    fine = done.returncode == 0 and ran and passed and ran[1] == passed[1] and int(ran[1]) >= len(chosen.split(":"))
    return None if fine else said(done)


def python_computes(cpu, python):
    isa = CPUS[cpu][1]
    if cpu not in V2:
        done = on(cpu, python, "-c", LOAD)
        return None if (done.returncode, done.stdout) == (0, f"{isa}\n") else said(done)
    # Of the emulator's CPUs NumPy's OpenBLAS takes kernels for Haswell, and ends `import numpy` with SIGILL: it is told.
    here, there = on(None, python, "-c", ATTEND), on(cpu, python, "-c", ATTEND, OPENBLAS_CORETYPE=cpu)
    fine = here.returncode == there.returncode == 0 and there.stdout.split() == [isa, here.stdout.split()[1]]
    return None if fine else f"here {said(here)}, there {said(there)}"


def made_probe(folder):
    cases = "".join(f'  if (!__builtin_strcmp(v[1], "{name}")) asm volatile("{line.replace("%", "%%")}" ::: "xmm0");\n'
                    for name, line in INSTRUCTIONS.items())
    (folder / "probe.cc").write_text(f"int main(int, char** v) {{\n{cases}}}\n")
    subprocess.run(["c++", "-O1", folder / "probe.cc", "-o", folder / "probe"], check=True)
    return folder / "probe"


def checks(build, python, cpus, folder):
    heed, probe = build / "cli" / "heed", made_probe(folder)
    sample = Sample(heed, folder)
    isas = [line.split()[0] for line in on(None, heed, "info").stdout.splitlines() if line.endswith(" available") or " used: " in line]
    for cpu in cpus:
        yield cpu, "lacks what it lacks", refuses_what_it_lacks, (cpu, probe)
        yield cpu, "heed info", info_names_the_instruction_set, (cpu, heed)
        for run in RUNS:
            yield cpu, f"heed run {' '.join(run)}", writes_the_same_bytes, (cpu, sample, run, isas)
        yield cpu, "heed bench", bench_measures, (cpu, heed)
        if python:
            yield cpu, "Python package", python_computes, (cpu, python)
    for program, chosen, where in PROGRAMS:
        for cpu in (cpu for cpu in cpus if cpu in where):
            yield cpu, f"{program.partition('/')[2]} {chosen}", passes, (cpu, build / "tests" / program, chosen)


def page(rows, last_line, lost=""):
    """What a run found, to be kept."""
    lines = ["# Older CPUs", "", f"`./dev old_cpus`, under qemu-user, {evidence.today()}: {last_line}.", "",
             *([f"Not as it should be: {lost}.", ""] if lost else []), "| CPU | lacks | instruction set | check | |", "|---|---|---|---|---|"]
    for cpu, what, word in rows:
        lacks = " ".join(name for name in INSTRUCTIONS if name not in CPUS[cpu][0])
        lines.append(f"| {cpu} | {lacks} | {CPUS[cpu][1]} | {what.replace('|', ' ')} | {word} |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--python", help="of an environment with NumPy and heed; without, the package is not asked")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--summary", type=pathlib.Path, help="where to write what was found")
    parser.add_argument("--cpu", action="append", choices=CPUS, help="this one; may be given again")
    arguments = parser.parse_args()
    if not shutil.which(QEMU):
        raise SystemExit(f"old_cpus: there is no {QEMU}; Debian has it in qemu-user")
    rows = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        asked = [(cpu, what, pool.submit(check, *given))
                 for cpu, what, check, given in checks(arguments.build.resolve(), arguments.python, arguments.cpu or list(CPUS),
                                                       pathlib.Path(folder))]
        for cpu, group in itertools.groupby(sorted(asked, key=lambda x: list(CPUS).index(x[0])), key=lambda x: x[0]):
            for _, what, future in group:
                try:
                    wrong = future.result()
                except (OSError, subprocess.SubprocessError) as error:
                    wrong = str(error)
                word = "ok" if wrong is None else "FAILED"
                rows.append((cpu, what, word))
                print(f"{word:<6}  {cpu}: {what}" + (f"\n{wrong}" if wrong else ""), flush=True)
    failed = sum(word == "FAILED" for _, _, word in rows)
    last_line = f"{len(rows) - failed} passed, {failed} failed"
    lost = ""
    if not arguments.cpu and arguments.python and len(rows) != CHECKS:
        lost = f"{len(rows)} checks; expected {CHECKS}: some are lost, or new and not counted"
    if arguments.summary:
        arguments.summary.write_text(page(rows, last_line, lost))
    print(last_line, *([lost] if lost else []), sep="\n")
    return 1 if failed or lost or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
