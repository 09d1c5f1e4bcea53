"""Sections of a page of Markdown that stand between marks, <!-- name --> and <!-- /name -->, each on a line of its own."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
import evidence  # noqa: E402,F401  what pages say of the source and the machine


def marks(name):
    return f"<!-- {name} -->\n", f"<!-- /{name} -->"


def opened(parser, file, names):
    """The page of --markdown, which must have these sections: a wrong name is told before hours of measuring, and of no file
    anything else is replaced."""
    page = pathlib.Path(file)
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"--markdown: {file}: {error}")
    for begin, end in map(marks, names):
        if end not in text.partition(begin)[2]:
            parser.error(f"--markdown: {file} has no section to replace: expected a line {begin.strip()} and after it a line {end}")
    return page


def replace(page, name, section):
    """Writes the section in place of the one that the page has."""
    begin, end = marks(name)
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(before + begin + section + end + rest.partition(end)[2], encoding="utf-8")
