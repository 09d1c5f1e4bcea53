"""How each source is compiled, as compile_commands.json tells it: what flags do together, wherever they came from.

    python3 tests/package/commands.py BUILD/compile_commands.json [--hardened]

Prints what is wrong, one line each, and exits with 1 if anything is.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rules"))
from rules import FAST_MATH, MACHINE  # noqa: E402

# Objects of what is installed. The program has all of cli and the training of its study; a wheel has both and the extension,
# whose build ./dev test looks at.
SHIPPED = re.compile(r"(?:src|cli|python)/.*|training/CMakeFiles/heed_training\.dir/.*")

# They hold numbers at sizes that were checked, and a check of the stack costs time there (src/kernels/CMakeLists.txt).
NO_STACK_PROTECTOR = ("bf16.cc.o", "conversions.cc.o", "kernels_f32.cc.o", "kernels_f64.cc.o")


def last(words, *beginnings):
    """Of the words that begin so, the one that counts."""
    return next((word for word in reversed(words) if word.startswith(beginnings)), "nothing")


def wrong_flags(words, made, hardened):
    for word in words:
        if re.match(f"{MACHINE}|{FAST_MATH}", word):
            yield f"{word} changes the machine or the arithmetic"
    if last(words, "-ffp-contract=") != "-ffp-contract=off":
        yield f"{last(words, '-ffp-contract=')} where -ffp-contract=off is expected"
    if not hardened or not SHIPPED.fullmatch(made):
        return
    protector = last(words, "-fstack-protector", "-fno-stack-protector")
    if protector != "-fstack-protector-strong" and not made.endswith(tuple(f"/kernels/{name}" for name in NO_STACK_PROTECTOR)):
        yield f"{protector} where -fstack-protector-strong is expected: it is shipped"
    if not re.match("-D_FORTIFY_SOURCE=[23]$", last(words, "-D_FORTIFY_SOURCE", "-U_FORTIFY_SOURCE")):
        yield f"{last(words, '-D_FORTIFY_SOURCE', '-U_FORTIFY_SOURCE')} where -D_FORTIFY_SOURCE=2 is expected: it is shipped"
    asserts = last(words, "-D_GLIBCXX_ASSERTIONS", "-U_GLIBCXX_ASSERTIONS")
    if made.startswith("src/io/") and not asserts.startswith("-D"):
        yield f"{asserts} where -D_GLIBCXX_ASSERTIONS is expected: it reads files"


def wrong(listed, hardened):
    """A source without a character, which tests/package makes, has nothing to compile."""
    shipped = 0
    for entry in json.loads(listed.read_text(encoding="utf-8")):
        if pathlib.Path(entry["file"]).stat().st_size == 0:
            continue
        words = shlex.split(entry["command"])
        made = os.path.relpath(pathlib.Path(entry["directory"], words[words.index("-o") + 1]), listed.parent)
        shipped += SHIPPED.fullmatch(made) is not None
        for what in wrong_flags(words, made, hardened):
            yield f"{made}: {what}"
    if shipped < 40:
        yield f"{shipped} objects of what is shipped; expected those of the library at least"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commands", type=pathlib.Path)
    parser.add_argument("--hardened", action="store_true", help="the build is optimised and hardened")
    arguments = parser.parse_args()
    found = list(wrong(arguments.commands.resolve(), arguments.hardened))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
