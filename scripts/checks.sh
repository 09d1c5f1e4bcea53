# What looks at the library in another way: analyzers, other CPUs, peers, faults, measurements. Read by ./dev.

tidy() {
  local status=0 began=$SECONDS tested=0 results="" sources compiled
  mkdir -p build/tidy
  rm -f build/tidy/results.xml
  build release && python_package .venv || return 1
  mapfile -t sources < <(git ls-files -co --exclude-standard -- '*.h' '*.cc')
  [[ ${#sources[@]} -gt 0 ]] || { say "git knows no files here" >&2; return 1; }
  say "checking the format of ${#sources[@]} files"
  as_case "clang-format, ${#sources[@]} files" clang-format-14 --dry-run -Werror "${sources[@]}" || status=1
  # What needs JAX, a consumer of what is installed and a test under sanitizers only are not in these builds.
  mapfile -t compiled < <(git ls-files -co --exclude-standard -- '*.cc' ':!python/src/jax.cc' ':!tests/consumer' ':!tests/faults/watched_test.cc')
  say "running clang-tidy"
  # What it finds is on stdout; on stderr it counts the warnings of headers that it does not show, and says why it cannot run.
  as_case "clang-tidy, ${#compiled[@]} files" clang_tidy "${compiled[@]}" 2>build/tidy/stderr.log ||
    { status=1; grep -v ' warnings\? generated\.$\|^Suppressed ' build/tidy/stderr.log >&2 || :; }
  echo "<testsuite>$results</testsuite>" >build/tidy/results.xml
  python3 tests/tally.py --seconds $((SECONDS - began)) "$tested" --status "$status" --summary docs/evidence/tidy.md --called './dev tidy' build/tidy/results.xml=2 || status=1
  return "$status"
}

# clang_tidy files..: each must be in the release build or in that of the Python package. They are read without the headers that g++
# compiled, so that it also sees whether each file includes what it needs, and without a macro of the command line that it would
# take for an expression.
clang_tidy() {
  python3 - "$@" <<'END' || return 1
import json, os, re, sys
wanted = {os.path.abspath(name) for name in sys.argv[1:]}
commands = {one["file"]: one for build in ("python", "release") for one in json.load(open(f"build/{build}/compile_commands.json"))
            if one["file"] in wanted}
for one in commands.values():
    one["command"] = re.sub(r" -Winvalid-pch -include \S*cmake_pch\.hxx| -DNB_BACKEND_PYPI=\S+", "", one["command"])
json.dump([*commands.values()], open("build/tidy/compile_commands.json", "w"))
if lost := wanted - set(commands):
    sys.exit(print("not compiled, so not read:", *sorted(lost)) or 1)
END
  run-clang-tidy-14 -quiet -j "$jobs" -p build/tidy
}

# as_case name command..: what became of the command is one more test case in `results`.
as_case() {
  local name=$1 failure="" at=$SECONDS
  shift
  timed "$@" || failure="<failure/>"
  results+="<testcase classname='tidy' name='$name' time='$((SECONDS - at))'>$failure</testcase>"
  [[ -z $failure ]]
}

# The kernels, the bits, and what of the case matrix takes minutes rather than hours in an emulator. The rest is left
# out: a regular expression of names as ctest knows them, and the reason that the page tells.
neon_without=(
  '_NOT_BUILT$=not built, for time: above the kernels the source is that of every CPU, and the suite kernels calls each of them'
  '^fuzz\.=not built, for time: natively the same inputs run on every instruction set'
  '^rules\.=about the source, not about a CPU'
  '^(cgroup|pool|scratch|tasks|threads)\.=about the system and the memory, no kernel runs'
  '^matrix\..*sizes_lengths=hours in the emulator; full_random draws sizes, lengths and masks'
  '^matrix_large\.=hours in the emulator; decode_order has rows of 5,000 keys'
  '_placement.*further_apart=tensors over gigabytes of addresses, for which the emulator wants as much memory'
  'no_repetition|64_threads=too many calls for the emulator; bits and machines have fewer, with several numbers of threads'
  'every_float_becomes=all 2^32 floats; floats_beside_each_neighbour takes the ends of each range that becomes one number')
neon() {
  local status=0 began=$SECONDS tested=0 one left_out="" reasons=()
  for one in "${neon_without[@]}"; do
    left_out+=${left_out:+|}${one%=*}
    reasons+=(--without "$one")
  done
  build neon kernels_test runtime_test forward_{bits,decode_order,machines,matrix,half,paired}_test \
    backward_{bits,machines,masked}_test {forward,forward_statistics,backward,jvp,inspect,cache,packing,modules}_placement_test runtime_callers_test jvp_test jvp_{bits,machines}_test modules_{linear,machines}_test \
    cache_{decode,half}_test packing_{half_,}test merge_test full_random || return 1
  say "testing (neon)"
  rm -f build/neon/ctest.xml
  timed ctest --preset neon --parallel "$jobs" --no-tests=error --output-junit "$PWD/build/neon/ctest.xml" \
    --exclude-regex "$left_out" || status=1
  ctest --preset neon --show-only=json-v1 >build/neon/known.json || status=1
  python3 tests/tally.py --seconds $((SECONDS - began)) "$tested" --status "$status" --summary docs/evidence/neon.md --called './dev neon' --known build/neon/known.json \
    "${reasons[@]}" build/neon/ctest.xml=364 || status=1
  return "$status"
}

# What the release build does where AVX2, or even SSE3, is not there.
old_cpus() {
  build release heed_cli runtime_test {forward,backward,jvp,modules}_machines_test forward_{matrix,bits}_test \
    full_random || return 1
  python_package .venv || return 1
  python3 tests/runtime/old_cpus.py --python .venv/bin/python --jobs "$jobs" --summary docs/evidence/old_cpus.md
}

fuzz() {
  local called="./dev fuzz${*:+ $*}" seconds=60
  [[ $# -eq 0 || $1 == --* ]] || { seconds=$1; shift; }
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "$0 fuzz: SECONDS is '$seconds'; expected a whole number from 1" >&2; return 2; }
  build fuzz fuzz_targets || return 1
  say "fuzzing, $seconds seconds for each target"
  python3 tests/fuzz/run.py "$seconds" "$@" --jobs "$jobs" --called "$called" --summary docs/evidence/fuzzing.md
}

peers() {
  local status=0 began=$SECONDS tested=0
  build release heed_cli write_pictures module_run example_minilm || return 1
  python_package build/peers || return 1
  rm -f build/peers/pytest.xml
  HEED_BIN=$PWD/build/release/cli/heed HEED_NUMERICS=$PWD/docs/numerics.md timed build/peers/bin/python -m pytest -s "${in_pytest[@]}" \
    --junit-xml=build/peers/pytest.xml tests/peers || status=1
  python3 tests/tally.py --seconds $((SECONDS - began)) "$tested" --status "$status" --summary docs/evidence/peers.md --called './dev peers' build/peers/pytest.xml=$((1298 + 93 + 61 + 88)) || status=1
  return "$status"
}

# Sphinx has an environment of its own, and runs where what heed's modules import is. A docstring that it cannot read
# is a failure.
reference() {
  python_package build/peers || return 1
  say "writing build/docs"
  local sphinx=(build/reference/lib/python*/site-packages)
  rm -rf build/docs
  PYTHONPATH=${sphinx[0]} build/peers/bin/python -m sphinx -q -W --keep-going -b html -d build/reference/doctrees \
    docs/reference build/docs || return 1
  say "written: build/docs/index.html"
}

# The faults of tests/mutants; with numbers or names only those, and no summary.
mutants() {
  local summary=(--summary docs/evidence/mutants.md)
  [[ $# -eq 0 ]] || summary=()
  python3 tests/mutants/run.py --jobs "$jobs" "${summary[@]}" "$@"
}

# Whole programs: a process for each test would read and write all counters each time. The kernels have a build
# of their own, with Clang: they are inlined and compiled for several targets from one line, which gcov cannot tell apart.
# With --allow-missing-isa a CPU may lack some of their instruction sets.
coverage() {
  local status=0 program programs kernel_programs
  program=$(python3 tests/coverage/report.py --programs) || return 1
  mapfile -t programs <<<"$program"
  program=$(python3 tests/coverage/report.py --kernel-programs) || return 1
  mapfile -t kernel_programs <<<"$program"
  build coverage "${programs[@]}" io_convert || return 1
  build kernel_coverage "${kernel_programs[@]}" || return 1
  find build/coverage -name '*.gcda' -delete
  for program in "${programs[@]}"; do
    say "running $program"
    "$(find build/coverage/tests -name "$program" -type f)" --gtest_brief=1 || status=1
  done
  HEED_IO_CONVERT=$PWD/build/coverage/tests/io/io_convert \
    .venv/bin/python -m pytest "${in_pytest[@]}" tests/io || status=1
  rm -rf build/kernel_coverage/profiles
  for program in "${kernel_programs[@]}"; do
    say "running $program (kernels)"
    LLVM_PROFILE_FILE=$PWD/build/kernel_coverage/profiles/$program.profraw \
      "$(find build/kernel_coverage/tests -name "$program" -type f)" --gtest_brief=1 || status=1
  done
  [[ $status -eq 0 ]] || { say "a test failed: nothing is written" >&2; return 1; }
  python3 tests/coverage/report.py --gcovr build/gcovr/bin/gcovr --build build/coverage \
    --kernels build/kernel_coverage --summary docs/evidence/coverage.md "$@"
}

analyzer() { python3 tests/io/analyzer.py --summary docs/evidence/analyzer.md; }

# measure module [its arguments..]: one of bench/, with heed in its process
measure() {
  build release heed_bench_abi >&2 || return 1
  HEED_BENCH_ABI=$PWD/build/release/bench/libheed_bench_abi.so PYTHONPATH=$PWD/bench \
    build/compare/bin/python -m "$@"
}
