"""Tests of the plan: the matrix's rules and the filters of the command line select the cells."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.base.errors import SelectionError
from samebits.matrix.plan import Selection, first_on_cpu, plan, reproduce, shown_release
from samebits.matrix.spec import Matrix, ModelSpec, Prompt, Rule, StackSpec
from samebits.records.ids import CellId, Variant


def model(name, dtypes=("float32",), attention=("default",), devices=("cpu",)):
    return ModelSpec(
        name=name,
        hub=f"org/{name}",
        dtypes=dtypes,
        attention=attention,
        devices=devices,
        prompts={"p": Prompt(length=3)},
        greedy=1,
        timeout=10,
    )


def matrix(models=None, stacks=("4.48", "5.2", "5.x"), reference=None, **rules):
    return Matrix(
        path="matrix.yaml",
        stacks=tuple(
            StackSpec(id=id, transformers=id, torch="2.13.0", python="3.11") for id in stacks
        ),
        reference=reference or stacks[0],
        models=models or (model("llama", ("float32", "bfloat16"), ("eager", "sdpa")), model("t5")),
        **rules,
    )


def cells(matrix, **filters):
    return [str(cell) for cell in plan(matrix, Selection.parse(**filters)).cells]


def test_every_cell_by_models_then_variants_then_stacks():
    planned = plan(matrix(), Selection())
    assert [str(cell) for cell in planned.cells] == [
        f"{row}@{stack}"
        for row in (
            "llama/float32-eager",
            "llama/float32-sdpa",
            "llama/bfloat16-eager",
            "llama/bfloat16-sdpa",
            "t5/float32-default",
        )
        for stack in ("4.48", "5.2", "5.x")
    ]
    assert planned.models == ("llama", "t5")
    assert planned.stacks == ("4.48", "5.2", "5.x")
    assert {row.reference for row in planned.rows} == {"4.48"}
    assert {model: len(rows) for model, rows in planned.rows_of.items()} == {"llama": 4, "t5": 1}


def test_filters():
    assert cells(matrix(), models="t5", environments="5.*") == [
        "t5/float32-default@5.2",
        "t5/float32-default@5.x",
    ]
    assert cells(matrix(), attention="eager, sdpa", dtypes="b*", environments="4.48") == [
        "llama/bfloat16-eager@4.48",
        "llama/bfloat16-sdpa@4.48",
    ]
    on_two = matrix((model("m", devices=("cpu", "cuda")),), stacks=("5.x",))
    assert cells(on_two, devices="cuda") == ["m/float32-default-cuda@5.x"]


def test_include_and_exclude():
    rules = {
        "include": (Rule(model=("llama",), variant=("*-eager",)), Rule(model=("t5",))),
        "exclude": (Rule(variant=("bfloat16-*",)), Rule(stack=("5.*",), model=("t*",))),
    }
    assert cells(matrix(**rules)) == [
        "llama/float32-eager@4.48",
        "llama/float32-eager@5.2",
        "llama/float32-eager@5.x",
        "t5/float32-default@4.48",
    ]


def test_a_row_without_the_reference_is_compared_with_its_oldest_stack():
    assert plan(matrix(), Selection.parse(environments="5.2,5.x")).rows[0].reference == "5.2"
    excluded = matrix(exclude=(Rule(model=("t5",), stack=("4.48",)),))
    assert [row.reference for row in plan(excluded, Selection()).rows] == ["4.48"] * 4 + ["5.2"]
    assert plan(matrix(reference="5.2"), Selection()).rows[0].reference == "5.2"


def test_stacks_that_no_cell_is_left_for_take_no_part():
    assert plan(matrix(exclude=(Rule(stack=("5.2",)),)), Selection()).stacks == ("4.48", "5.x")


def test_a_filter_that_matches_nothing_names_the_nearest():
    filters = {"models": "lama,t5", "environments": "5.3", "dtypes": "float16", "devices": "cuda"}
    with pytest.raises(SelectionError) as caught:
        cells(matrix(), attention="spda", **filters)
    assert str(caught.value).splitlines() == [
        '--models: "lama" matches nothing in the matrix: did you mean "llama"?',
        '--environments: "5.3" matches nothing in the matrix: did you mean "5.x"?',
        '--dtypes: "float16" matches nothing in the matrix: did you mean "bfloat16"?',
        '--attention: "spda" matches nothing in the matrix: did you mean "sdpa"?',
        '--devices: "cuda" matches nothing in the matrix: choose from "cpu"',
    ]


def test_filters_that_share_no_cell():
    with pytest.raises(SelectionError, match="no cell is left by --models t5 --dtypes bfloat16"):
        cells(matrix(), models="t5", dtypes="bfloat16")


def test_rules_that_leave_nothing():
    with pytest.raises(SelectionError, match="include and exclude of the matrix leave out every"):
        cells(matrix(exclude=(Rule(),)))


def cell(stack="5.x", **variant):
    made = Variant(**{"dtype": "float32", "attention": "default", **variant})
    return CellId(model="llama", variant=made, stack=stack)


NOX = ("nox", "-s", "matrix")


@pytest.mark.parametrize(
    ("cell", "reference", "path", "command"),
    [
        (cell(), "4.48", "matrix.yaml", "--environments 4.48,5.x"),
        (cell("4.48"), "4.48", "matrix.yaml", "--environments 4.48"),
        (cell(), None, "matrix.yaml", "--environments 5.x"),
        (cell(device="cuda:1"), "4.48", "matrix.yaml", "--devices cuda:1 --environments 4.48,5.x"),
    ],
    ids=["two stacks", "the reference", "no reference", "device"],
)
def test_reproduce(cell, reference, path, command):
    start = "nox -s matrix -- --models llama --dtypes float32 --attention default "
    end = f" --reports reports/reproduce/llama@{cell.stack}"
    assert reproduce(cell, reference, NOX, path) == start + command + end


def test_reproduce_quotes_what_a_shell_would_act_on():
    command = reproduce(cell(attention="a b"), None, NOX, "my $matrix.yaml")
    assert "--matrix 'my $matrix.yaml' --models" in command
    assert "--attention 'a b'" in command


@pytest.mark.parametrize("level", ["default", "quick"])
def test_reproduce_of_a_check_names_the_releases_and_no_matrix(level):
    program = ("samebits", "check", "org/tiny@abc")
    command = reproduce(cell(), "4.48", program, None, level)
    words = " --quick" if level == "quick" else ""
    assert command == (
        "samebits check org/tiny@abc --dtypes float32 --attention default"
        f"{words} --from 4.48 --to 5.x --reports reports/reproduce/llama@5.x"
    )


NAMES = ("a", "ab", "b-1")
PATTERNS = ("*", "a*", "b-1", "?")
rules = st.builds(
    Rule,
    model=st.tuples(st.sampled_from(PATTERNS)),
    variant=st.sampled_from([("*",), ("float16-*",), ("*-eager",)]),
    stack=st.sampled_from([("*",), ("5.*",), ("4.48",)]),
)
models = st.builds(
    model,
    name=st.sampled_from(NAMES),
    dtypes=st.permutations(["float32", "float16"]).map(tuple),
    attention=st.sampled_from([("eager",), ("sdpa", "eager")]),
    devices=st.sampled_from([("cpu",), ("cpu", "cuda:0")]),
)
matrices = st.builds(
    matrix,
    models=st.lists(models, min_size=1, unique_by=lambda model: model.name).map(tuple),
    stacks=st.sampled_from([("4.48",), ("4.48", "5.2", "5.x")]),
    include=st.lists(rules, max_size=2).map(tuple),
    exclude=st.lists(rules, max_size=2).map(tuple),
)
selections = st.builds(
    Selection,
    models=st.lists(st.sampled_from(PATTERNS), max_size=2).map(tuple),
    environments=st.sampled_from([(), ("5.*",), ("4.48", "5.x")]),
    dtypes=st.sampled_from([(), ("float16",)]),
    attention=st.sampled_from([(), ("eager",), ("s*",)]),
)


def cells_or_none(matrix, selection):
    try:
        return list(plan(matrix, selection).cells)
    except SelectionError:
        return []


@settings(max_examples=150, deadline=None)
@given(matrices, selections)
def test_filters_only_remove_and_keep_the_order(matrix, selection):
    everything = cells_or_none(matrix, Selection())
    chosen = cells_or_none(matrix, selection)
    assert len({str(cell) for cell in everything}) == len(everything)
    assert chosen == [cell for cell in everything if cell in chosen]
    for cell in set(map(str, everything)) - set(map(str, chosen)) if chosen else ():
        assert not is_wanted(next(c for c in everything if str(c) == cell), selection)
    assert all(is_wanted(cell, selection) for cell in chosen)


def is_wanted(cell, selection):
    pairs = (
        (cell.model, selection.models),
        (cell.stack, selection.environments),
        (cell.variant.dtype, selection.dtypes),
        (cell.variant.attention, selection.attention),
    )
    return all(
        not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        for name, patterns in pairs
    )


@settings(max_examples=100, deadline=None)
@given(matrices)
def test_a_rows_reference_is_one_of_its_cells(matrix):
    try:
        planned = plan(matrix, Selection())
    except SelectionError:
        return
    for row in planned.rows:
        stacks = [cell.stack for cell in row.cells]
        assert row.reference in stacks
        assert row.reference in (matrix.reference, stacks[0])
        assert {cell.variant for cell in row.cells} == {row.variant}


ANSWERING = {
    "float32 behind bfloat16": (("bfloat16", "float32"), ("default",), ("cpu",), "float32-default"),
    "no float32": (("bfloat16", "float16"), ("sdpa", "eager"), ("cpu",), "bfloat16-sdpa"),
    "a GPU first": (("float32",), ("default",), ("cuda", "cpu"), "float32-default"),
    "no CPU": (("float32",), ("default",), ("cuda",), None),
}


@pytest.mark.parametrize("name", ANSWERING)
def test_float32_on_the_cpu_answers_what_no_variant_decides(name):
    *axes, answering = ANSWERING[name]
    spec = model("m", *axes)
    chosen = [str(row.variant) for row in first_on_cpu(plan(matrix((spec,)), Selection()), bool)]
    assert chosen == ([answering] if answering else [])
    assert str(spec.first_on_cpu) == str(answering)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("5.15", "5.15"),
        ("./transformers", "./transformers"),
        ("../transformers", "../transformers"),
        (f"transformers@{'0' * 40}", f"transformers@{'0' * 40}"),
        ("/elsewhere/transformers", "…/transformers"),
        ("./x.whl", "x.whl"),
    ],
)
def test_a_source_is_shown_so_that_it_can_be_typed(typed, shown):
    assert shown_release(typed) == shown
