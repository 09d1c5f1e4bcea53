"""functions.inc and references.inc are what make_tables.py writes, byte for byte.

Method: it runs in an empty folder. The truths are mpmath's to 50 digits, rounded to two doubles, so no version of it
should change one.
"""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    subprocess.run([sys.executable, HERE / "make_tables.py"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("table", ["functions.inc", "references.inc"])
def test_the_truths_are_those_that_mpmath_computes(written, table):
    assert (written / table).read_bytes() == (HERE / table).read_bytes()
