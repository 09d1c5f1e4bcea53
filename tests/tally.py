"""Sums what several test programs wrote as JUnit XML: the names that failed, then one line.

    python3 tests/tally.py build/release/ctest.xml build/release/pytest.xml

Exits with 1 if a test failed, if a file is missing (its program never got to the end) or if nothing
passed at all.
"""

import collections
import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    """ctest tells it in the attribute status, pytest by a child element."""
    status, skipped = case.get("status"), case.find("skipped")
    if status == "disabled":
        return "skipped"
    if status == "notrun":  # skipped by its own word, or ctest could not even start it
        return "skipped" if skipped.get("message", "").startswith("SKIP_") else "failed"
    if status == "fail" or case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if skipped is None else "skipped"


def main(paths):
    counts, failed = collections.Counter(), []
    for path in paths:
        try:
            cases = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            counts["failed"] += 1
            failed.append(f"no results: {error}")
            continue
        for case in cases:
            counts[outcome(case)] += 1
            if outcome(case) == "failed":
                failed.append(f"{path}: {case.get('name')}")
    for line in failed:
        print("failed:", line)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
