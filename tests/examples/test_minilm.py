"""examples/minilm.cc on a vocabulary and a random model made here: tokens as written down, embeddings by formula.

The real model, beside the Python package that ships it, is in tests/peers/test_minilm.py.
"""

import json
import math
import os
import pathlib
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEED = pathlib.Path(os.environ.get("HEED_BIN", ROOT / "build/release/cli/heed"))
PROGRAM = HEED.resolve().parents[1] / "examples" / "example_minilm"

VOCABULARY = """[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff ##able aff able a ##a ##b b cafe e ##e ; = ! - ' $ 日 本 か ᄒ
                ##ᅡ ##ᆫ σ ##σ й и ##й 3 . ##1 xx ##xx""".split()

# What a text is cut into, beside [CLS] and [SEP].
TOKENS = {
    "": "",
    " \t\u00a0\u3000 ": "",
    "unaffable": "un ##aff ##able",
    "UNAFFABLE able": "un ##aff ##able able",
    "unaffably": "[UNK]",                     # "##ab" and "##l" are no pieces, and no part of a word is kept
    "able unknown able": "able [UNK] able",
    "ab": "a ##b",
    "a b": "a b",
    "Café CAFÉ cafe\u0301": "cafe cafe cafe",  # one code point, or a letter and a mark
    "\u00c9\u00ea\u1ec7": "e ##e ##e",
    "a!b;;a": "a ! b ; ; a",
    "a-b's $3.": "a - b ' [UNK] $ 3 .",
    "a\u037eb": "a ; b",                       # the Greek question mark is a semicolon by its decomposition
    "a\u2260b": "a = b",                       # an equals sign and a stroke: only what it is folded to is a sign
    "日本a日": "日 本 a 日",
    "が": "か",                                 # its mark is no letter
    "한": "ᄒ ##ᅡ ##ᆫ",
    "ΣΣ": "σ ##σ",                             # a final sigma is not told from others
    "Й й": "и и",                              # U+0419 is И and a breve
    "a\u00adb a\u200bb a\0b a\ufffdb": "a ##b a ##b a ##b a ##b",
    "a\u2028b": "a b",
    "[MASK] a [SEP]b": "[MASK] a [SEP] b",
    "[mask]": "[UNK] [UNK] [UNK]",
    "[PAD][UNK]": "[PAD] [UNK]",
    "\U0001f600 a": "[UNK] a",
    "x" * 100: "xx" + " ##xx" * 49,
    "x" * 101 + " a": "[UNK] a",
    "\u00e9" * 100: "e" + " ##e" * 99,
    "\u00e9" * 101: "[UNK]",
    "e\u0301" * 100: "e" + " ##e" * 99,        # 100 characters count without their marks
}

CONFIG = {"hidden_act": "gelu", "hidden_size": 24, "intermediate_size": 40, "layer_norm_eps": 0.03,
          "max_position_embeddings": 20, "model_type": "bert", "num_attention_heads": 3, "num_hidden_layers": 2,
          "position_embedding_type": "absolute", "nested": {"a": ["}", "\\\"", 1], "hidden_size": 3}, "escaped": "\"",
          "type_vocab_size": 2, "vocab_size": len(VOCABULARY)}
SENTENCES = ["unaffable", "", "a b cafe!", "日本 unaffable able e e e 3.1", "xxxxxx " * 9, "a"]


def tensors_of_model(random):
    d, wide = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {"embeddings.word_embeddings.weight": (len(VOCABULARY), d),
              "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], d),
              "embeddings.token_type_embeddings.weight": (CONFIG["type_vocab_size"], d),
              "embeddings.LayerNorm.weight": (d,), "embeddings.LayerNorm.bias": (d,)}
    for n in range(CONFIG["num_hidden_layers"]):
        layer = f"encoder.layer.{n}"
        for name, shape in {"attention.self.query": (d, d), "attention.self.key": (d, d),
                            "attention.self.value": (d, d), "attention.output.dense": (d, d),
                            "intermediate.dense": (wide, d), "output.dense": (d, wide)}.items():
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.weight": (d,), f"{layer}.{name}.bias": (d,)}
    return {name: (0.3 * random.standard_normal(shape) + ("LayerNorm.weight" in name)).astype(np.float32)
            for name, shape in shapes.items()}


def write_model(folder, tensors, config=CONFIG, vocabulary=VOCABULARY):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tensors = tensors_of_model(np.random.default_rng(7))
    return write_model(tmp_path_factory.mktemp("minilm") / "model", tensors), tensors


def minilm(*arguments, threads=2, **more):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=600,
                          env={**os.environ, "HEED_NUM_THREADS": str(threads)}, **more)


def tokens_of(folder, texts):
    done = minilm(folder, "--tokens", input="\n".join([*texts, ""]).encode())
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(texts)
    return lines


def embeddings(folder, sentences, tmp_path, *arguments, **more):
    done = minilm(folder, "--embeddings", tmp_path / "e.npy", *arguments, "--", *sentences, **more)
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "e.npy"), done


# --- the formula, in float64

def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def norm(w, name, x, eps):
    centred = x - x.mean(-1, keepdims=True)
    return (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"]
            + w[f"{name}.bias"])


def exact_gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def embedding(tensors, tokens, eps=CONFIG["layer_norm_eps"], gelu=exact_gelu, unmasked=0, pooled=0, kind=0):
    """One sentence. `unmasked` rows of padding are attended to, `pooled` ones are pooled: mistakes to be seen."""
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    heads, n = CONFIG["num_attention_heads"], len(tokens)
    ids = np.array([VOCABULARY.index(token) for token in tokens] + [0] * max(unmasked, pooled))
    seen = n + unmasked
    x = (w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][kind]
         + w["embeddings.position_embeddings.weight"][:len(ids)])
    x = norm(w, "embeddings.LayerNorm", x, eps)
    for layer in (f"encoder.layer.{i}" for i in range(CONFIG["num_hidden_layers"])):
        q, k, v = (linear(w, f"{layer}.attention.self.{part}", x).reshape(len(x), heads, -1).swapaxes(0, 1)
                   for part in ("query", "key", "value"))
        p = np.exp(q @ k[:, :seen].swapaxes(1, 2) / math.sqrt(q.shape[-1]))
        y = ((p / p.sum(-1, keepdims=True)) @ v[:, :seen]).swapaxes(0, 1).reshape(x.shape)
        x = norm(w, f"{layer}.attention.output.LayerNorm",
                 x + linear(w, f"{layer}.attention.output.dense", y), eps)
        y = linear(w, f"{layer}.output.dense", gelu(linear(w, f"{layer}.intermediate.dense", x)))
        x = norm(w, f"{layer}.output.LayerNorm", x + y, eps)
    e = x[:n + pooled].mean(0)
    return e / np.linalg.norm(e)


def test_texts_are_cut_into_the_tokens_written_down(model):
    texts = list(TOKENS)
    assert not any("\n" in text for text in texts)
    for text, line in zip(texts, tokens_of(model[0], texts)):
        whole = " ".join(f"[CLS] {TOKENS[text]} [SEP]".split())
        if len(whole.split()) <= CONFIG["max_position_embeddings"]:
            assert line == whole, repr(text)


def test_long_texts_lose_their_end(model, tmp_path):
    longer = dict(CONFIG, max_position_embeddings=200)
    folder = write_model(tmp_path / "model", {}, longer)
    texts = [text for text in TOKENS if len(TOKENS[text].split()) > 18]
    assert len(texts) == 3
    for text, whole, cut in zip(texts, tokens_of(folder, texts), tokens_of(model[0], texts)):
        assert whole.split() == ["[CLS]", *TOKENS[text].split(), "[SEP]"]
        assert cut.split() == [*whole.split()[:19], "[SEP]"]
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 5, "do_lower_case": false}')
    assert tokens_of(folder, ["a b a b a b", "a"]) == ["[CLS] a b a [SEP]", "[CLS] a [SEP]"]


def test_embeddings_are_those_of_the_formula(model, tmp_path):
    folder, tensors = model
    got, done = embeddings(folder, SENTENCES, tmp_path)
    assert got.dtype == np.float32 and got.shape == (len(SENTENCES), CONFIG["hidden_size"])
    lines = [line.split() for line in tokens_of(folder, SENTENCES)]
    assert len(lines[4]) == 20  # as many as there are positions
    truth = np.array([embedding(tensors, line) for line in lines])
    assert np.abs(got - truth).max() <= 1e-5
    rows = [[float(x) for x in line.split()[1:7]] for line in done.stdout.decode().splitlines()]
    assert np.abs(np.array(rows) - truth @ truth.T).max() <= 0.5e-3 + 1e-5  # three digits are printed
    assert "6 sentences, " in done.stderr.decode() and "sentences/s" in done.stderr.decode()


@pytest.mark.parametrize("mistake", [{"eps": 1e-12}, {"gelu": tanh_gelu}, {"unmasked": 3}, {"pooled": 3},
                                     {"kind": 1}], ids=lambda mistake: next(iter(mistake)))
def test_mistakes_in_the_formula_would_be_seen(model, mistake):
    folder, tensors = model
    line = tokens_of(folder, ["a b cafe!"])[0].split()
    assert np.abs(embedding(tensors, line, **mistake) - embedding(tensors, line)).max() > 5e-5


def test_an_embedding_has_the_same_bits_in_any_batch(model, tmp_path):
    folder, _ = model
    whole, _ = embeddings(folder, SENTENCES, tmp_path)
    for arguments, threads in ((["--batch", "1"], 1), (["--batch", "2"], 2), ([], 1)):
        again, _ = embeddings(folder, SENTENCES[::-1], tmp_path, *arguments, threads=threads)
        assert whole.tobytes() == again[::-1].tobytes()
    read, _ = embeddings(folder, [], tmp_path, input="\n".join(SENTENCES).encode() + b"\n")
    assert whole.tobytes() == read.tobytes()


def test_a_table_has_at_most_twelve_sentences(model, tmp_path):
    assert len(minilm(model[0], *"aaaaaaaaaaaa").stdout.splitlines()) == 12
    assert refused(model[0], *"aaaaaaaaaaaaa") == ("example_minilm: 13 sentences are too many for a table, which has 12 at most; "
                                                   "give --embeddings FILE.npy\n")
    found, done = embeddings(model[0], [*"aaaaaaaaaaaaa"], tmp_path)
    assert found.shape[0] == 13 and done.stdout == b""
    assert len(minilm(model[0], "--tokens", *"aaaaaaaaaaaaa").stdout.splitlines()) == 13


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_tells_every_flag(flag):
    done = minilm(flag)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: example_minilm MODEL_FOLDER")
    for word in (b"--embeddings", b"--batch", b"--tokens"):
        assert word in done.stdout


def without(tensors, name):
    return {key: tensor for key, tensor in tensors.items() if key != name}


def refused(folder, *arguments):
    done = minilm(folder, *(arguments or ["a"]))
    assert done.returncode == 1 and done.stdout == b"", done
    return done.stderr.decode()


def test_a_tensor_that_does_not_fit_is_named(model, tmp_path):
    tensors = model[1]
    bias = "encoder.layer.1.attention.self.key.bias"
    folder = write_model(tmp_path / "m", without(tensors, bias))
    assert f"the file has no {bias}; expected it with shape (24,)" in refused(folder)
    write_model(folder, tensors | {bias: np.zeros(23, np.float32)})
    assert f"{bias} has shape (23,); expected (24,)" in refused(folder)
    write_model(folder, without(tensors, "encoder.layer.1.intermediate.dense.weight"))
    assert "no encoder.layer.1.intermediate.dense.weight; expected it with shape (40, 24)" in refused(folder)
    words = "embeddings.word_embeddings.weight"
    write_model(folder, tensors | {words: np.zeros((4, 24), np.float32)})
    assert f"{words} has shape (4, 24); expected ({len(VOCABULARY)}, 24)" in refused(folder)
    write_model(folder, tensors | {words: tensors[words].astype(np.int32)})
    assert f"{words} is int32; expected a floating-point type" in refused(folder)
    (folder / "model.safetensors").write_bytes(b"no tensors")
    assert "model.safetensors" in refused(folder)
    (folder / "model.safetensors").unlink()
    assert "model.safetensors" in refused(folder)


@pytest.mark.parametrize("key,value,message", [
    ("hidden_act", "gelu_new", "hidden_act is gelu_new; expected gelu"),
    ("model_type", "roberta", "model_type is roberta; expected bert"),
    ("position_embedding_type", "relative_key", "expected absolute"),
    ("hidden_size", None, "hidden_size is null; expected a number, 1 or more"),
    ("num_hidden_layers", 0, "num_hidden_layers is 0; expected a number, 1 or more"),
    ("num_attention_heads", 5, "heads is 5; expected a divisor of 24"),
    ("num_attention_heads", "3x", "num_attention_heads is 3x; expected a number"),
    ("hidden_size", 10**12, f"has shape ({len(VOCABULARY)}, 24); expected ({len(VOCABULARY)}, {10**12})"),
    ("intermediate_size", 10**12, "intermediate.dense.weight has shape (40, 24); expected (1000000000000"),
    ("vocab_size", 5, f"vocab.txt has {len(VOCABULARY)} tokens; expected at most 5"),
    ("layer_norm_eps", -1, "layer_norm_eps is -1; expected a number, 0 or more"),
])
def test_a_model_of_another_kind_is_refused(model, tmp_path, key, value, message):
    assert message in refused(write_model(tmp_path / "m", model[1], CONFIG | {key: value}))


def test_files_of_the_folder_are_told(model, tmp_path):
    folder = write_model(tmp_path / "m", model[1])
    for name, text, message in (
            ("1_Pooling/config.json", '{"pooling_mode_mean_tokens": false}', "expected true"),
            ("1_Pooling/config.json", '{"pooling_mode_cls_token": true}', "pooling_mode_cls_token is true"),
            ("tokenizer_config.json", '{"do_lower_case": false}', "do_lower_case is false; expected true"),
            ("tokenizer_config.json", '{"strip_accents": false}', "strip_accents is false"),
            ("sentence_bert_config.json", '{"max_seq_length": 1}', "max_seq_length is 1"),
            ("config.json", "{", "config.json is no JSON object"),
            ("config.json", '{"a": "', "config.json is no JSON object"),
            ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n", "no line is [SEP]; expected one among 3 lines"),
            ("vocab.txt", "[PAD]\na\nb\na\n", "line 4 is 'a', as line 2 is")):
        before = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        assert message in refused(folder)
        (folder / name).unlink()
        if before is not None:
            (folder / name).write_bytes(before)
    assert minilm(folder, "a").returncode == 0
    for name in ("config.json", "vocab.txt"):
        (folder / name).rename(tmp_path / name)
        assert f"{name} could not be read" in refused(folder)
        (tmp_path / name).rename(folder / name)


def test_wrong_arguments_are_told_before_anything_is_written(model, tmp_path):
    out = tmp_path / "e.npy"
    for arguments, message in ((["--embeddings", tmp_path / "e.npz", "a"], "expected a name that ends in .npy"),
                               (["--embeddings", tmp_path / "none" / "e.npy", "a"], "none"),
                               (["--embeddings"], "--embeddings takes a value"),
                               (["--tokens", "--embeddings", out, "a"], "--tokens and --embeddings exclude each other"),
                               (["--batch", "0", "a"], "--batch is '0'; expected 1 to 999999"),
                               (["--batch", "1e3", "a"], "--batch is '1e3'"),
                               (["--setps", "a"], "--setps is none of"),
                               (["--embeddings", out, "a", b"b\xff"], "sentence 2: byte 1 is not UTF-8"),
                               (["--embeddings", out, b"\xc0\x80"], "sentence 1: byte 0 is not UTF-8"),
                               (["--embeddings", out, b"\xe0\x80\x80"], "byte 0 is not UTF-8"),
                               (["--embeddings", out, b"a\xed\xa0\x80"], "byte 1 is not UTF-8"),
                               (["--embeddings", out, b"\xf4\x90\x80\x80"], "byte 0 is not UTF-8"),
                               (["--embeddings", out, b"a\xe2\x82"], "byte 1 is not UTF-8")):
        assert message in refused(model[0], *arguments)
        assert not list(tmp_path.iterdir())
    assert "usage: example_minilm MODEL_FOLDER" in minilm().stderr.decode()
