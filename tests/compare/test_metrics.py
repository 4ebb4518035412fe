"""Against an oracle that goes element by element, slowly, without sharing any code."""

import math
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.compare import decisions, metrics
from samebits.compare.metrics import measure, row_mask
from samebits.records.tensor import NUMPY_DTYPES

REALS = [name for name in NUMPY_DTYPES if not name.startswith("complex")]
FLOATS = [name for name in REALS if "float" in name]
MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
MANTISSA |= {"float8_e4m3fn": 3, "float8_e5m2": 2}


def from_bits(name, bits):
    dtype = NUMPY_DTYPES[name]
    data = b"".join(
        (b & ((1 << 8 * dtype.itemsize) - 1)).to_bytes(dtype.itemsize, "little") for b in bits
    )
    if name == "bool":
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype)


SPECIAL = [0, 1, (1 << 64) - 1, 0x7FF0000000000000, 0x8000000000000000, 0x7F800000, 0x80000000]
SPECIAL += [0xFF800001, 0x7FC00000, 0x7C00, 0x8000, 0x7F, 0x80, 0xFF, 0x7F80, 0x7FC0, 0x3F800000]
BITS = st.one_of(st.sampled_from(SPECIAL), st.integers(0, (1 << 64) - 1))


@st.composite
def pairs(draw, names=REALS, size=12):
    name = draw(st.sampled_from(names))
    n = draw(st.integers(0, size))
    one = draw(st.lists(BITS, min_size=n, max_size=n))
    keep = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    new = draw(st.lists(BITS, min_size=n, max_size=n))
    other = [a if k else b for a, b, k in zip(one, new, keep, strict=True)]
    return name, from_bits(name, one), from_bits(name, other)


def number(value):
    return float(value)


def place(value, name):
    """Return a float's place on the integer line, from its sign and magnitude."""
    size = NUMPY_DTYPES[name].itemsize
    bits = int.from_bytes(value.tobytes(), "little")
    magnitude = bits & ((1 << (8 * size - 1)) - 1)
    return -magnitude if bits >> (8 * size - 1) else magnitude


def oracle(name, a, b):
    n_differ, distances, relative, ulps, finite = 0, [], [], [], 0
    for x, y in zip(a, b, strict=True):
        differ = x.tobytes() != y.tobytes()
        n_differ += differ
        if not (math.isfinite(number(x)) and math.isfinite(number(y))):
            continue
        finite += 1
        d = abs(int(x) - int(y)) if "int" in name else abs(number(x) - number(y))
        distances.append(float(d))
        if number(x) != 0:
            r = float(d) / abs(number(x)) if float(d) != math.inf else math.inf
            relative.append(r)
        if name in FLOATS:
            ulps.append(abs(place(x, name) - place(y, name)))
    return n_differ, distances, relative, ulps, finite


def close(a, b):
    return a == b or math.isclose(a, b, rel_tol=1e-12)


@given(pairs())
def test_metrics_agree_with_the_oracle(pair):
    name, a, b = pair
    found = measure(a, b)
    n_differ, distances, relative, ulps, finite = oracle(name, a, b)
    assert found.n == len(a)
    assert found.n_differ == n_differ
    assert close(found.max_abs, max(distances, default=0.0))
    assert close(found.max_rel, max(relative, default=0.0))
    assert close(found.mean_abs, sum(distances) / finite if finite else 0.0)
    assert found.max_ulp == (max(ulps, default=0) if name in FLOATS else None)
    assert found.n_nan == tuple(sum(math.isnan(number(x)) for x in side) for side in (a, b))
    assert found.n_inf == tuple(sum(math.isinf(number(x)) for x in side) for side in (a, b))


@given(pairs())
def test_the_top_differences_are_the_largest_in_order(pair):
    name, a, b = pair
    found = measure(a, b)
    entries = []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x.tobytes() == y.tobytes():
            continue
        if math.isfinite(number(x)) and math.isfinite(number(y)):
            d = abs(int(x) - int(y)) if "int" in name else abs(number(x) - number(y))
            entries.append((-float(d), i, number(x), number(y)))
    entries.sort(key=lambda e: e[:2])
    assert [(e.index, e.reference, e.candidate) for e in found.top] == [
        ((i,), x, y) for _, i, x, y in entries[:5]
    ]
    first = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x.tobytes() != y.tobytes()), None
    )
    assert found.first_index == (None if first is None else (first,))


@given(pairs(), st.integers(1, 4))
def test_chunks_make_no_difference(pair, chunk):
    _, a, b = pair
    whole = measure(a, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "CHUNK", chunk)
        parts = measure(a, b)
    exact = {"mean_abs", "cosine"}
    assert parts.model_dump(exclude=exact) == whole.model_dump(exclude=exact)
    assert close(parts.mean_abs, whole.mean_abs)


@given(pairs())
def test_a_tensor_does_not_differ_from_itself(pair):
    _, a, _ = pair
    found = measure(a, a.copy())
    assert found.n_differ == 0
    assert found.max_abs == found.mean_abs == found.max_rel == 0
    assert found.top == ()


@given(pairs())
def test_counts_and_distances_are_symmetric(pair):
    _, a, b = pair
    one, other = measure(a, b), measure(b, a)
    assert (one.n_differ, one.max_abs, one.max_ulp) == (
        other.n_differ,
        other.max_abs,
        other.max_ulp,
    )
    assert one.n_nan == other.n_nan[::-1]


@given(pairs(names=["float32"], size=12), st.data())
def test_rows_behind_the_mask_are_not_looked_at(pair, data):
    _, a, b = pair
    width = len(a) // 4
    a, b = (side[: 4 * width].reshape(2, 2, width) for side in (a, b))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=4, max_size=4))).reshape(2, 2)
    found = measure(a, b, rows=mask)
    expected = measure(np.ascontiguousarray(a[mask]), np.ascontiguousarray(b[mask]))
    left_out = {"first_index", "top", "cosine", "mean_abs"}
    assert found.model_dump(exclude=left_out) == expected.model_dump(exclude=left_out)
    assert all(mask[e.index[:2]] for e in found.top)


@pytest.mark.parametrize("name", FLOATS)
def test_a_sign_of_zero_is_a_differing_element_at_no_distance(name):
    zero = np.zeros(2, NUMPY_DTYPES[name])
    found = measure(zero, -zero)
    assert (found.n_differ, found.max_abs, found.max_ulp, found.max_rel) == (2, 0.0, 0, 0.0)


def nans(*bits):
    return np.frombuffer(struct.pack(f"<{len(bits)}I", *bits), np.float32)


def test_equal_nans_are_equal_and_other_payloads_differ():
    assert measure(nans(0x7FC00001), nans(0x7FC00001)).n_differ == 0
    found = measure(nans(0x7FC00001), nans(0x7FC00002))
    assert (found.n_differ, found.n_nan, found.max_abs) == (1, (1, 1), 0.0)


@pytest.mark.parametrize("name", FLOATS)
def test_a_neighbour_is_one_ulp_away_across_zero_too(name):
    smallest = from_bits(name, [1])
    assert measure(smallest, np.zeros_like(smallest)).max_ulp == 1
    assert measure(smallest, -smallest).max_ulp == 2


def test_the_whole_range_of_float64_does_not_overflow():
    low, high = np.array([-np.finfo(float).max]), np.array([np.finfo(float).max])
    found = measure(low, high)
    assert found.max_abs == math.inf
    assert found.max_ulp == 2 * 0x7FEFFFFFFFFFFFFF


def test_other_dtypes_compare_by_value_in_units_of_the_coarser():
    a = np.array([1.0, 2.0, -0.0, np.nan, 1.0 + 2**-7], np.float32)
    b = np.array([1.0, 2.0, 0.0, np.nan, 1.0], ml_dtypes.bfloat16)
    found = measure(a, b)
    assert (found.n_differ, found.max_ulp) == (2, 1)
    assert found.max_abs == 2**-7
    assert measure(b, a).max_ulp == 1


def test_float_against_integer_has_no_ulp():
    found = measure(np.array([1.0, 2.5]), np.array([1, 2]))
    assert (found.n_differ, found.max_ulp, found.max_abs) == (1, None, 0.5)


def test_large_integers_are_told_apart():
    a = np.array([2**62, -(2**63)], np.int64)
    found = measure(a, np.array([2**62 + 1, 2**63 - 1], np.int64))
    assert found.n_differ == 2
    assert found.max_abs == float(2**64 - 1)
    assert measure(a[:1], a[:1] + 1).max_abs == 1.0


def test_complex_numbers_are_pairs():
    a = np.array([1 + 2j, 3 + 4j], np.complex64)
    b = np.array([1 + 2j, 3 + 5j], np.complex64)
    found = measure(a, b)
    assert (found.n, found.n_differ, found.max_abs, found.first_index) == (4, 1, 1.0, (1, 1))
    assert measure(a, a.real.copy()).n_differ == 2


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)], ids=str)
def test_scalars_and_nothing_can_be_measured(shape):
    found = measure(np.zeros(shape, np.float32), np.ones(shape, np.float32), logits=True)
    assert found.n == found.n_differ == math.prod(shape)
    if not shape:
        assert found.first_index == ()


def test_strided_views_are_read_by_value():
    a = np.arange(12, dtype=np.float32).reshape(3, 4).T
    b = a.copy()
    b[1, 2] += 1
    assert measure(a, b).first_index == (1, 2)


def test_cosine():
    a = np.array([1.0, 0.0])
    assert measure(a, np.array([0.0, 1.0])).cosine == 0
    assert measure(a, -a).cosine == -1
    assert measure(a, np.zeros(2)).cosine is None
    assert measure(a, np.array([1.0, np.inf])).cosine is None


# logits


def test_argmax_and_tokens():
    a = np.array([[[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]]], np.float32)
    b = np.array([[[1.0, 3.0, 3.5], [5.0, 4.0, 0.0]]], np.float32)
    found = measure(a, b, logits=True, tokens={"2": " Paris"})
    assert (found.n_argmax, found.n_positions) == (1, 2)
    assert [e.token for e in found.top] == ["2 ' Paris'"]
    assert [e.token for e in measure(a, b, logits=True).top] == ["2"]
    assert [e.token for e in measure(a, b).top] == [None]


def slow_kl(p, q):
    a, b = (list(map(float, side)) for side in (p, q))
    za, zb = (max(s) + math.log(sum(math.exp(x - max(s)) for x in s)) for s in (a, b))
    total = 0.0
    for x, y in zip(a, b, strict=True):
        if x == -math.inf:
            continue
        total += math.exp(x - za) * ((x - za) - (y - zb)) if y > -math.inf else math.inf
    return total


LOGITS = st.lists(st.floats(-50, 50, width=32) | st.just(-math.inf), min_size=4, max_size=4)
LOGITS = LOGITS.filter(lambda row: max(row) > -math.inf)


@given(st.lists(st.tuples(LOGITS, LOGITS), min_size=1, max_size=5), st.sampled_from([1, 4, 9]))
def test_kl_agrees_with_the_oracle(rows, chunk):
    a, b = (np.array([row[i] for row in rows], np.float32) for i in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, "CHUNK", chunk)
        found = measure(a, b, logits=True)
    expected = [slow_kl(p, q) for p, q in zip(a, b, strict=True)]
    assert found.kl_max == pytest.approx(max(expected), abs=1e-12)
    assert found.kl_mean == pytest.approx(sum(expected) / len(expected), abs=1e-12)
    assert found.kl_max >= 0


def test_kl_is_stable_where_exp_would_overflow():
    a = np.array([[1e4, 0.0]])
    assert measure(a, a + 1, logits=True).kl_max == 0.0
    assert measure(a, a[:, ::-1].copy(), logits=True).kl_max == pytest.approx(1e4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_kl_leaves_out_positions_where_it_is_not_defined(bad):
    a = np.array([[1.0, 2.0], [bad, 2.0]])
    b = np.array([[1.0, 2.5], [1.0, 2.0]])
    found = measure(a, b, logits=True)
    assert found.kl_max == found.kl_mean == pytest.approx(slow_kl([1, 2], [1, 2.5]))
    assert measure(a[1:], b[1:], logits=True).kl_max is None


def test_positions_behind_the_mask_do_not_count():
    a = np.zeros((2, 3, 4), np.float32)
    b = a.copy()
    b[0, 0, 2] = 9
    mask = row_mask([(1, 3), (0, 3)], a.shape)
    found = measure(a, b, rows=mask, logits=True)
    assert (found.n_argmax, found.n_positions, found.kl_max) == (0, 5, 0.0)
    pads = measure(a, b, rows=~mask, logits=True)
    assert (pads.n_argmax, pads.n_positions, pads.top[0].index) == (1, 1, (0, 0, 2))


def test_nothing_behind_the_mask_is_nothing():
    a = np.zeros((1, 2, 3))
    found = measure(a, a, rows=np.zeros((1, 2), bool), logits=True)
    assert (found.n, found.n_positions, found.kl_max) == (0, 0, None)


def test_memory_stays_bounded(tmp_path):
    n = 2 << 20
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, fill in zip(paths, (1.0, 2.0), strict=True):
        np.full(n, fill, np.float32).tofile(path)
    a, b = (np.memmap(path, np.float32, "r").reshape(32, 1 << 16) for path in paths)
    tracemalloc.start()
    found = measure(a, b, logits=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n_differ == n
    assert peak < 10 << 20
