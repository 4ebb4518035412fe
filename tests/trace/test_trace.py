"""Tests of samebits.trace: joined traces, causes and their evidence."""

import asyncio
import base64
from types import SimpleNamespace

import numpy as np
import pytest

from samebits.jobs import trace
from samebits.jobs.common import ReadyCell, ReadyPair
from samebits.jobs.trace import NOTHING, LocatedCause, with_beyond
from samebits.records.tensor import tensor_hash
from samebits.records.trace import Look, Seen, Side, Value
from samebits.reports.cell.cause import cause_in_short, causes_of
from samebits.storage.store import Store
from samebits.trace import blame, masks
from samebits.trace.graph import Graph
from samebits.trace.join import join
from samebits.trace.question import TracePhase, TraceRequest
from samebits.trace.replay import closer
from samebits.trace.sourcediff import diffs
from tests.support.builders import cause_in, cell_id, model_spec
from tests.support.traces import Builder


def start(stack="old", weight="w"):
    builder = Builder(stack).source("x", "input_ids", dtype="int64", structural=True)
    builder.source(weight, "embed.weight")
    return builder.op("embedding.default", f"{weight} x", "e")


def blamed(reference, candidate, **options):
    blame_of_pair = blame.blame(reference.trace(), candidate.trace(), **options)
    return None if blame_of_pair is None else blame.cause(blame_of_pair)


def test_equal_traces_have_no_cause():
    reference = start().op("mm.default", "e w", "a").mark("layer", "a")
    candidate = start("new").op("mm.default", "e w", "a").mark("layer", "a")
    assert join(reference.trace(), candidate.trace()) is None


def test_the_first_operation_with_known_inputs_and_an_unknown_output_is_blamed():
    reference = start().op("mm.default", "e w", "a").op("silu.default", "a", "b", line=7)
    candidate = start("new").op("mm.default", "e w", "a").op("silu.default", "a", "B", line=8)
    reference.op("neg.default", "b", "c").mark("layer", "c")
    candidate.op("neg.default", "B", "C").mark("layer", "C")
    cause = blamed(reference, candidate)
    assert cause.candidate.op == cause.reference.op == "silu.default"
    assert (cause.candidate.source, cause.reference.source) == ("x.py:8", "x.py:7")
    assert cause.kind == "memory"  # the same operation on the same numbers
    assert cause.sink == "layer"


def test_order_names_and_numbers_of_operations_do_not_matter():
    reference = start().op("mm.default", "e w", "a", module="q_proj")
    reference.op("neg.default", "e", "n").op("add.Tensor", "a n", "s").mark("layer.0", "s")
    candidate = start("new").op("neg.default", "e", "n").op("abs.default", "e", "only here")
    candidate.op("mm.default", "e w", "a", module="fused.q").op("add.Tensor", "a n", "S")
    candidate.mark("blocks.0", "S")
    assert blamed(reference, candidate).candidate.op == "add.Tensor"


def test_what_differs_on_the_way_and_comes_out_the_same_is_not_blamed():
    reference = start().op("mm.default", "e w", "a").op("exp.default", "a", "b")
    candidate = start("new").op("mm.default", "e w", "fused").op("slice.Tensor", "fused", "a")
    candidate.op("exp.default", "a", "B")
    cause = blamed(reference.mark("layer", "b"), candidate.mark("layer", "B"))
    assert cause.candidate.op == "exp.default"


def test_layout_alone_is_passed_through():
    reference = start().op("mm.default", "e w", "a").mark("layer", "a")
    candidate = start("new").op("t.default", "e", "turned").op("mm.default", "turned w", "A")
    cause = blamed(reference, candidate.mark("layer", "A"))
    assert cause.candidate.op == "mm.default"
    assert cause.kind == "layout"  # of one shape, and the elements stand elsewhere
    candidate.facts["turned"]["shape"] = (2, 2, 2)  # met in a shape that the product does not take
    assert blamed(reference, candidate).kind == "layout"
    candidate.facts["turned"]["shape"] = (4, 2)
    candidate.facts["A"]["shape"] = (4, 4)
    assert blamed(reference, candidate).kind == "shape"


def test_a_lossless_cast_is_layout_and_a_rounding_one_is_blamed():
    reference = start().op("mul.Tensor", "e w", "a").mark("layer", "a")
    candidate = start("new").op("_to_copy.default", "e", "wide", dtype="float64")
    candidate.op("mul.Tensor", "wide w", "A", dtype="float64").mark("layer", "A")
    cause = blamed(reference, candidate)
    assert (cause.candidate.op, cause.kind) == ("mul.Tensor", "precision")
    candidate = start("new").op("_to_copy.default", "e", "small", dtype="bfloat16")
    candidate.op("mul.Tensor", "small w", "A").mark("layer", "A")
    cause = blamed(reference, candidate)
    assert (cause.candidate.op, cause.kind) == ("_to_copy.default", "precision")


def test_a_stored_tensor_that_the_other_side_lacks_is_named():
    reference = start(weight="w").mark("layer", "e")
    candidate = start("new", weight="W").mark("layer", "e")
    candidate = Builder("new").source("x", "input_ids", dtype="int64", structural=True)
    candidate.source("W", "embed.weight").op("embedding.default", "W x", "E").mark("layer", "E")
    cause = blamed(reference, candidate)
    assert cause.kind == "weight"
    assert cause.candidate.tensor == cause.reference.tensor == "embed.weight"
    assert "embed.weight holds values that old does not compute with" in cause.headline


def test_a_fused_weight_that_holds_the_same_numbers_is_known():
    reference = start().op("mm.default", "e w", "a").mark("layer", "a")
    candidate = start("new").source("fused", "mlp.gate_up").op("mm.default", "e fused", "A")
    candidate.mark("layer", "A")
    assert blamed(reference, candidate).kind == "buffer"
    cause = blamed(reference, candidate, same_weights={"mlp.gate_up"})
    assert cause.candidate.op == "mm.default"


def test_another_scalar_is_an_argument():
    reference = start().op("mul.Tensor", "e", "a", arguments="%, 0.25").mark("layer", "a")
    candidate = start("new").op("mul.Tensor", "e", "A", arguments="%, 0.2500025").mark("layer", "A")
    cause = blamed(reference, candidate)
    assert cause.kind == "argument"
    assert cause.evidence == ("(%, 0.25) became (%, 0.2500025)",)


def test_rows_and_elements_in_another_order_are_known():
    reference = start().op("mm.default", "e w", "a", rows=rows(5, 6), bag="q").mark("layer", "a")
    candidate = start("new").op("mm.default", "e w", "A", rows=rows(6, 5)).mark("layer", "A")
    candidate.op("exp.default", "A", "B").mark("logits", "B")
    reference.op("exp.default", "a", "b").mark("logits", "b")
    assert (
        blamed(reference, candidate).candidate.op == "mm.default"
    )  # the sink itself must be equal
    reference.marks.pop(0)
    candidate.marks.pop(0)
    assert blamed(reference, candidate).candidate.op == "exp.default"
    candidate.facts["A"]["rows"] = rows(6, 7)
    assert blamed(reference, candidate).candidate.op == "mm.default"


CAUSAL = np.tril(np.ones((3, 3), bool))


def attention(stack, mask, word, out, allowed):
    builder = start(stack).op("mm.default", "e w", "q", module="attn.q_proj")
    builder.op("le.Tensor", "x", mask, dtype="bool", structural=True, line=5)
    builder.op(
        "_scaled_dot_product_flash_attention_for_cpu.default", f"q q q {mask}", out, module="attn"
    )
    return builder.mask(allowed).mark("layer", out)


def test_a_mask_is_blamed_if_and_only_if_it_means_something_else():
    reference = attention("old", "bool mask", "m", "a", CAUSAL)
    shifted = np.tril(np.ones((3, 3), bool), 1)
    cause = blamed(reference, attention("new", "float mask", "M", "A", shifted))
    assert cause.kind == "mask"
    assert cause.evidence[0] == (
        "query 0 does not see key 1 in the reference and sees it in the candidate; 2 of 9 places differ"
    )
    assert "le.Tensor in X.forward (x.py:5)" in cause.headline
    cause = blamed(reference, attention("new", "float mask", "M", "A", CAUSAL))
    assert cause.kind != "mask"
    assert "scaled_dot_product" in cause.candidate.op


def keys_of(stack, keys, out, allowed, *numbers, **facts):
    builder = start(stack).op("mm.default", "e w", "q", module="attn.q_proj")
    builder.op("cat.default", "e", keys, rows=rows(*numbers), bag="all of e", **facts)
    builder.op(
        "_scaled_dot_product_flash_attention_for_cpu.default", f"q {keys} q", out, module="attn"
    )
    return builder.mask(allowed).mark("layer", out)


def sees(*keys):
    return np.array([keys], bool)


def test_a_kernel_that_is_given_slots_that_nobody_sees_is_cut_otherwise():
    reference = keys_of("old", "k", "a", sees(1, 1, 0, 0), 5, 6, 0, 0, shape=(4, 4))
    cause = blamed(reference, keys_of("new", "K", "A", sees(1, 1), 5, 6, shape=(2, 4)))
    assert cause.kind == "shape"
    assert "the visible keys are the same" in cause.evidence[1]
    reference = keys_of("old", "k", "a", sees(1, 1, 1, 1), 5, 6, 7, 8, shape=(4, 4))
    cause = blamed(reference, keys_of("new", "K", "A", sees(1, 1), 5, 6, shape=(2, 4)))
    assert cause.kind == "mask"


def test_a_cache_that_holds_other_keys_is_named_by_its_keys():
    reference = keys_of("old", "k", "a", sees(1, 1, 0), 5, 6, 9, shape=(3, 4))
    cause = blamed(reference, keys_of("new", "K", "A", sees(1, 1, 0), 5, 7, 9, shape=(3, 4)))
    assert cause.kind == "keys"
    assert (
        cause.evidence[0]
        == "visible rows of keys: 1 only in the reference, 1 only in the candidate"
    )
    assert "starts at cat.default" in cause.evidence[1]
    assert "is given different keys than" in cause.headline


def test_keys_that_nobody_sees_and_heads_that_are_repeated_are_no_other_keys():
    reference = keys_of("old", "k", "a", sees(0, 1, 1), 8, 5, 6, 8, 5, 6, shape=(1, 2, 3, 4))
    cause = blamed(reference, keys_of("new", "K", "A", sees(0, 1, 1), 9, 5, 6, shape=(3, 4)))
    assert cause.kind == "shape"  # as heads that are packed, in a padded batch


def test_a_head_that_takes_another_stored_tensor_is_a_weight():
    reference, candidate = start(), start("new")
    reference.source("v", "lm_head.weight").op("t.default", "w", "wt").op("mm.default", "e wt", "a")
    candidate.source("v", "lm_head.weight").op("t.default", "v", "vt").op("mm.default", "e vt", "A")
    reference, candidate = reference.mark("logits", "a"), candidate.mark("logits", "A")
    cause = blamed(reference, candidate, same_weights=frozenset({"lm_head.weight", "embed.weight"}))
    assert cause.kind == "weight"
    assert "it is embed.weight in the reference and lm_head.weight" in cause.evidence[1]


def headed(stack, stored, turned, out):
    """Return a trace whose logits are of a stored tensor and of the same one turned round."""
    builder = start(stack).source(stored, "lm_head.weight", bag=stored)
    builder.op("t.default", stored, turned, bag=stored).op("mm.default", f"e {turned}", out)
    return builder.mark("logits", out)


def test_one_stored_tensor_with_other_numbers_is_a_weight():
    reference, candidate = headed("old", "v", "vt", "a"), headed("new", "u", "ut", "A")
    cause = blamed(reference, candidate, same_weights=frozenset({"lm_head.weight"}))
    assert cause.kind == "weight"
    assert "it is lm_head.weight on both sides, with different numbers" in cause.evidence


def test_one_stored_tensor_in_another_order_is_no_other_weight():
    cause = blamed(headed("old", "v", "vt", "a"), headed("new", "v", "VT", "A"))
    assert cause.kind == "layout"


def tabled(stack, table, out):
    builder = start(stack).op("arange.default", "", "p", dtype="int64", structural=True)
    builder.op(f"{table}.default", "p", table, structural=True)
    return builder.op("mul.Tensor", f"e {table}", out).mark("layer", out)


def test_a_table_that_follows_from_positions_is_no_position():
    cause = blamed(tabled("old", "cos", "a"), tabled("new", "sin", "A"))
    assert (cause.kind, cause.candidate.op) == ("wiring", "mul.Tensor")
    assert "in the candidate it is from sin.default" in " ".join(cause.evidence)


def test_what_made_the_input_that_differs_is_looked_at_and_the_operation_is_not_blamed(tmp_path):
    reference, candidate = tabled("old", "cos", "a"), tabled("new", "sin", "A")
    pair = blame.blame(reference.trace(), candidate.trace())
    names = [
        [view.graph.name(index) for index in ops]
        for view, ops in zip((pair.reference, pair.candidate), pair.looks, strict=True)
    ]
    assert names == [["mul.Tensor", "cos.default"], ["mul.Tensor", "sin.default"]]
    cause = looked(tmp_path, reference, candidate, "A", "A")
    assert "the difference is in what it is given" in cause.replay
    assert "starts in this operation" not in cause.replay


def rows(*numbers):
    return base64.b64encode(np.array(numbers, "<i8").tobytes()).decode()


def repeated(stack, by, value, out):
    builder = start(stack).op(by, "e", value, bag="all of e", line=3)
    return builder.op("mul.Tensor", f"{value} e", out, line=9).mark("layer", out)


def test_what_puts_elements_elsewhere_is_named_and_not_what_takes_them():
    reference = repeated("old", "repeat.default", "tiled", "a")
    cause = blamed(reference, repeated("new", "expand.default", "side-by-side", "A"))
    assert cause.kind == "layout"
    assert (cause.candidate.op, cause.reference.op) == ("expand.default", "repeat.default")
    assert "puts elements in different places than repeat.default" in cause.headline
    assert "mul.Tensor in X.forward (x.py:9)" in cause.evidence[0]
    assert cause.also == ()  # what feels it parts for this reason alone


def by_hand(stack, out, *steps):
    builder = start(stack).op("mm.default", "e w", "q", module="attn.q_proj")
    builder.op("bmm.default", "q q", "scores", module="attn")
    last = "scores"
    for place, (name, line) in enumerate(steps):
        builder.op(name, last, f"step{place}", module="attn", line=line)
        last = f"step{place}"
    builder.op("_softmax.default", last, "weights", module="attn").mask(CAUSAL)
    return builder.op("bmm.default", "weights q", out, module="attn").mark("layer", out)


def fused(stack, out):
    builder = start(stack).op("mm.default", "e w", "q", module="attn.q_proj")
    builder.op("_scaled_dot_product_flash_attention_for_cpu.default", "q q q", out, module="attn")
    return builder.mask(CAUSAL).mark("layer", out)


@pytest.mark.parametrize("turned", [False, True])
def test_what_no_kernel_does_to_the_scores_is_named_before_the_kernel(turned):
    def pair(*steps):
        sides = fused("old", "a"), by_hand("new", "A", *steps)
        if turned:
            sides = by_hand("old", "a", *steps), fused("new", "A")
        return blamed(*sides)

    cause = pair(("mul.Tensor", 2), ("tanh.default", 3), ("mul.Tensor", 4))
    assert cause.kind == "operation"
    stack = "old" if turned else "new"
    assert cause.headline == (
        f"in {stack} the scores go through tanh.default in X.forward (x.py:3), "
        "which a fused attention does not do"
    )
    sides = cause.reference, cause.candidate
    assert [side.op[:4] for side in (sides if turned else sides[::-1])] == ["tanh", "_sca"]
    assert pair(("mul.Tensor", 2), ("add.Tensor", 4)).kind == "kernel"


def positioned(stack, positions, out, chosen, maker):
    builder = start(stack).source("table", "wpe.weight")
    builder.op(maker, "x", positions, dtype="int64", structural=True, line=2)
    builder.op("embedding.default", f"table {positions}", "p" + out, rows=chosen)
    return builder.op("add.Tensor", f"e p{out}", out).mark("embeddings", out)


def test_rows_of_a_table_that_other_positions_choose_are_positions_and_no_shape():
    reference = positioned("old", "from-mask", "a", rows(1, 1, 1, 2), "cumsum.default")
    candidate = positioned("new", "counted", "A", rows(1, 2), "arange.default")
    cause = blamed(reference, candidate)
    assert cause.kind == "positions"
    assert "in the reference by cumsum.default" in cause.evidence[1]
    assert "in the candidate by arange.default" in cause.evidence[1]
    candidate = positioned("new", "counted", "A", rows(1, 1), "arange.default")
    reference = positioned("old", "everywhere", "a", rows(1, 1, 1, 1), "cumsum.default")
    assert blamed(reference, candidate).kind != "positions"  # the same rows, as often as it takes


def placed(stack, positions, chosen, word, *, norm="native_layer_norm.default"):
    """Return the embeddings of four tokens, of which the rows are named by numbers."""
    builder = start(stack).source("table", "wpe.weight", rows=rows(1, 2, 3))
    builder.op("arange.default", "x", positions, dtype="int64", structural=True, line=2)
    builder.op("embedding.default", f"table {positions}", f"p{word}", rows=chosen[0], line=3)
    builder.op("add.Tensor", f"e p{word}", f"s{word}", rows=chosen[1])
    return builder.op(norm, f"s{word}", word, rows=chosen[2]).mark("embeddings", word)


def test_positions_that_give_a_row_of_another_token_are_the_cause_and_not_what_reads_it():
    """A dot gets the position of the first token, and the row that this token has there is known."""
    old = placed(
        "old", "right", (rows(1, 2, 3, 2), rows(11, 12, 13, 14), rows(21, 22, 23, 24)), "a"
    )
    new = placed(
        "new", "wrong", (rows(1, 2, 3, 1), rows(11, 12, 13, 11), rows(21, 22, 23, 21)), "A"
    )
    for reference, candidate in ((old, new), (new, old)):
        cause = blamed(reference, candidate)
        assert (cause.kind, cause.candidate.op) == ("positions", "embedding.default")
        assert cause.reference.op == "embedding.default"


def test_one_function_of_the_same_rows_at_once_or_apart_is_a_cut():
    reference = start().op("index.Tensor", "e x", "some", rows=rows(5, 6), shape=(2, 4))
    reference.op("sigmoid.default", "some", "a").mark("layer", "a")
    candidate = start("new").op("index.Tensor", "e x", "all", rows=rows(7, 6, 5), shape=(3, 4))
    candidate.op("sigmoid.default", "all", "A").mark("layer", "A")
    cause = blamed(reference, candidate)
    assert cause.kind == "shape"
    assert cause.evidence == (
        "the same rows, split differently: input 0: float32[2, 4] became float32[3, 4]",
    )


def test_a_product_of_the_same_rows_in_another_kernel_is_a_cut_unless_float64_sees_it():
    def side(stack, name, out, *numbers):
        builder = start(stack).op("index.Tensor", "e x", "r" + out, rows=rows(*numbers))
        return builder.op(name, f"r{out} w", out).mark("layer", out)

    reference, candidate = (
        side("old", "mm.default", "a", 5),
        side("new", "_grouped_mm.default", "A", 5, 6),
    )
    cause = blamed(reference, candidate)
    assert cause.kind == "shape"
    assert "a product of the same rows" in cause.evidence[0]
    float64_blame = blame.blame(reference.trace(rung="float64"), candidate.trace(rung="float64"))
    assert blame.cause(float64_blame).kind == "operation"
    cause = blamed(side("old", "addmm.default", "a", 5), side("new", "mm.default", "A", 5, 6))
    assert cause.kind == "operation"
    assert "one side adds inside the product" in cause.evidence[0]


def biased(stack, op, inputs, out):
    return start(stack).source("b", "head.bias").op(op, inputs, out).mark("layer", out)


def test_a_parameter_that_only_one_side_takes_is_unread_on_the_other():
    """5.0 of reformer makes its head without the bias that the model holds beside it."""
    added, bare = ("addmm.default", "b e w", "a"), ("mm.default", "e w", "A")
    cause = blamed(biased("old", *added), biased("new", *bare))
    assert (cause.candidate.unread, cause.reference.unread) == (("head.bias",), ())
    cause = blamed(biased("old", *bare), biased("new", *added))
    assert (cause.candidate.unread, cause.reference.unread) == ((), ("head.bias",))


def test_a_parameter_that_is_added_later_or_in_another_product_is_none():
    reference = biased("old", "addmm.default", "b e w", "a")
    later = start("new").source("b", "head.bias").op("mm.default", "e w", "A")
    assert (
        blamed(reference, later.op("add.Tensor", "A b", "B").mark("layer", "B")).candidate.unread
        == ()
    )
    fused = start("new").source("v", "qkv.weight").op("mm.default", "e v", "A").mark("layer", "A")
    assert blamed(reference, fused).candidate.unread == ()


def test_two_operations_are_no_question_of_precision():
    reference = start().op("neg.default", "e", "a", dtype="bfloat16").mark("layer", "a")
    candidate = start("new").op("mul.Tensor", "e e", "A").mark("layer", "A")
    cause = blamed(reference, candidate)
    assert (cause.kind, cause.evidence) == ("operation", ())
    candidate = start("new").op("mul.Tensor", "w w", "A").mark("layer", "A")
    cause = blamed(reference, candidate)
    assert cause.evidence == ("the counterpart in the reference is a guess",)


def test_a_stored_tensor_is_no_proof_where_other_places_part_too():
    reference = start().op("mm.default", "e w", "a").mark("layer", "a")
    candidate = start("new").source("bias", "mlp.bias").op("mm.default", "e bias", "A")
    candidate.op("silu.default", "e", "B").op("add.Tensor", "A B", "C").mark("layer", "C")
    cause = blamed(reference, candidate)
    assert cause.kind == "weight"
    assert any("no trace shows which of them matters" in line for line in cause.evidence)


@pytest.mark.parametrize(
    ("reference", "candidate", "rows", "words"),
    [
        (CAUSAL, CAUSAL, None, ""),
        (np.pad(CAUSAL, ((0, 0), (0, 2))), CAUSAL, None, ""),
        (np.pad(CAUSAL, ((0, 0), (2, 0))), CAUSAL, None, ""),
        (
            np.ones((3, 3)),
            CAUSAL,
            None,
            "query 0 sees key 1 in the reference and does not see it in the candidate",
        ),
        (np.ones((3, 3)), CAUSAL, ((2, 3),), ""),
        (np.ones((3, 3)), CAUSAL, ((1, 3),), "query 1 sees key 2"),
        (np.ones((2, 3)), CAUSAL, None, None),
    ],
)
def test_masks_are_compared_by_what_they_mean(reference, candidate, rows, words):
    def visibility(allowed):
        return Builder().op("x", "", "").mask(allowed).attentions[0]

    difference = masks.difference(visibility(reference), visibility(candidate), rows)
    assert difference == words if not words else difference.startswith(words)


def test_an_in_place_mark_and_an_overload_are_no_part_of_a_name():
    graph = Graph(start().op("add_.Tensor", "e e", "a").op("__and__.Tensor", "a", "b").trace())
    assert [graph.base(i) for i in range(3)] == ["embedding", "add", "__and__"]


def stored(folder, numbers):
    array = np.asarray(numbers, np.float32)
    hashed = tensor_hash("float32", array.shape, array.tobytes())
    path = folder / "tensors" / hashed[:2] / f"{hashed}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(array.tobytes())
    return {"hash": hashed, "dtype": "float32", "shape": array.shape, "stored": True}


def looked(folder, reference, candidate, fresh, same_layout):
    blamed_pair = blame.blame(reference.trace(), candidate.trace())
    cause = blame.cause(blamed_pair)
    value = {"dtype": "float32", "shape": (2,)}
    looks = [
        Look(
            inputs=(Seen(**stored(folder, [1.0]), strides=(1,), aligned=60),),
            outputs=(stored(folder, numbers),),
            fresh=(Value(hash=fresh, **value),),
            same_layout=(Value(hash=same_layout, **value),),
        )
        for numbers in ([1.0, 2.0], [1.0, 2.5])
    ]
    reference_ops, candidate_ops = blamed_pair.looks
    traces = (
        reference.trace(looks={reference_ops[0]: looks[0]}),
        candidate.trace(looks={candidate_ops[0]: looks[1]}),
    )
    return closer(cause, blamed_pair, *traces, Store(folder))


@pytest.mark.parametrize(
    ("fresh", "same_layout", "kind", "words"),
    [
        ("B", "B", "memory", "starts in this operation"),
        ("b", "B", "memory", "60 bytes after a 64-byte boundary"),
        ("third", "B", "memory", "a third output"),
        ("third", "fourth", "memory", "its bits depend"),
    ],
)
def test_a_closer_look_says_whether_the_operation_differs_by_itself(
    tmp_path, fresh, same_layout, kind, words
):
    reference = start().op("silu.default", "e", "b").mark("layer", "b")
    candidate = start("new").op("silu.default", "e", "B").mark("layer", "B")
    cause = looked(tmp_path, reference, candidate, fresh, same_layout)
    assert cause.kind == kind
    assert words in cause.replay
    assert "the outputs differ in 1 of 2 elements, by at most 5.0e-01" in cause.evidence


def test_functions_of_one_name_that_changed_are_shown():
    def side(text, digest):
        look = Look(inputs=(), chain=(0,))
        trace = start().trace(looks={0: look}, texts={0: text})
        function = trace.functions[0].model_copy(update={"digest": digest})
        return trace.model_copy(update={"functions": (function,)})

    reference, candidate = (
        side("def f():\n    return 1\n", "1"),
        side("def f():\n    return 2\n", "2"),
    )
    (diff,) = diffs(reference, candidate)
    assert "-    return 1" in diff.diff
    assert "+    return 2" in diff.diff
    assert diff.function == "X.forward"
    assert diffs(reference, side("def f():  # why\n    return 1\n", "1")) == ()


def test_two_functions_are_one_renamed_only_where_each_runs_on_one_side_alone():
    """A router that leaves out its norm makes the experts differ, whose function is no new form of the router's."""

    def side(name, *others):
        trace = start().trace(looks={0: Look(inputs=(), chain=(0,))}, texts={0: f"{name}()\n"})
        functions = [trace.functions[0].model_copy(update={"name": n}) for n in (name, *others)]
        return trace.model_copy(update={"functions": tuple(functions)})

    (renamed,) = diffs(side("Block.forward"), side("Experts.forward"))
    assert (renamed.function, "-Block.forward()" in renamed.diff) == ("Experts.forward", True)
    both = ("Router.forward", "Experts.forward")
    assert diffs(side(*both), side(*reversed(both))) == ()


def test_a_constructor_that_changed_is_shown_where_it_may_have_set_what_differs():
    def side(text, digest):
        look = Look(inputs=(), chain=(0, 1))
        texts = {0: "def forward(self):\n    return sdpa(self.scaling)\n", 1: text}
        trace = start().trace(looks={0: look}, texts=texts)
        (function,) = trace.functions[:1]
        init = function.model_copy(update={"name": "X.__init__", "digest": digest})
        return trace.model_copy(update={"functions": (function, init)})

    reference = side("def __init__(self):\n    self.scaling = 4**-0.5\n", "1")
    candidate = side("def __init__(self):\n    self.scaling = 4**0.5\n", "2")
    (diff,) = diffs(reference, candidate, constructors=True)
    assert diff.function == "X.__init__"
    assert "+    self.scaling = 4**0.5" in diff.diff
    assert diffs(reference, candidate) == ()  # not what an operation is that changed
    assert diffs(reference, reference, constructors=True) == ()


def test_a_cause_is_told_with_both_sides_and_its_proof():
    from types import SimpleNamespace

    side = Side(stack="4.48", op="mm.default", arguments="%, %", function="X.forward")
    cause = cause_in(
        side.model_copy(update={"stack": "5.x"}),
        reference=side,
        replay="it differs by itself",
        float64="in promoted float64 the sides differ at the same place: it is not rounding",
    )
    text = causes_of(SimpleNamespace(cause=cause))
    for word in ("Where it starts", "4.48", "5.x", "it differs by itself", "In promoted float64"):
        assert word in text
    assert (
        cause_in_short(SimpleNamespace(cause=cause))
        == "starts with a different operation: X.forward"
    )
    assert causes_of(SimpleNamespace(cause=None)) == ""


def found_at(place, prompt="short", *, kind="operation", line=1, steps=0):
    side = Side(stack="5.x", op="mm.default", function="X.forward", source=f"x.py:{line}")
    cause = cause_in(side, kind=kind, prompt=prompt, sink=f"mark {place}")
    return LocatedCause(cause, TracePhase(prompt, "forward", {}, steps), place)


def test_what_float64_leaves_is_told_by_where_it_begins():
    def float64_words(first, beyond):
        cause = with_beyond(first, beyond)
        return cause.float64, cause.beyond

    text, beyond = float64_words(found_at(3), found_at(3))
    assert "it is not rounding" in text
    assert beyond is None
    text, beyond = float64_words(found_at(3), found_at(5, line=2))
    assert "starts elsewhere" in text
    assert beyond is not None
    text, beyond = float64_words(found_at(3), found_at(3, "long"))
    assert "at the same place, on the path to mark 3 in prompt long" in text
    assert beyond.prompt == "long"
    # what was equal before it was promoted says nothing of the two
    text, beyond = float64_words(found_at(3), found_at(0, kind="buffer", line=2))
    assert "cannot tell whether it is rounding" in text
    assert beyond is None
    text, beyond = float64_words(found_at(3), NOTHING)
    assert "no trace shows a difference" in text


def test_what_cannot_be_traced_is_said_and_stops_nothing():
    class Broken:
        async def ask(self, kind, task, ready):
            raise KeyError(task.rung)

    question = TracePhase("short", "forward", {})
    request = TraceRequest(cell_id("4.48"), [question], frozenset(), beyond_rounding=False)
    ready = ReadyCell(cell_id("5.x"), model_spec(), None, None, None)
    reason = asyncio.run(trace.cause(Broken(), ReadyPair(ready, ready), request))
    assert reason == "the traces could not be joined: KeyError: 'own'"


def test_an_operation_that_one_side_leaves_out_at_its_end_is_named():
    def head(stack, logits):
        builder = start(stack).op("mm.default", "e w", "m").op("mul.Tensor", "m", "s")
        return builder.mark("logits", logits)

    cause = blamed(head("old", "s"), head("new", "m"))
    assert cause.kind == "operation"
    assert (cause.reference.op, cause.candidate.op) == ("mul.Tensor", "mm.default")
    assert cause.headline.startswith("new leaves out mul.Tensor")
    assert "its output does not" not in cause.headline
    assert not cause.evidence, "no counterpart is guessed"
    # the clean twin: an operation that only the candidate has
    more = blamed(head("old", "m"), head("new", "s"))
    assert more.candidate.op == "mul.Tensor"
    assert "leaves out" not in more.headline


@pytest.mark.parametrize("at_the_end", [True, False])
def test_a_factor_of_a_power_of_two_is_looked_for_where_float64_shows_nothing_else(at_the_end):
    asked = []

    def head(ready, task):
        """Return a trace of logits, or of a layer, that one side scales; a coarse content has no power of two."""
        asked.append((task.rung, task.scaled))
        is_old = ready.cell.stack == "old"
        scales = is_old and (task.rung == "own" or task.scaled)
        builder = start(ready.cell.stack).op("mm.default", "e w", "m")
        if scales:
            builder.op("mul.Tensor", "m", "s")
        last = "s" if scales else "m"
        if not at_the_end:
            builder.op("add.Tensor", f"e {last}", "a" if is_old else "b")
            last = "a" if is_old else "b"
        return builder.mark("logits", last).trace()

    class Lab:
        cache = SimpleNamespace(store=None)

        async def ask(self, kind, task, ready):
            return head(ready, task)

    ready = [ReadyCell(cell_id(stack), model_spec(), None, None, None) for stack in ("old", "new")]
    questions = [TracePhase("short", "forward", {})]
    request = TraceRequest(cell_id("old"), questions, frozenset(), beyond_rounding=True)
    cause = asyncio.run(trace.cause(Lab(), ReadyPair(*ready), request))
    assert ("float64", False) in asked
    assert ("float64", True) in asked
    assert ("own", True) not in asked
    assert cause.kind == "operation"
    assert cause.beyond is None
    assert cause.reference.op == "mul.Tensor"
    assert cause.headline.startswith("new leaves out mul.Tensor") is at_the_end
    assert cause.float64.endswith("it is not rounding")
