# Builds, and runs of tests of one build. Read by ./dev.

# build preset [targets..]
build() {
  local preset=$1 targets=()
  shift
  [[ $# -eq 0 ]] || targets=(--target "$@")
  local cache=build/$preset/CMakeCache.txt fresh=()
  if [[ -f $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"; then
    fresh=(--fresh)   # the checkout was moved or copied
  fi
  mkdir -p "build/$preset"
  if ! cmake --preset "$preset" "${fresh[@]}" >"build/$preset/configure.log" 2>&1; then
    cat "build/$preset/configure.log" >&2
    return 1
  fi
  say "building ($preset, $jobs jobs)"
  cmake --build --preset "$preset" --parallel "$jobs" "${targets[@]}"
}

# under_tsan command..: ThreadSanitizer wants its part of the address space for itself.
under_tsan() {
  local runner=()
  ! setarch -R true 2>/dev/null || runner=(setarch -R)
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 "${runner[@]}" "$@"
}

# under_asan command..: AddressSanitizer and UBSan, of either compiler, with all that they can tell.
under_asan() {
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 "$@"
}

tested=0
# timed command..: tests, whose seconds `tested` adds up; builds are not among them.
timed() {
  local status=0 began=$SECONDS
  "$@" || status=$?
  tested=$((tested + SECONDS - began))
  return "$status"
}

# ctest_part preset [ctest arguments..]: results go to build/PRESET/ctest.xml
ctest_part() {
  local preset=$1 progress=() runner=() targets=()
  shift
  [[ ! -t 1 ]] || progress=(--progress)
  [[ $preset != tsan ]] || { runner=(under_tsan); targets=(threads_tests); }
  rm -f "build/$preset/ctest.xml"
  build "$preset" "${targets[@]}" || return 1
  say "testing ($preset)"
  timed "${runner[@]}" ctest --preset "$preset" --parallel "$jobs" --no-tests=error "${progress[@]}" \
    --output-junit "$PWD/build/$preset/ctest.xml" "$@"
}

# python_package folders..: a wheel of the Python package, built as users build it, into these virtual
# environments. c++ is the compiler's name in the other builds: under the same name ccache gives back
# what they compiled.
python_package() {
  local pip=(-m pip --disable-pip-version-check --quiet) folder jax=()
  # heed.jax is in it where one of these environments has JAX; else the header's place is said to be none.
  for folder in "$@"; do
    jax=(--config-settings cmake.define.HEED_JAX_INCLUDE="$("$folder/bin/python" -c \
      'import jax; print(jax.ffi.include_dir())' 2>/dev/null || echo none)")
  done
  say "building the Python package"
  rm -rf build/wheel
  CXX=c++ CMAKE_BUILD_PARALLEL_LEVEL=$jobs .venv/bin/python "${pip[@]}" wheel --no-build-isolation --no-deps \
    --wheel-dir build/wheel --config-settings build-dir=build/python \
    --config-settings cmake.define.HEED_WERROR=ON "${jax[@]}" . || return 1
  for folder in "$@"; do
    "$folder/bin/python" "${pip[@]}" install --no-deps --force-reinstall build/wheel/heed-*.whl || return 1
  done
}

# What is raised in a thread or by a finalizer fails a test as well; pytest alone would only warn.
in_pytest=(-q -p no:cacheprovider -W error::pytest.PytestUnhandledThreadExceptionWarning -W error::pytest.PytestUnraisableExceptionWarning)

# in_python [pytest arguments..]: Python tests, files of them side by side
in_python() {
  timed .venv/bin/python -m pytest "${in_pytest[@]}" --numprocesses "$jobs" --dist loadfile "$@"
}

# pytest_part preset [pytest arguments..]: the Python tests, on the programs of that build
pytest_part() {
  local preset=$1 status=0
  shift
  rm -f "build/$preset/pytest.xml"
  HEED_BIN=$PWD/build/$preset/cli/heed HEED_IO_CONVERT=$PWD/build/$preset/tests/io/io_convert \
    in_python tests --ignore=tests/peers --junit-xml="build/$preset/pytest.xml" "$@" || status=$?
  [[ $status -eq 5 ]] || return "$status"   # 5: there are none
}
