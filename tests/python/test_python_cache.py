"""heed.KvCache and heed.attention_decode against heed.attention on each sequence's rows and keys."""

import copy
import os
import pickle
import signal
import threading

import numpy as np
import pytest
from support import draw

import heed

K, V, Q = draw(1, 1, 2, 150, 8), draw(2, 1, 2, 150, 6), draw(3, 1, 4, 150, 8)


def cache_of(*lengths, pages=16, dtype=np.float32):
    """A cache, and a sequence of each length: the first keys."""
    cache = heed.KvCache(2, 8, pages, value_size=6, page_keys=32, dtype=dtype)
    names = [cache.create() for _ in lengths]
    for name, length in zip(names, lengths, strict=True):
        cache.append(name, K[:, :, :length].astype(dtype), V[:, :, :length].astype(dtype))
    return cache, names


def expected(rows, length, **options):
    """The last rows of a sequence of that length."""
    return heed.attention(Q[:, :, length - rows:length], K[:, :, :length], V[:, :, :length], causal=True,
                          query_start=length - rows, return_lse=True, statistics=True, **options)


@pytest.mark.parametrize("rows", [1, 5])
def test_decoding_has_the_bits_of_attention(rows):
    lengths = [7, 150, 33]
    cache, names = cache_of(*lengths)
    assert [cache.length(name) for name in names] == lengths and cache.sequences == 3
    q = np.concatenate([Q[:, :, length - rows:length] for length in lengths])
    seen = heed.attention_decode(q, cache, names, return_lse=True, statistics=["entropy"], causal=True, threads=2)
    for s, length in enumerate(lengths):
        one = expected(rows, length)
        assert np.array_equal(seen.output[s], one.output[0]) and np.array_equal(seen.lse[s], one.lse[0])
        assert np.array_equal(seen.statistics.entropy[s], one.statistics.entropy[0])
    out = np.empty((3, 4, rows, 6), np.float32)
    assert heed.attention_decode(q, cache, np.array(names), causal=True, out=out) is out
    assert np.array_equal(out, seen.output)


def test_a_token_at_a_time_and_a_tail_that_is_taken_back():
    cache, [name] = cache_of(20)
    for length in range(21, 40):
        cache.append(name, K[:, :, length - 1:length], V[:, :, length - 1:length])
        assert np.array_equal(heed.attention_decode(Q[:, :, length - 1:length], cache, name), expected(1, length).output)
    cache.truncate(name, 30)
    assert cache.length(name) == 30
    assert np.array_equal(heed.attention_decode(Q[:, :, 29:30], cache, name), expected(1, 30).output)


def test_rows_of_their_own_numbers_lie_end_to_end():
    cache, names = cache_of(40, 64)
    q = np.concatenate([Q[:, :, 37:40], Q[:, :, 62:64], Q[:, :, :1]], 2)
    seen = heed.attention_decode(q, cache, names, packing=([0, 3, 5], None), causal=True, return_lse=True)
    assert np.array_equal(seen.output[:, :, :3], expected(3, 40).output)
    assert np.array_equal(seen.output[:, :, 3:5], expected(2, 64).output)
    assert not seen.output[:, :, 5].any() and np.isneginf(seen.lse[:, :, 5]).all()


def test_appending_end_to_end():
    cache, names = cache_of(0, 0)
    cache.append(names, K, V, [0, 50, 150])
    assert [cache.length(name) for name in names] == [50, 100]
    one = heed.attention(Q[:, :, :1], K[:, :, 50:], V[:, :, 50:])
    assert np.array_equal(heed.attention_decode(Q[:, :, :1], cache, names[1]), one)


def test_forks_share_pages_until_they_write():
    cache, [name] = cache_of(40)
    assert cache.free_pages == 14
    other = cache.fork(name)
    assert cache.free_pages == 14 and other != name
    cache.append(other, K[:, :, 41:42], V[:, :, 41:42])
    assert cache.free_pages == 13 and [cache.length(name), cache.length(other)] == [40, 41]
    assert np.array_equal(heed.attention_decode(Q[:, :, 39:40], cache, name), expected(1, 40).output)
    cache.release(other)
    assert cache.free_pages == 14 and cache.sequences == 1


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("f4"), "f4", "float32", "float", np.float16])
def test_types_have_the_names_that_numpy_knows(dtype):
    k = np.ones((1, 2, 3, 8), np.dtype(dtype))
    cache = heed.KvCache(2, 8, 4, dtype=dtype)
    cache.append(np.array(cache.create()), k, k)   # an array without axes is one name
    for wrong in (np.dtype(">f4"), ">f4", ",", "1(", "f4,f4"):
        with pytest.raises(ValueError, match="KvCache: dtype is .*expected float32"):
            heed.KvCache(2, 8, 4, dtype=wrong)


def test_it_shows_how_it_was_made():
    cache, _ = cache_of(dtype="float16")
    assert repr(cache) == "KvCache(kv_heads=2, head_size=8, value_size=6, dtype='float16', pages=16, page_keys=32)"
    assert repr(eval(repr(cache), {"KvCache": heed.KvCache})) == repr(cache)


@pytest.mark.parametrize("copy", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused(copy):
    with pytest.raises(TypeError, match="^KvCache: neither copied nor pickled; expected a new one, or fork"):
        copy(cache_of()[0])


def test_evicted_keys_are_masked():
    cache, [name] = cache_of(70)
    cache.evict(name, 33)
    assert cache.evicted(name) == 33 and cache.length(name) == 70 and cache.free_pages == 14
    keep = np.arange(70) >= 33
    assert np.array_equal(heed.attention_decode(Q[:, :, 69:70], cache, name), expected(1, 70, mask=keep[None]).output)


def test_rows_before_position_0():
    """More rows than keys: with causal the first of them see none."""
    cache, [name] = cache_of(10)
    for causal in (False, True):
        seen = heed.attention_decode(Q[:, :, :13], cache, name, causal=causal)
        assert np.array_equal(seen, heed.attention(Q[:, :, :13], K[:, :, :10], V[:, :, :10], causal=causal, query_start=-3))
        assert (np.abs(seen).max(-1) == 0)[0, 0].tolist() == [causal] * 3 + [False] * 10


def test_statistics_of_every_kind_of_request():
    cache, [name] = cache_of(10)
    expected = heed.attention(Q[:, :, 9:10], K[:, :, :10], V[:, :, :10], statistics=True).statistics
    for wanted in (True, np.True_, iter(["entropy", "max_score"]), np.array(["entropy", "max_score"])):
        seen = heed.attention_decode(Q[:, :, 9:10], cache, name, statistics=wanted).statistics
        assert np.array_equal(seen.entropy, expected.entropy) and np.array_equal(seen.max_score, expected.max_score)
        assert (seen.max_weight is None) == (wanted is not True and wanted is not np.True_)
    assert isinstance(heed.attention_decode(Q[:, :, 9:10], cache, name, statistics=[]), np.ndarray)
    with pytest.raises(ValueError, match="^attention_decode: statistics names 'entropie'; expected names among max_score, "):
        heed.attention_decode(Q[:, :, 9:10], cache, name, statistics=["entropie"])


def test_other_types():
    for dtype in (np.float64, np.float16):
        cache, [name] = cache_of(33, dtype=dtype)
        given = (x.astype(dtype) for x in (Q[:, :, 32:33], K[:, :, :33], V[:, :, :33]))
        seen = heed.attention_decode(Q[:, :, 32:33].astype(dtype), cache, name)
        assert seen.dtype == dtype and np.array_equal(seen, heed.attention(*given))


def test_what_does_not_fit_is_refused_and_changes_nothing():
    cache, [name] = cache_of(40, pages=2)
    q = Q[:, :, :1]
    for work, kind, words in (
            (lambda: cache.append(name, K, V), MemoryError, "append: "),
            (lambda: cache.append(name, K[:, :1], V), ValueError, "append: k has 1 heads; expected 2"),
            (lambda: cache.append(name, K.astype(np.float64), V), TypeError, "append: k is float64"),
            (lambda: cache.append([name, name], K, V), ValueError, "append: number of sequences is 2, batch size of k 1"),
            (lambda: cache.append([name, name], K, V, [0, 50, 150]), ValueError, "append: .*is there twice"),
            (lambda: cache.append(name, K, V, [[0], [1, 2]]), TypeError, r"append: key_offsets\[0\] is of type list; expected an int"),
            (lambda: cache.append(name, K, V, [0, 2**64]), ValueError, r"append: key_offsets\[1\] is 18446744073709551616; expect"),
            (lambda: cache.append(name, K, V, []), ValueError, r"append: key_offsets has shape \[0\]; expected \[S \+ 1\]"),
            (lambda: cache.append("x", K, V), TypeError, "append: sequences is of type str; expected an integer"),
            (lambda: cache.truncate(name, 41), ValueError, "truncate: "),
            (lambda: cache.truncate(name, 1.5), TypeError, "truncate: keys is of type float; expected an integer"),
            (lambda: cache.evict(name, -1), ValueError, "evict: "),
            (lambda: cache.fork(name + 7), ValueError, "fork: "),
            (lambda: heed.attention_decode(q, cache, [name + 7]), ValueError, "attention_decode: "),
            (lambda: heed.attention_decode(q.astype(np.float64), cache, name), TypeError, "attention_decode: "),
            (lambda: heed.attention_decode(q, cache, name, out=np.zeros(3, np.float32)), ValueError,
             r"^attention_decode: out has shape \[3\]; expected \[1, 4, 1, "),
            (lambda: heed.attention_decode(q, K, name), TypeError, "cache is of type ndarray; expected heed.KvCache"),
            (lambda: heed.attention_decode(q, cache, name, colour=1), TypeError, "unexpected keyword argument 'colour'"),
            (lambda: heed.KvCache(2, 8, 4, page_keys=5), ValueError, "KvCache: "),
            (lambda: heed.KvCache(2, 8, 4, dtype="int32"), ValueError, "KvCache: dtype is 'int32'; expected float32, float64, "),
            (lambda: heed.KvCache(2, 8, 4, dtype="f32"), ValueError, "KvCache: dtype is 'f32'; expected float32, float64, "),
            (lambda: heed.KvCache(2, 8, 4, dtype=np.int8), ValueError, "KvCache: dtype is .*int8.*; expected float32, float64, "),
            (lambda: heed.KvCache(2, 8, 4, dtype=5), TypeError, "KvCache: dtype is 5; expected float32, float64, "),
            (lambda: heed.KvCache(2, 8, 4, dtype=None), TypeError, "KvCache: dtype is None; expected float32, float64, "),
            (lambda: heed.KvCache(2, 8, 10**30), ValueError, "KvCache: pages is 10{30}; expected one that fits 64 bits"),
            (lambda: cache.fork(2**70), ValueError, "fork: sequence is 1180591620717411303424; expected one that fits 64 bits"),
            (lambda: heed.KvCache(2, 8.5, 4), TypeError, "KvCache: head_size is of type float; expected an integer")):
        with pytest.raises(kind, match=words):
            work()
    assert cache.length(name) == 40 and cache.free_pages == 0 and cache.sequences == 1
    cache.release(name)
    with pytest.raises(ValueError, match="length: "):
        cache.length(name)


def test_threads_wait_for_each_other():
    cache, names = cache_of(1, 1, 1, 1, pages=40)

    def grow(name):
        for i in range(1, 150):
            cache.append(name, K[:, :, i:i + 1], V[:, :, i:i + 1])
            heed.attention_decode(Q[:, :, i:i + 1], cache, name)
    threads = [threading.Thread(target=grow, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        assert np.array_equal(heed.attention_decode(Q[:, :, 149:], cache, name), expected(1, 150).output)


def test_a_handler_of_a_signal_may_not_use_it_during_a_call():
    cache, [name] = cache_of(5)
    with cache._use(), pytest.raises(RuntimeError, match="expected one call at a time"):
        cache.length(name)
    assert cache.length(name) == 5


@pytest.mark.parametrize("changes", [False, True])
def test_a_forked_child_has_a_copy_that_another_thread_was_not_changing(changes):
    """The thread that holds it is not there to let go."""
    cache, [name] = cache_of(150)
    truth = expected(1, 150).output
    inside, done = threading.Event(), threading.Event()

    def hold():
        with cache._use(changes=changes):
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            code = 0 if np.array_equal(heed.attention_decode(Q[:, :, 149:], cache, name), truth) and not changes else 1
        except RuntimeError as error:
            refused = "KvCache: another thread was changing it when this process was forked, and this copy may be half changed; "
            code = 0 if changes and str(error).startswith(refused) else 1
        finally:
            os._exit(code)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert cache.length(name) == 150
