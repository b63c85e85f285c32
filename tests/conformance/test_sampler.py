"""Every sampling filter against a straightforward NumPy reference, and the drawn frequencies against the probabilities."""
import ctypes
import os
import pathlib

import numpy as np
import pytest

BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
LIB = ctypes.CDLL(str(BUILD / "tests/conformance/libsampler_for_tests.so"))


def sample(logits, history=(), breakers=None, n_picks=0, want_prob=True, **settings):
    logits = np.ascontiguousarray(logits, np.float32)
    hist = np.ascontiguousarray(history, np.int32)
    prob = np.zeros(len(logits)) if want_prob else None
    picks = np.zeros(max(n_picks, 1), np.int32)
    message = ctypes.create_string_buffer(1024)
    text = "".join(f"{k.replace('_', '-')}={v}\n" for k, v in settings.items()).encode()
    r = LIB.hokku_sample(
        text, logits.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(len(logits)),
        hist.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(hist)),
        None if breakers is None else np.ascontiguousarray(breakers, np.uint8).ctypes.data_as(ctypes.c_void_p),
        None if prob is None else prob.ctypes.data_as(ctypes.c_void_p),
        picks.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(n_picks), message, ctypes.c_size_t(1024))
    assert r == 0, message.value.decode()
    return prob, picks[:n_picks]


# --- the reference: one function per filter over (logits, keep mask), in double precision ---

def softmax(l, keep):
    e = np.where(keep, np.exp(l - l[keep].max()), 0)
    return e / e.sum()


def order(l, keep):
    """Kept ids, most likely first, ties by lower id."""
    return [i for i in np.lexsort((np.arange(len(l)), -l)) if keep[i]]


def only(n, ids):
    keep = np.zeros(n, bool)
    keep[list(ids)] = True
    return keep


def top_k(l, keep, k):
    return only(len(l), order(l, keep)[:k]) if k > 0 else keep


def top_p(l, keep, p):
    if p >= 1:
        return keep
    ids, prob = order(l, keep), softmax(l, keep)
    n = int(np.searchsorted(np.cumsum(prob[ids]), p)) + 1
    return only(len(l), ids[:n])


def min_p(l, keep, p):
    prob = softmax(l, keep)
    return keep & (prob >= p * prob.max()) if p > 0 else keep


def typical(l, keep, p):
    if p >= 1:
        return keep
    prob = softmax(l, keep)
    logp = np.log(np.where(prob > 0, prob, 1))
    entropy = -(prob * logp).sum()
    distance = np.abs(-np.where(keep, l - l[keep].max() - np.log(np.exp(l[keep] - l[keep].max()).sum()), 0) - entropy)
    ids = sorted(np.flatnonzero(keep), key=lambda i: distance[i])
    n = int(np.searchsorted(np.cumsum(prob[ids]), p)) + 1
    return only(len(l), ids[:n])


def top_n_sigma(l, keep, n):
    return keep & (l >= l[keep].max() - n * l[keep].std()) if n > 0 else keep


def penalties(l, history, last_n, repeat, presence, frequency):
    l = l.copy()
    window = history[-last_n:] if last_n > 0 else history if last_n < 0 else []
    for i in set(window):
        c = list(window).count(i)
        l[i] = l[i] / repeat if l[i] > 0 else l[i] * repeat
        l[i] -= c * frequency + presence
    return l


def dry(l, history, multiplier, base, allowed, last_n, breakers):
    l = l.copy()
    h = list(history[-last_n:] if last_n > 0 else history)
    limit = 0
    while limit < len(h) and not breakers[h[-1 - limit]]:
        limit += 1
    longest = {}
    for j in range(1, len(h)):  # h[j] followed a run that ends at j - 1
        m = 0
        while m < limit and m < j and h[j - 1 - m] == h[-1 - m]:
            m += 1
        if m >= allowed:
            longest[h[j]] = max(longest.get(h[j], 0), m)
    for i, m in longest.items():
        l[i] -= multiplier * base ** (m - allowed)
    return l


OFF = dict(top_k=0, top_p=1, min_p=0, temp=1)
rng = np.random.default_rng(20261120)
SHAPES = [(50, 1.0), (1000, 3.0), (4099, 2.0), (151936, 4.0)]
CASES = [(n, s, k) for n, s in SHAPES for k in range(3 if n < 10000 else 1)]


def logits_of(n, scale):
    return (rng.standard_normal(n) * scale + rng.uniform(-5, 5)).astype(np.float32)


def check(prob, l, keep):
    want = softmax(l.astype(np.float64), keep)
    # Weights are integers in units of 2^-32 of the largest: what is far below may round to nothing.
    different = (prob > 0) & (want == 0) | (prob == 0) & (want > 2.0 ** -20)
    assert not different.any(), f"{different.sum()} tokens kept or removed otherwise: {np.flatnonzero(different)[:5]}"
    np.testing.assert_allclose(prob, want, rtol=2e-5, atol=1e-9)


def near(values, limit, eps):
    """A reference whose decision hangs on rounding proves nothing: such random cases are drawn again."""
    return np.abs(np.asarray(values) - limit).min() < eps


@pytest.mark.parametrize("n,scale,_", CASES)
@pytest.mark.parametrize("k", [1, 2, 40, 1000])
def test_top_k_keeps_the_k_most_likely(n, scale, _, k):
    l = logits_of(n, scale)
    check(sample(l, **{**OFF, "top_k": k})[0], l, top_k(l, np.ones(n, bool), k))


@pytest.mark.parametrize("n,scale,_", CASES)
@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.95, 0.999])
def test_top_p_keeps_the_nucleus(n, scale, _, p):
    l = logits_of(n, scale)
    prob, _ = sample(l, **{**OFF, "top_p": p})
    one = np.ones(n, bool)
    ids, full = order(l, one), softmax(l.astype(float), one)
    n_kept = int((prob > 0).sum())
    assert (prob[ids[:n_kept]] > 0).all()  # the most likely ones
    mass = np.cumsum(full[ids])
    assert mass[n_kept - 1] > p - 2e-6  # reach p ...
    assert n_kept == 1 or mass[n_kept - 2] < p + 2e-6  # ... and would not without the last
    check(prob, l, only(n, ids[:n_kept]))


@pytest.mark.parametrize("n,scale,_", CASES)
@pytest.mark.parametrize("p", [0.01, 0.05, 0.5, 1.0])
def test_min_p_is_relative_to_the_best(n, scale, _, p):
    l = logits_of(n, scale)
    check(sample(l, **{**OFF, "min_p": p})[0], l, min_p(l.astype(float), np.ones(n, bool), p))


@pytest.mark.parametrize("n,scale,_", CASES)
@pytest.mark.parametrize("p", [0.2, 0.6, 0.95])
def test_typical_keeps_what_is_near_the_entropy(n, scale, _, p):
    if n > 10000:
        n = 20011
    l = logits_of(n, scale)
    prob, _ = sample(l, **{**OFF, "typical": p})
    want = typical(l.astype(float), np.ones(n, bool), p)
    # Near the edge of the set two tokens may be equally typical to within rounding.
    assert ((prob > 0) != want).sum() <= 2
    both = (prob > 0) & want
    np.testing.assert_allclose(prob[both], softmax(l.astype(float), prob > 0)[both], rtol=2e-5)


@pytest.mark.parametrize("n,scale,_", CASES)
@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.5])
def test_top_n_sigma_keeps_what_is_near_the_maximum(n, scale, _, sigma):
    l = logits_of(n, scale)
    limit = lambda: l.astype(float).max() - sigma * l.astype(float).std()
    while near(l, limit(), 2e-4 / max(1, n / 5000)):
        l = logits_of(n, scale)
    check(sample(l, **{**OFF, "top_nsigma": sigma})[0], l, l >= limit())


@pytest.mark.parametrize("temp", [0.3, 0.8, 2.0])
def test_temperature_divides(temp):
    l = logits_of(1000, 2)
    check(sample(l, **{**OFF, "temp": temp})[0], l / np.float32(temp), np.ones(1000, bool))


@pytest.mark.parametrize("last_n", [-1, 0, 1, 8, 64])
def test_penalties_act_on_the_window(last_n):
    l = logits_of(200, 3)
    history = rng.integers(0, 200, 150)
    prob, _ = sample(l, history, **{**OFF, "repeat_last_n": last_n, "repeat_penalty": 1.3, "presence_penalty": 0.4,
                                    "frequency_penalty": 0.25})
    want = penalties(l.astype(float), list(history), last_n, 1.3, 0.4, 0.25)
    check(prob, want, np.ones(200, bool))


@pytest.mark.parametrize("case", range(30))
@pytest.mark.parametrize("allowed,last_n", [(1, -1), (2, -1), (3, 40)])
def test_dry_penalises_continuing_a_repetition(case, allowed, last_n):
    n = 12  # a small alphabet repeats itself
    l = logits_of(n, 1)
    history = np.concatenate([rng.integers(0, n, rng.integers(0, 60))] + [np.tile(rng.integers(0, n, 4), case % 4)])
    breakers = (rng.random(n) < 0.1).astype(np.uint8)
    prob, _ = sample(l, history, breakers, **{**OFF, "dry_multiplier": 0.8, "dry_allowed_length": allowed,
                                              "dry_penalty_last_n": last_n, "dry_base": 1.2})
    want = dry(l.astype(float), history, 0.8, 1.2, allowed, last_n, breakers)
    check(prob, want, np.ones(n, bool))


def test_xtc_removes_the_top_but_its_last():
    l = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05], np.float64)).astype(np.float32)
    prob, _ = sample(l, **{**OFF, "xtc_probability": 1, "xtc_threshold": 0.12})
    np.testing.assert_allclose(prob, np.array([0, 0, 0.15, 0.1, 0.05]) / 0.3, rtol=1e-5)
    prob, _ = sample(l, **{**OFF, "xtc_probability": 1, "xtc_threshold": 0.35})
    assert (prob > 0).all()
    acted = 0
    for pos in range(400):
        prob, _ = sample(l, [0] * pos, **{**OFF, "xtc_probability": 0.25, "xtc_threshold": 0.12})
        acted += prob[0] == 0
    assert 70 <= acted <= 130  # 100 expected, standard deviation 8.7


def test_filters_compose_in_the_given_order():
    l = logits_of(5000, 3)
    one = np.ones(5000, bool)
    d = l.astype(float)
    keep = min_p(d, top_p(d, top_k(d, one, 40), 0.95), 0.05)
    check(sample(l, temp=0.8)[0], l / np.float32(0.8), keep)
    hot = d / 2
    keep = top_k(hot, top_p(hot, one, 0.7), 300)
    check(sample(l, temp=2, top_p=0.7, top_k=300, samplers="temperature;top_p;top_k")[0], hot, keep)


def test_bias_is_added_to_the_logit():
    l = logits_of(100, 1)
    prob, _ = sample(l, **OFF, logit_bias="7-inf")
    want = l.copy()
    want[7] = -1e9
    check(prob, want, np.arange(100) != 7)


@pytest.mark.parametrize("settings", [OFF, dict(temp=0.8), dict(OFF, top_p=0.9, temp=1.5), dict(OFF, typical=0.7)])
def test_drawn_frequencies_follow_the_probabilities(settings):
    l = logits_of(60, 1.2)
    n = 20000
    prob, picks = sample(l, n_picks=n, seed=42, **{**settings, "repeat_last_n": 0})
    count = np.bincount(picks, minlength=60)
    assert (count[prob == 0] == 0).all()
    big = prob * n >= 5
    chi = ((count[big] - prob[big] * n) ** 2 / (prob[big] * n)).sum()
    rest = prob[~big].sum() * n
    dof = big.sum() - 1
    if rest >= 5:
        chi += (count[~big].sum() - rest) ** 2 / rest
        dof += 1
    # Wilson-Hilferty: the cube root of chi-square / dof is nearly normal; 4.5 standard deviations.
    z = ((chi / dof) ** (1 / 3) - (1 - 2 / (9 * dof))) / np.sqrt(2 / (9 * dof))
    assert abs(z) < 4.5, (chi, dof)
