"""The operations of both traces around the first difference."""

from samebits.trace.around import AFTER, BEFORE
from tests.trace.test_trace import blamed, start


def names(pairs):
    return [
        tuple(None if line is None else line.op for line in (pair.reference, pair.candidate))
        for pair in pairs
    ]


def test_equal_outputs_stand_side_by_side_and_the_cause_is_marked():
    reference = start().op("mm.default", "e w", "a").op("silu.default", "a", "b")
    candidate = start("new").op("abs.default", "e", "extra").op("mm.default", "e w", "a")
    candidate.op("gelu.default", "a", "B")
    reference.op("neg.default", "b", "c").mark("layer", "c")
    candidate.op("neg.default", "B", "C").mark("layer", "C")
    pairs = blamed(reference, candidate).around
    assert names(pairs) == [
        ("embedding.default", "embedding.default"),
        (None, "abs.default"),
        ("mm.default", "mm.default"),
        ("silu.default", "gelu.default"),
        ("neg.default", "neg.default"),
    ]
    assert [pair.starts for pair in pairs] == [False, False, False, True, False]
    shared = [(p.reference and p.reference.shared, p.candidate.shared) for p in pairs]
    assert shared == [(True, True), (None, False), (True, True), (False, False), (False, False)]


def test_a_long_trace_is_cut_on_both_ends():
    reference, candidate = start(), start("new")
    for builder, mark in ((reference, "r"), (candidate, "c")):
        value = "e"
        for step in range(40):
            result = f"s{step}" if step < 20 else f"{mark}{step}"
            builder.op("mm.default", f"{value} w", result)
            value = result
        builder.mark("layer", value)
    pairs = blamed(reference, candidate).around
    assert len(pairs) == BEFORE + 1 + AFTER
    assert [pair.starts for pair in pairs].index(True) == BEFORE
