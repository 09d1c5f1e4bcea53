# The tiers of tests, each of which adds up its results. Read by ./dev.

# Each part runs even if one before it failed; the tally counts a part without results as a failure.
run_tests() {
  local status=0 began=$SECONDS tested=0
  ctest_part release || status=1
  python_package .venv || status=1
  python3 tests/package/commands.py build/python/compile_commands.json --hardened || status=1
  pytest_part release || status=1
  python3 tests/tally.py --seconds $((SECONDS - began)) "$tested" --goal 10 --status "$status" --summary docs/evidence/test.md --called './dev test' build/release/ctest.xml=1268 build/release/pytest.xml=2437 || status=1
  return "$status"
}

# full_setup [arguments of full]: of what runs without a limit, too, so that one line tells all before hours have passed.
full_setup() {
  local emulated=()
  [[ $# -gt 0 && $1 != --* ]] || ! emulates || emulated=("${neon_packages[@]}")
  local more=()
  [[ $# -gt 0 && $1 != --* ]] || more=("${coverage_packages[@]}" "${tidy_packages[@]}")
  install_packages "${build_packages[@]}" "${test_packages[@]}" "${emulated[@]}" "${more[@]}"
  setup
  [[ ${#more[@]} -eq 0 ]] || python_packages build/gcovr tests/coverage/requirements.txt
  [[ ${#emulated[@]} -eq 0 ]] || arm64_root build/neon/root
}

# Whether ./dev test --full runs other CPUs in emulators: on x86-64, of which old_cpus has older ones.
emulates() { [[ $(uname -m) == x86_64 ]]; }

# The library as its pages name it.
source_of_pages() { PYTHONPATH=tests python3 -c 'import evidence; print(evidence.SOURCE)'; }

# shards command..: 3 where shards are left, 1 for whatever else it ends with.
shards() {
  local status=0
  "$@" || status=$?
  [[ $status -eq 0 || $status -eq 3 ]] || return 1
  return "$status"
}

# full [minutes]: what takes hours, after all else has passed; without a limit also each allocation that fails, the
# same under sanitizers, the seeded faults, coverage, what analyzers say, and other CPUs.
full() {
  local chosen=()
  [[ $# -eq 0 || $1 == --* ]] || { chosen=(--minutes "$1"); shift; }
  local limited=${#chosen[@]} leave=()
  [[ " $* " != *" --allow-missing-isa "* ]] || leave=(--allow-missing-isa)
  chosen+=("$@")
  python3 tests/full/run.py --check "${chosen[@]}" || return 1
  if [[ $limited -eq 0 && ! $(source_of_pages) =~ ^source\ [0-9a-f]+$ ]]; then
    say "pages would be of $(source_of_pages), and in the end nobody's; commit first, or give MINUTES" >&2
    return 1
  fi
  run_tests || return 1
  build release full_programs || return 1
  shards python3 tests/full/run.py --jobs "$jobs" --summary docs/evidence/full.md "${chosen[@]}" || return
  [[ $limited -eq 0 ]] || return 0
  HEED_EXHAUSTIVE=1 pytest_part release --dist worksteal -k test_each_allocation_may_fail --junit-xml=build/release/allocations.xml || return
  python3 tests/tally.py --summary docs/evidence/allocations.md \
    --called 'HEED_EXHAUSTIVE=1 of ./dev test --full' build/release/allocations.xml=15 || return
  build asan full_programs forward_properties_{bits,truth}_test kernels_test || return 1
  shards under_asan python3 tests/full/run.py --preset asan --jobs "$jobs" --summary docs/evidence/full_sanitized.md "$@" || return
  build tsan full_bases || return 1
  shards under_tsan python3 tests/full/run.py --preset tsan --jobs "$jobs" --summary docs/evidence/full_threads.md "$@" || return
  clang || return
  mutants || return
  coverage "${leave[@]}" || return
  analyzer || return
  tidy || return
  local page pages=(allocations mutants analyzer tidy)
  if emulates; then
    neon || return
    old_cpus || return
    pages+=(neon old_cpus)
  fi
  pages=("${pages[@]/#/docs/evidence/}")
  pages=("${pages[@]/%/.md}")
  for page in test full full_sanitized full_threads clang coverage; do   # what they are called on this CPU
    pages+=("$(python3 tests/full/run.py --check "${chosen[@]}" --summary "docs/evidence/$page.md")")
  done
  say "all pages, of which this command makes some:"
  python3 tests/evidence.py || :   # as ./dev evidence
  say "those that it makes:"
  python3 tests/evidence.py "${pages[@]}"   # so that none tells of another source, or of something wrong
}

sanitized_tests=1153     # that ctest knows, but what is labelled bits or slow
bits_tests=85            # that are labelled bits
sanitized_programs=1158  # pytest's of the command, of files and of examples
without_programs=(bench coverage full fuzz mutants oracle package python rules)  # folders of tests: pytest runs no program of a build there

# All that ctest knows but what is labelled bits or slow under AddressSanitizer and UBSan, with the command
# line's own tests and the Python package's; what is labelled threads under ThreadSanitizer.
sanitize() {
  local status=0 began=$SECONDS tested=0
  under_asan ctest_part asan --label-exclude '^(bits|slow)(_threads)?$' || status=1
  under_asan pytest_part asan "${without_programs[@]/#/--ignore=tests/}" || status=1
  under_asan sanitize_python || status=1
  ctest_part tsan --label-regex '^((bits|slow)_)?threads$' || status=1
  memcheck || status=1
  python3 tests/tally.py --seconds $((SECONDS - began)) "$tested" --status "$status" --summary docs/evidence/sanitize.md --called './dev sanitize' \
    build/asan/ctest.xml=$sanitized_tests build/asan/pytest.xml=$sanitized_programs build/asan_python/pytest.xml=721 build/tsan/ctest.xml=269 \
    build/release/valgrind.xml=12 || status=1
  return "$status"
}

# The tests of the Python package with an extension under AddressSanitizer and UBSan, in a folder of its own. Python is not
# instrumented: the sanitizer is preloaded, with the C++ library whose exceptions it wraps, and what Python never frees is no leak;
# memory that NumPy cannot have is to be an error as ever.
# One file takes three quarters of the time, so tests of a file run side by side, too.
# What stays out looks at the wheel, at the loaded library, at CPU time or address space, or has an allocator of its own.
sanitize_python() {
  local folder=$PWD/build/asan_python/package libraries
  rm -rf "$folder" build/asan_python/pytest.xml
  build asan_python heed_python heed_cli || return 1
  mkdir -p "$folder"
  cp -r python/heed "$folder" || return 1
  cmake --install build/asan_python --component python --prefix "$folder" >/dev/null || return 1
  if [[ $(nm -D "$folder"/heed/_core*.so) != *__asan_init* ]]; then
    say "the extension has no sanitizer in it" >&2
    return 1
  fi
  libraries="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libstdc++.so)"
  ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0:allocator_may_return_null=1 LD_PRELOAD=$libraries PYTHONPATH=$folder HEED_BIN=$folder/heed/bin/heed \
    in_python --dist worksteal --junit-xml=build/asan_python/pytest.xml tests/python \
    --ignore=tests/python/test_python_{package,import,memory}.py \
    --deselect=tests/python/test_python_process.py::test_{ctrl_c_ends_a_long_call,what_does_not_fit_is_a_memory_error_with_the_bytes_asked}
}

# What ./dev sanitize asks of ctest and of the command, and the tests labelled bits, compiled by Clang, the tests' own code too: it also
# tells numbers that a conversion changed unasked, and floats that do not fit the integer that they become. The scalar path
# is g++'s, as in preset kernel_coverage.
clang() {
  local status=0 began=$SECONDS tested=0
  under_asan ctest_part clang --label-exclude '^slow(_threads)?$' || status=1
  under_asan pytest_part clang "${without_programs[@]/#/--ignore=tests/}" || status=1
  python3 tests/tally.py --seconds $((SECONDS - began)) "$tested" --status "$status" --summary docs/evidence/clang.md --called './dev clang' \
    build/clang/ctest.xml=$((sanitized_tests + bits_tests)) build/clang/pytest.xml=$sanitized_programs || status=1
  return "$status"
}

# The inputs of the fuzz targets under valgrind, which sees memory that is read before it is written, with
# AVX2: it knows no AVX-512. On the scalar path, table lookups of lanes that hold no row are reported, too.
memcheck() {
  local status=0 run failure results=""
  # The first takes as long as all others: in halves, side by side.
  local runs=(attention.{0,1}/2 {merge,packing,command_line,npy_header,npy,npz,safetensors,round_trip,flag_values}.0/1)
  rm -f build/release/valgrind.xml build/release/unset
  build release fuzz_targets || return 1
  say "valgrind: ${runs[*]}"
  export VALGRIND_OPTS="-q --error-exitcode=9"
  HEED_MAX_ISA=avx2 timed xargs --max-args=1 --max-procs="$jobs" bash -c \
    'valgrind "build/release/tests/fuzz/fuzz_${0%.*}" --part "${0#*.}" "tests/fuzz/corpus/${0%.*}."* && echo "$0 passed"' \
    <<<"${runs[*]}" >build/release/valgrind.log || status=1
  # A program that branches on memory that nobody wrote: what should be seen is seen.
  c++ -x c++ -O0 -o build/release/unset - <<<'int main() { int* unset = new int; return *unset == 7 ? 1 : 0; }'
  run=0
  valgrind build/release/unset 2>>build/release/valgrind.log || run=$?
  [[ $run -ne 9 ]] || echo "unset passed" >>build/release/valgrind.log
  unset VALGRIND_OPTS
  for run in "${runs[@]}" unset; do
    failure=""
    grep -qxF "$run passed" build/release/valgrind.log || { status=1; failure="<failure/>"; }
    results+="<testcase classname='valgrind' name='$run'>$failure</testcase>"
  done
  echo "<testsuite>$results</testsuite>" >build/release/valgrind.xml
  return "$status"
}
