"""What the tests of the Python package share: drawing arrays, and attention by its definition."""

import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/cli"))

from cli_support import attention as definition, draw, no_new_threads, operands  # noqa: E402,F401


def close(seen, expected, tolerance=2e-6):
    """Equal up to float32's rounding, in numbers of the size of 1."""
    np.testing.assert_allclose(np.asarray(seen, np.float64), expected, rtol=tolerance, atol=tolerance)


def inputs(**sizes):
    """q, k and v of tests/cli, in order."""
    return tuple(operands(**sizes).values())
