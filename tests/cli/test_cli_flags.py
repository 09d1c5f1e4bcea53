"""Every flag that --help lists is used by some test beside this one."""

import pathlib
import re

import pytest

from cli_support import heed_ok

HERE = pathlib.Path(__file__).resolve().parent
TESTS = "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("test_cli_*.py"))
                if path.name != pathlib.Path(__file__).name)


def flags_of(*command):
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", heed_ok(*command, "--help"), re.M))


@pytest.mark.parametrize("command", ["", "run", "inspect", "study", "bench", "info", "demo"])
def test_every_flag_is_used(command):
    flags = flags_of(*([command] if command else []))
    assert "--help" in flags
    assert [flag for flag in sorted(flags) if f'"{flag}"' not in TESTS] == []


def test_the_list_of_flags_is_read_as_a_reader_would():
    assert {"--scale", "--normalize-qk", "--output", "--quiet", "--max-bytes"} <= flags_of("run")
    assert len(flags_of("run")) == 31
