"""Detail that a report leaves out, and detail that it keeps."""

import pytest

from samebits.pipeline import trim
from samebits.records.comparison import Extreme, ItemComparison, Metrics
from samebits.records.provenance import IntegritySignal, Provenance
from samebits.records.report import Row
from samebits.records.subject import Subject
from samebits.records.tensor import TensorRef
from tests.support.builders import cell_id, cell_result
from tests.support.sample_report import attention, differing

REF = TensorRef(hash="a" * 64, dtype="float32", shape=(2,))
TOP = (Extreme(index=(0,), reference=1.0, candidate=2.0),)
APART = Metrics(n=2, n_differ=1, max_abs=1, mean_abs=0.5, max_rel=1, max_ulp=1, cosine=1.0, top=TOP)


def item(name="x", outcome="differs", **fields):
    tensors = {"reference": REF, "candidate": REF} | fields
    return ItemComparison(subject=Subject(tensor=name), outcome=outcome, **tensors)


def trimmed(signal, *items):
    result = cell_result(cell_id("5.x", "m"), signals=(differing(signal, *items, n=(9, 1)),))
    return trim.result(result).signals[0].items


def test_layers_keep_their_distance_and_lose_extremes():
    (layer,) = trimmed("hidden_states", item(metrics=APART))
    assert layer.metrics == APART.model_copy(update={"top": ()})
    assert layer.reference == REF


def test_an_identical_layer_loses_its_hashes_and_keeps_what_its_padding_does():
    layer, padded = trimmed(
        "hidden_states",
        item(outcome="identical"),
        item(outcome="identical", pad_rows="differ", pad_metrics=APART),
    )
    assert (layer.reference, layer.candidate, layer.outcome) == (None, None, "identical")
    assert padded.pad_rows == "differ"
    assert padded.pad_metrics.max_abs == 1


@pytest.mark.parametrize("signal", ["logits", "decode", "weights", "inputs", "buffers"])
def test_nothing_else_is_touched(signal):
    items = (item(metrics=APART), item(outcome="identical"))
    assert trimmed(signal, *items) == items


def test_a_load_counts_plain_tensors_and_names_the_others():
    def tensor(source, written="all", **more):
        return Provenance(kind="parameter", source=source, written=written, **more)

    tensors = {
        "a": tensor("loaded"),
        "b": tensor("loaded", "not covered"),
        "c": tensor("tied"),
        "d": tensor("derived"),
        "e": tensor("derived", "not covered"),
        "f": tensor("loaded", ignored=True),
        "g": tensor("reinitialised"),
        "h": tensor("partly written", "partly"),
    }
    signal = IntegritySignal(poison="NaN", tensors=tensors, silent=("g",), seconds=1.0)
    report = trim.load(signal)
    assert sorted(report.tensors) == ["e", "f", "g", "h"]
    assert report.counts == {
        "loaded": 3,
        "tied": 1,
        "derived": 2,
        "reinitialised": 1,
        "partly written": 1,
    }
    unchanged = {"poison", "silent", "seconds", "round_trip", "stored_dtypes", "default_dtypes"}
    assert report.model_dump(include=unchanged) == signal.model_dump(include=unchanged)


def test_attention_comes_back_as_it_was():
    signals = {"4.48": attention(gqa=False, layers=3), "5.x": attention(gqa=False, layers=1)}
    reports, calls = trim.attention(signals)
    assert len(calls) == 1, "layers differ by nothing but their module"
    row = Row(model="m", variant="v", reference=None, cells=(), attention=reports, calls=calls)
    assert {stack: row.ran(stack) for stack in signals} == signals
