"""What of the readers and writers of files no test reaches, beside the table of docs/evidence/unreached.md that says why.

A place is a file and the text of a line of it, so that it stays the same when lines move. Lines of the same text are one place.
"""

import collections
import re

import kernels

HEAD = "| file | branches | line of the source | why nothing reaches it |"


def missed(files, root, folder):
    """{(file, text): branches that were not taken}, 0 being a line without branches that was not run, of gcovr's JSON."""
    places = collections.Counter()
    for file in files:
        name = file["file"]
        if not name.startswith(folder + "/"):
            continue
        text = (root / name).read_text(encoding="utf-8").splitlines()
        run, taken = collections.Counter(), collections.Counter()
        for line in file["lines"]:  # one for each instance of a template
            run[line["line_number"]] += line["count"]
            for branch in line["branches"]:
                taken[line["line_number"], branch["branchno"]] += branch["count"]
        for number, count in run.items():
            branches = [times for (line, _), times in taken.items() if line == number]
            source = text[number - 1].strip()
            if 0 in branches or (count == 0 and not branches and kernels.is_code(source)):
                places[name, source] += branches.count(0)
    return dict(places)


def listed(document, folder):
    """{(file, text): branches} of the table below HEAD; a file that is left out is that of the row above."""
    places, name = {}, ""
    _, found, table = document.partition(HEAD + "\n")
    if not found:
        raise ValueError(f"no table begins with {HEAD}")
    for row in table.splitlines()[1:]:
        if not row.startswith("|"):
            break
        file, branches, source, why = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
        name = f"{folder}/{file}" if file else name
        place = name, source.strip("`").replace("\\|", "|").strip()
        if place in places:
            raise ValueError(f"{name}: the table has `{place[1]}` twice")
        if not why:
            raise ValueError(f"{name}: the table gives no reason for `{place[1]}`")
        places[place] = int(branches)
    return places


def row(place, branches, folder):
    file, source = place
    escaped = source.replace("|", "\\|")
    return f"| {file.removeprefix(folder + '/')} | {branches} | `{escaped}` |"


def differences(found, known, folder):
    """A sentence for each place where the tests and the table disagree."""
    for place in sorted(found.keys() | known.keys()):
        if place not in known:
            yield f"no test reaches, and unreached.md does not have: {row(place, found[place], folder)}"
        elif place not in found:
            yield f"unreached.md has what the tests reach, or what is gone: {row(place, known[place], folder)}"
        elif found[place] != known[place]:
            yield f"{found[place]} branches are not reached, unreached.md has: {row(place, known[place], folder)}"
