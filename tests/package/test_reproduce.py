"""reproduce.py tells what is wrong with installed shared libraries, made here to be right but for one thing."""

import pytest

import reproduce
from test_binaries import compiled

VERSION = "0.1.0"
SHOWN = ("#include <cstdio>\nnamespace heed { char shown(const char* v, int n) "
         "{ char b[64]; std::snprintf(b, 60u + n, \"%s\", v); return b[0]; } }\n")
HARDENED = ["-fPIC", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-Wl,-z,relro,-z,now"]


def made(folder, name, *flags, soname="0.1", more=""):
    compiled(folder, SHOWN + more, f"lib{name}.so.{VERSION}", "-shared", *HARDENED, f"-Wl,-soname,lib{name}.so.{soname}", *flags)


def test_shared_libraries_that_are_wrong_are_told(tmp_path):
    prefix, exported = tmp_path / "prefix", tmp_path / "exported"
    for folder in (prefix, exported):
        folder.mkdir()
    for name in ("heed", "heed_io"):
        made(prefix, name)
        (exported / f"{name}.txt").write_text("heed::shown(char const*, int)\n")

    def said():
        return list(reproduce.wrong_with_shared(prefix, VERSION, exported))

    assert said() == []
    for name in ("heed", "heed_io"):
        library = f"lib{name}.so.{VERSION}"
        for flags, other, told in (([], {"more": "namespace heed { void extra() {} }"}, ": heed::extra() is exported and not listed"),
                                   (["-fvisibility=hidden"], {}, ": heed::shown(char const*, int) is listed"),
                                   (["-Wl,-z,lazy"], {}, " binds its functions late"),
                                   ([], {"more": "extern \"C\" int fork(); [[gnu::used]] static int child() { return fork(); }"},
                                    " calls fork, which starts a program"),
                                   ([], {"soname": "0"}, f" has the soname lib{name}.so.0;")):
            made(prefix, name, *flags, **other)
            assert [library + told in line for line in said()] == [True], told
        made(prefix, name)
    assert said() == []
    (prefix / f"libheed_io.so.{VERSION}").unlink()
    assert said() == [f"shared libraries are ['libheed.so.{VERSION}']"]


def test_a_prefix_that_no_consumer_finds_is_told(tmp_path):
    (tmp_path / "prefix").mkdir()
    said = list(reproduce.wrong_with_consumers(tmp_path / "prefix", tmp_path / "work"))
    assert len(said) == 1 and "heedConfig.cmake" in said[0]


@pytest.mark.parametrize("other, wrong, told", [
    ({"a": 1}, ["libheed.so.0.1.0: heed::extra() is exported and not listed"], ["1 of 1", "Not as it should be: libheed.so.0.1.0: heed::e"]),
    ({"a": 2}, [], ["0 of 1", "| a | **differs** |"]), ({"a": 1, "b": 2}, [], ["1 of 2", "| b | **differs** |"]),
    ({}, [], ["0 of 1", "| a | **differs** |"])])
def test_what_differs_or_is_wrong_stands_on_the_page_as_such(other, wrong, told):
    lines, count = reproduce.section("static", {"a": 1}, other, wrong)
    page = "\n".join(lines)
    assert count == 1 and len(reproduce.evidence.wrong(page)) == 1 and all(words in page for words in told)


def test_a_page_where_nothing_differs_tells_of_nothing_wrong():
    for kind in reproduce.KINDS:
        lines, count = reproduce.section(kind, {"a": 1}, {"a": 1}, [])
        assert count == 0 and not reproduce.evidence.wrong("\n".join(lines)) and "1 of 1 files are the same." in lines
