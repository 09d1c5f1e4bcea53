"""Each rule of rules.py fires on a tree that breaks it, and is silent on one that does not."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import messages
import rules

HERE = pathlib.Path(__file__).resolve().parent
CLEAN = {
    "include/heed/tensor.h": "// A tensor.\n#pragma once\n#include <cstdint>\nusing Size = std::int64_t;\n",
    "include/heed/heed.h": '// All.\n#pragma once\n#include "heed/tensor.h"\n',
    "src/kernels/exp2.cc": '// exp2, no new memory.\n#include <hwy/highway.h>\n#include "kernels/exp2.h"\n',
    "cli/run.cc": "// Run.\n",
    "src/attention/forward.cc": '// Forward.\n#include "kernels/exp2.h"\n#include "heed/heed.h"\n',
    "src/io/npz.cc": "// Reads npz.\n#include <zip.h>\n",
    "python/src/array.cc": "// Arrays.\n#include <nanobind/nanobind.h>\n",
    "python/heed/rows.py": '"""Rows."""\nraise ValueError(f"rows: rows is {0}; expected " f"{1} or {2} rows [a, b]")\n',
    "tests/python/test_rows.py": '"""Rows."""\nWORDS = r"^rows: rows is 0; expected 1 or 2 rows \\[a, b\\]"\n'
                                 'def test_rows():\n    assert WORDS\n',
    "python/heed/both.py": '"""Both."""\nraise TypeError("k is given, but v is not; expected both of them")\n',
    "tests/python/test_both.py": '"""Both."""\nUNUSED = "words of a table that no test names"\ndef test_both():\n'
                                 '    """Words that only a docstring has."""\n'
                                 '    told = "k is given, but v is not; expected both"\n'
                                 '    assert told != "it was released already; expected a name"\n',
    "tests/python/support.py": '"""For tests."""\nTOLD = "words that a helper of tests has"\ndef test_it():\n    return TOLD\n',
    "tests/forward/seen.h": '// For tests.\n#pragma once\ninline const char* const kSeen = "words that a header of tests has";\n',
    "src/io/said.cc": '// Said.\nvoid f(const std::string& label) {\n  plot("words that are no refusal");\n'
                      '  throw Error(label + ": said in the body of a test");\n}\n'
                      'void h() { throw Error("said in a table, " "in two parts"); }\n',
    "tests/io/said_test.cc": '// It says: words that only a comment has.\nconst char kQuote = \'"\';\n'
                             'const char* const kUnused[] = {"words of a table that no test names"};\n'
                             'const char* const kTold[] = {\n    "said in a table, in two parts"};\n'
                             'TEST(said, words) {\n  EXPECT_EQ(f(), "x: said in the body of a test");\n'
                             '  EXPECT_EQ(h(), kTold[0]);\n}\n',
    "cli/peak.cc": '// Loops.\n[[gnu::target("avx2")]] void avx2_loop();\n',
    "tests/internal/fold_test.cc": '// The fold.\n#include "attention/fold.h"\n',
    "tests/io/internal/size_test.cc": '// Sizes.\n#include "io/tensor.h"\n',
    "tests/CMakeLists.txt": "# -march=native would be wrong\nset(x -Wmissing-declarations -DNAME=a-mask)\n",
}
PATCH = """What is wrong.

--- a/cli/run.cc
+++ b/cli/run.cc
@@ -1,1 +1,1 @@
-// Run.
+// Run, wrongly.
"""
BROKEN = [
    ("public_headers_include_only_heed_and_std", "include/heed/x.h:2", "// X.\n#include <hwy/highway.h>\n"),
    ("public_headers_include_only_heed_and_std", "include/heed/x.h:2", "// X.\n#include <unistd.h>\n"),
    ("public_headers_stand_alone", "include/heed/x.h:1", "// X.\n#pragma once\nstd::string name;\n"),
    ("public_headers_stand_alone", "include/heed/x.h:1", "// X, twice.\nstruct X {};\n"),
    ("users_see_the_public_headers_only", "cli/run.cc:2", '// Run.\n#include "attention/fold.h"\n'),
    ("users_see_the_public_headers_only", "tests/io/i_test.cc:2", '// I.\n#include "io/tensor.h"\n'),
    ("users_see_the_public_headers_only", "tests/oracle/o.cc:2", '// O.\n#include "heed/tensor.h"\n'),
    ("users_see_the_public_headers_only", "bench/b.cc:2", '// B.\n#include "runtime/pool.h"\n'),
    ("sources_include_downwards_only", "src/runtime/p.cc:2", '// P.\n#include "attention/fold.h"\n'),
    ("sources_include_downwards_only", "src/io/p.cc:2", '// P.\n#include "kernels/exp2.h"\n'),
    ("sources_include_downwards_only", "src/runtime/p.cc:2", '// P.\n#include "../attention/fold.h"\n'),
    ("users_see_the_public_headers_only", "cli/run.cc:2", '// Run.\n#include "../src/attention/fold.h"\n'),
    ("libraries_stay_at_home", "src/attention/a.cc:2", "// A.\n#include <hwy/highway.h>\n"),
    ("libraries_stay_at_home", "src/runtime/j.cc:2", "// J.\n#include <nlohmann/json.hpp>\n"),
    ("libraries_stay_at_home", "cli/p.cc:2", "// P.\n#include <nanobind/nanobind.h>\n"),
    ("kernels_see_std_and_highway_and_allocate_nothing", "src/kernels/a.h:2",
     '// A.\n#include "heed/attention.h"\n'),
    ("kernels_see_std_and_highway_and_allocate_nothing", "src/kernels/a.h:2",
     "// A.\nfloat* scratch = new float[8];\n"),
    ("kernels_see_std_and_highway_and_allocate_nothing", "src/kernels/a.h:2",
     "// A.\nauto scratch = hwy::AllocateAligned<float>(8);\n"),
    ("kernels_see_std_and_highway_and_allocate_nothing", "src/kernels/a.h:2", "// A.\nstd::deque<float> scratch;\n"),
    ("lambdas_over_pairs_have_their_attributes", "src/kernels/a-inl.h:3",
     "// A.\n#ifdef HEED_PAIRS_TARGET\nauto f = [](int j) HWY_ATTR { return j; };\n#endif\n"),
    ("files_have_at_most_500_lines", "src/io/long.cc:501", "// Long.\n" + "\n" * 500),
    ("lines_have_at_most_100_columns", "cli/run.cc:1", f"// {98 * 'x'}\n"),
    ("files_begin_with_a_sentence", "cli/run.cc:1", "#include <vector>\n"),
    ("no_flag_changes_the_machine_or_the_arithmetic", "src/CMakeLists.txt:1", "set(f -mavx2)\n"),
    ("no_flag_changes_the_machine_or_the_arithmetic", "src/CMakeLists.txt:1", 'set(f "-O2;-ffast-math")\n'),
    ("no_flag_changes_the_machine_or_the_arithmetic", "cmake/F.cmake:2", "\nset(f -O3 -march=native)\n"),
    ("no_flag_changes_the_machine_or_the_arithmetic", "src/io/a.cc:2",
     '// A.\n#pragma GCC optimize("O3")\n'),
    *(("no_flag_changes_the_machine_or_the_arithmetic", "src/CMakeLists.txt:1", f"set(f {flag})\n")
      for flag in ("-ffp-contract=fast", "-ffp-contract=on", "-fno-signed-zeros", "-fcx-limited-range", "-ffp-model=fast",
                   "-fassociative-math")),
    *(("no_flag_changes_the_machine_or_the_arithmetic", f"{path}:2", f"// A.\n{code}\n") for path, code in (
        ("src/io/a.cc", '[[gnu::optimize("fast-math")]] float f(float);'), ("src/io/a.cc", '[[gnu::target("avx2")]] void f();'),
        ("src/io/a.cc", '[[nodiscard,\n  gnu::__target__("avx2")]] int f();'), ("src/io/a.cc", "#pragma STDC FP_CONTRACT ON"),
        ("cli/peak.cc", '[[gnu::optimize("fast-math")]] float f(float);'), ("cli/peak.cc", '#pragma GCC optimize("O3")'),
        ("src/io/a.cc", '[[using gnu: hot, target_clones("avx2", "default")]] void f();'),
        ("tests/io/a_test.cc", '__attribute__((noinline, optimize("fast-math"))) float f(float);'))),
    ("messages_are_quoted_by_a_test", "src/io/a.cc:2", '// A.\nvoid f() { fail("the block has begun already; expected a block"); }\n'),
    ("messages_are_quoted_by_a_test", "src/io/a.cc:2",
     '// A.\nvoid f() { fail("dk is given, but v is not; expected both of them"); }\n'),
    ("messages_are_quoted_by_a_test", "src/io/a.cc:2", '// A.\nvoid f() { fail("a thing that no "\n  "test has read"); }\n'),
    ("messages_are_quoted_by_a_test", "python/heed/a.py:3",
     '"""A."""\ndef f(x):\n    raise ValueError(f"f: {x} is a thing that no "\n                     f"test has read, and {x} too")\n'),
    ("messages_are_quoted_by_a_test", "python/heed/a.py:3",
     '"""A."""\ndef f(x):\n    return TypeError("one that others raise" if x else f"{x}")\n'),
    *(("messages_are_quoted_by_a_test", "src/io/a.cc:2", f'// A.\nvoid f() {{ throw Error("{words}"); }}\n') for words in (
        "words that only a comment has", "words that only a docstring has", "words of a table that no test names",
        "words that a helper of tests has", "words that a header of tests has")),
    *(("messages_are_quoted_by_a_test", "cli/a.cc:3", f"// A.\n{code}\n") for code in (
        *(f"void f() {{\n  {start}\"an entirely new refusal\"{end}; }}" for start, end in (
            ("throw std::invalid_argument(", ")"), ("throw New{", "}"), ("throw New<int>(1, ", ")"), ("return UsageError(", ")"),
            ("PyErr_SetString(PyExc_ValueError, ", ")"))),
        'void f() {\n  const std::string words = "an entirely new refusal";\n  throw Error(words);\n}',
        'const char* words() {\n  return "an entirely new refusal";\n}\nvoid f() { throw Error(words()); }',
        'void f() {\n  demand(false, "an entirely new refusal");\n}\n'
        'void demand(bool holds, const std::string& what) {\n  if (!holds) throw Error(what);\n}',
        'void f() {\n  demand("an entirely new refusal"); }\nvoid demand(const char* what) {\n'
        '  std::string text = "f: ";\n  text += what;\n  throw Error(text);\n}',
        'const auto demand = [](const char* what) { throw Error(what); };\nvoid f() { demand("an entirely new refusal"); }',
        'void f() {\n  demand("an entirely new refusal"); }\nvoid demand(const char* what) { claim(what, 1); }\n'
        'void claim(const char* what, int) { throw Error(what); }\nvoid g() { claim("said in a table, in two parts", 2); }')),
    *(("messages_are_quoted_by_a_test", f"{path}:3", f"// A.\nvoid f() {{\n  refuse_{end}(\"an entirely new refusal\"); }}\n")
      for path, end in (("src/io/a.cc", "end"), ("python/src/a.cc", "at"), ("training/a.h", "here"))),
    *(("messages_are_quoted_by_a_test", "python/heed/a.py:3", f'"""A."""\n{code}\n') for code in (
        'def f():\n    raise New("an entirely new refusal")',
        'def words():\n    return "an entirely new refusal"\nraise New(words())',
        'def f():\n    demand(0, "an entirely new refusal")\ndef demand(x, words):\n    raise ValueError(words)',
        'def f(x):\n    words = "an entirely new refusal"\n    raise New(words)')),
    ("seeded_faults_apply", "tests/mutants/01-gone.patch:1", PATCH.replace("// Run.", "// Ran.")),
]
RULES = re.findall(r"^    ([a-z_0-9]+)[,)\n]", (HERE / "CMakeLists.txt").read_text(), re.M)


def check(rule, folder, tree):
    shutil.rmtree(folder / "tree", ignore_errors=True)
    for name, text in tree.items():
        path = folder / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run([sys.executable, HERE / "rules.py", rule, "--root", folder / "tree"],
                          capture_output=True, text=True)


@pytest.mark.parametrize("rule", RULES)
def test_clean_tree_passes(rule, tmp_path):
    done = check(rule, tmp_path, CLEAN)
    assert (done.returncode, done.stdout.strip()) == (0, "")


@pytest.mark.parametrize("rule,place,text", BROKEN)
def test_broken_tree_is_named(rule, place, text, tmp_path):
    done = check(rule, tmp_path, CLEAN | {place.split(":")[0]: text})
    assert done.returncode == 1
    assert done.stdout.startswith(place), done.stdout


def test_what_no_test_can_bring_about_is_a_refusal_still():
    sources = dict(rules.files(HERE.parents[1], ["src", "cli", "python", "training"]))
    assert set(messages.UNQUOTED) <= {words for _, _, words in messages.refusals(sources)}


def test_every_rule_is_registered_and_shown_to_fire():
    known = set(re.findall(r"^def (\w+)\(root, (?:_|compiler)\)", (HERE / "rules.py").read_text(), re.M))
    assert set(RULES) == known == {rule for rule, _, _ in BROKEN}
