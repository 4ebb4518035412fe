"""Lines on failures: a failure that many cells of a model share is one line."""

from samebits.records.ids import CellId, Variant
from samebits.terminal.failures import lines

TEXT = "load: KeyError: 'qwen3'"
FAILED = ("failed", TEXT)
COMPLETE = ("complete", "")


def cells(*stacks, dtypes=("float32",)):
    return [
        CellId(model="llama", variant=Variant(dtype=dtype, attention="sdpa"), stack=stack)
        for dtype in dtypes
        for stack in stacks
    ]


def test_nothing_failed_nothing_is_said():
    assert lines(dict.fromkeys(cells("4.48", "5.x"), COMPLETE)) == []
    assert lines({}) == []


def test_a_failure_of_one_cell_names_it():
    old, new = cells("4.48", "5.x")
    assert lines({old: COMPLETE, new: FAILED}) == [f"failed: llama/float32-sdpa@5.x: {TEXT}"]


def test_a_failure_of_every_stack_is_said_once():
    outcomes = dict.fromkeys(cells("4.48", "4.57", "5.2", "5.x"), FAILED)
    assert lines(outcomes) == [f"failed in all 4 environments: llama/float32-sdpa: {TEXT}"]


def test_so_is_one_of_every_variant_and_stack():
    stacks = ("4.46", "4.48", "4.53", "4.57", "5.0", "5.2", "5.x")
    outcomes = dict.fromkeys(cells(*stacks, dtypes=("float32", "bfloat16", "float16")), FAILED)
    assert len(outcomes) == 21
    assert lines(outcomes) == [f"failed in all 7 environments and 3 variants: llama: {TEXT}"]


def test_a_failure_of_some_stacks_names_them():
    outcomes = dict.fromkeys(cells("4.48", "4.57", "5.x"), FAILED)
    outcomes[cells("5.x")[0]] = COMPLETE
    assert lines(outcomes) == [f"failed in 4.48, 4.57: llama/float32-sdpa: {TEXT}"]


def test_a_failure_of_some_variants_names_the_cells():
    outcomes = dict.fromkeys(cells("4.48", "5.x", dtypes=("float32", "bfloat16")), FAILED)
    outcomes[cells("4.48")[0]] = COMPLETE
    (line,) = lines(outcomes)
    assert line == f"failed in 3 cells: llama: float32-sdpa@5.x; bfloat16-sdpa@4.48,5.x: {TEXT}"


def test_the_only_stack_of_a_run_is_not_all_stacks():
    outcomes = dict.fromkeys(cells("5.x", dtypes=("float32", "bfloat16")), FAILED)
    (line,) = lines(outcomes)
    assert line == f"failed in 2 cells: llama: float32-sdpa@5.x; bfloat16-sdpa@5.x: {TEXT}"


def test_other_words_are_another_failure():
    old, new = cells("4.48", "5.x")
    failures = lines({old: FAILED, new: ("failed", "load: KeyError: 'other'")})
    assert len(failures) == 2


def test_what_goes_on_and_what_did_not_finish_are_not_called_failed():
    first, second, third = cells("4.48", "4.57", "5.x")
    failures = lines(
        {
            first: ("complete", "greedy short: IndexError: list index out of range"),
            second: ("unfinished", "greedy long: no progress for 120 s"),
            third: ("unfinished", ""),
        }
    )
    assert failures == [
        "failed in part: llama/float32-sdpa@4.48: greedy short: IndexError: list index out of range",
        "not finished: llama/float32-sdpa@4.57: greedy long: no progress for 120 s",
        "not finished: llama/float32-sdpa@5.x",
    ]
