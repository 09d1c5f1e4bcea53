"""The refusals of the code, each with its words, and what tests have in quotes. Both are read as text, without a compiler.

A place refuses that throws or raises, that calls what has a telling name, or that hands words to a function which refuses
with what it is given, such as `require_pair(name, object, "(left, right)")`. Words that a refusal takes from a variable of
its function, or from a constant or a function of its file, count where they stand. What is not seen: words of fewer than
six characters, words of another file, and whether a test compares what it quotes.
"""

import ast
import collections
import re

SHORTEST = 6   # characters; what has fewer is not looked for
QUOTED = 18    # characters in a row that show that a test knows a message; shorter parts whole, from 10 on

TELLING = re.compile(r"(?:require|refuse|fail|raise)\w*|\w*[eE]rror|PyErr_\w+|Failure|invalid_argument|out_of_range")

# What no test can bring about, by all of its words.
UNQUOTED = {
    "the number of query rows must fit 63 bits": "the bytes of q, which are more, were counted before",
    "q, k, v and results exceed the address space": "what would exceed it is refused before, or cannot be had",
    "a complete member": "libzip fills these fields in, or does not open the archive",
    "the end of the directory": "libzip does not open an archive whose last record ends elsewhere",
    "each name once": "libzip refuses such an archive",
    "expected 8 gradients": "the package's own call, of arrays that it made",
    "expected 4 tangents": "the same",
    "expected 10 results": "the same",
    "an array has too few axes": "a call of XLA, checked before",
    "an array is of a type that heed does not read": "the same",
    "cannot find this program's folder:": "the link /proc/self/exe is always there",
    "no table": "the tables of a study and those of its charts stand in the same file",
    "no column": "the same of columns",
}

Call = collections.namedtuple("Call", "line name thrown words uses")   # what its arguments name
Text = collections.namedtuple("Text", "line name words")               # the variable or the function that has the words
Function = collections.namedtuple("Function", "name given calls texts")   # of a whole file without a name

STRING = r'"((?:\\.|[^"\\])*)"'
TOKEN = re.compile(rf"{STRING}|(\bthrow )?((?:\w|::)*)(?:<[^<>(){{}};]*>)?([({{])|[)}}]", re.S)
FUNCTION = re.compile(r"^( *)[^\n;{}=()#]*\b(\w+)(?: = \[[^]]*\])?\(((?:[^;{}()]|\([^()]*\)|\{\})*)\)[^;{}]*"
                      r"\{(?=([^\n]*\};?$|\n.*?^\1\}))", re.M | re.S)   # the last brace stands below the first line's begin
TEXT = re.compile(rf'^( *)(?! )[^"\n]*?\b(?:(\w+)(?:\[\])? \+?=|return) ((?:{STRING}|[^;"])*);', re.M | re.S)


def plain(text):
    """C++ without comments and characters, raw strings as others; line numbers stay."""
    def kept(match):
        if match[1] is not None:
            return '"' + match[1].replace("\\", "\\\\").replace('"', '\\"') + '"'
        return match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0])
    return re.sub(rf"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])'|R"\w*\((.*?)\)\w*"|{STRING}""", kept, text, flags=re.S)


def strings(text):
    """What is in quotes, neighbours as one."""
    return [re.sub(r'"\s*"', "", match[0].strip())[1:-1] for match in re.finditer(rf"(?:{STRING}\s*)+", text, re.S)]


def longest(pieces):
    """Who speaks, and the mark between what is and what is expected, are none of the words: tests often leave them out."""
    return max((re.sub(r"^(?:\w*: |; )", "", piece).replace("\\", "").strip() for piece in pieces), key=len, default="")


def read_cpp(text):
    text = plain(text)

    def line(at):
        return text.count("\n", 0, at) + 1
    around, calls = [], []
    for token in TOKEN.finditer(text):
        if token[4]:
            around.append(token)
        elif token[1] is None and around:
            call = around.pop()
            if call[2] or call[3]:
                inside = text[call.end():token.start()]
                uses = set(re.findall(r"\w+", re.sub(STRING, "", inside, flags=re.S)))
                calls.append((call.start(), Call(line(call.start()), call[3], call[2], longest(strings(inside)), uses)))
    texts = [(match.start(), match[1], Text(line(match.start()), match[2], longest(strings(match[3]))))
             for match in TEXT.finditer(text)]
    functions, of_all = [], [held for _, indent, held in texts if not indent]
    for match in FUNCTION.finditer(text):
        begin, end = match.span(4)
        given = {*re.findall(r"(\w+)(?: = [^,]*)?(?:,|$)", match[3]), *re.findall(r"std::string (\w+)", match[4])}
        inside = [held for at, _, held in texts if begin <= at < end]
        functions.append(Function(match[2], given, [call for at, call in calls if begin <= at < end], inside))
        of_all += [held._replace(name=match[2]) for held in inside if not held.name]
    return [Function("", set(), [call for _, call in calls], of_all), *functions]


def read_python(text):
    def name_of(node):
        return getattr(node, "attr", getattr(node, "id", ""))

    def words(node):
        return longest(part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str))

    def texts(name, nodes, kind):
        return [Text(node.lineno, name or name_of(node.targets[0]), words(node)) for node in nodes if isinstance(node, kind)]

    def calls(tree):
        for node in ast.walk(tree):
            made = node.exc if isinstance(node, ast.Raise) else node
            if made and (made is not node or isinstance(node, ast.Call)):
                uses = {part.id for part in ast.walk(made) if isinstance(part, ast.Name)}
                yield Call(made.lineno, name_of(getattr(made, "func", made)), made is not node, words(made), uses)
    tree = ast.parse(text)
    functions, of_all = [], texts("", tree.body, ast.Assign)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            given = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
            functions.append(Function(node.name, given, list(calls(node)), texts("", ast.walk(node), ast.Assign)))
            of_all += texts(node.name, ast.walk(node), ast.Return)
    return [Function("", set(), list(calls(tree)), of_all), *functions]


def refusals(sources):
    """(path, line, words) of each refusal of {path: text}."""
    functions = [(path, path.split("/")[0], function) for path, text in sources.items()
                 for function in (read_python if path.endswith(".py") else read_cpp)(text)]
    handing = set()   # functions that refuse with what they are given, each of a folder

    def refuses(folder, call):
        name = call.name.split("::")[-1]
        return call.thrown or TELLING.fullmatch(name) or (folder, name) in handing and not call.name.startswith("std::")
    told = {(folder, call.name.split("::")[-1]) for _, folder, function in functions for call in function.calls
            if " " in call.words}
    size = -1
    while size < len(handing):
        size = len(handing)
        handing |= told & {(folder, function.name) for _, folder, function in functions for call in function.calls
                           if function.given & call.uses and refuses(folder, call) and not call.name.endswith("logic_error")}
    found = set()
    for path, folder, function in functions:
        refusing = [call for call in function.calls if refuses(folder, call)]
        used = {name for call in refusing for name in call.uses}
        found |= {(path, call.line, call.words) for call in refusing}
        found |= {(path, text.line, text.words) for text in function.texts if text.name in used and " " in text.words}
    return sorted(refusal for refusal in found if len(refusal[2]) >= SHORTEST)


def quotes(path, text):
    """What a file of tests has in quotes, a line each: its tests, and what it has beside them and names a second time, such as
    tables and functions. A file without tests has none, and so have comments and docstrings."""
    if re.search(r"_test\.cc$", path):
        text = plain(text)
        parts = [(name[1], strings(part)) for part in re.split(r"^(?=[\w\[])", text, flags=re.M)
                 if (name := re.search(r"(\w+)(?:\[\w*\])* *[({=]", part))]
        is_test = re.compile(r"[A-Z][A-Z_\d]+")   # TEST, TYPED_TEST, INSTANTIATE_TEST_SUITE_P
    elif re.search(r"(^|/)test_\w+\.py$", path):
        tree = ast.parse(text)
        unheard = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = [(getattr(part, "name", getattr(getattr(part, "targets", [None])[0], "id", "")),
                  [node.value for node in ast.walk(part) if isinstance(node, ast.Constant) and isinstance(node.value, str)
                   and id(node) not in unheard]) for part in tree.body]
        is_test = re.compile(r"test_\w+|Test\w+|")
    else:
        return ""
    if not any(name and is_test.fullmatch(name) for name, _ in parts):
        return ""
    count = collections.Counter(re.findall(r"\w+", text))
    heard = [piece for name, told in parts if is_test.fullmatch(name) or count[name] > 1 for piece in told]
    return "\n".join(heard).replace("\\", "")


def windows(words):
    """Pieces that show these words: of what is or of what is expected, or between numbers. One across the mark between them is
    of neither: "already; expected a" said nothing of what had begun already."""
    parts = [part for part in re.split(r"[;:] |%[\d.]*[lz]*[a-z]", words.strip(" ;:")) if len(part) >= 10] or [words]
    return {part[at:at + QUOTED] for part in parts for at in range(max(1, len(part) - QUOTED + 1))}


def unquoted(sources, tests):
    """(path, line, words) of each refusal of whose words that no other one has no test has any. Of calls that share all of
    them, such as "; expected 0 or more", one test is enough here."""
    quoted = "\n".join(quotes(path, text) for path, text in tests.items())
    known = refusals(sources)
    users = collections.Counter(window for words in {words for _, _, words in known} for window in windows(words))
    for path, line, words in known:
        shown = {window for window in windows(words) if users[window] == 1} or windows(words)
        if not any(window in quoted for window in shown) and words not in UNQUOTED:
            yield path, line, words
