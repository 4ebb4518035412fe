"""Costs of jobs: how they are merged and estimated, and damaged files."""

import json

import pytest

from samebits.stacks import costs
from samebits.stacks.costs import Cost, Costs, Spending
from samebits_wire.seal import sealed


def of(**seconds):
    return {kind: Cost(jobs=2, seconds=taken, cpu=taken) for kind, taken in seconds.items()}


KNOWN = Costs(
    new=4,
    phases={"comparing": 8.0, "findings": 4.0, "capsules": 60.0, "cells": 50.0},
    stretch=1.5,
    of={
        "llama/float32-sdpa@4.48": of(cell=10.0),
        "llama/float32-sdpa@5.x": of(
            cell=20.0,
            ladder=6.0,
            trace=2.0,
            graft=4.0,
            **{"crossings.save": 3.0, "crossings.load": 5.0},
        ),
        "gpt2/float32-sdpa@4.48": of(cell=4.0),
    },
)


def test_the_jobs_of_the_cells_are_shared_by_the_slots():
    estimate = costs.estimate(KNOWN, ["llama/float32-sdpa@5.x", "gpt2/float32-sdpa@4.48"], 2)
    assert estimate.phases == {
        "cells": 24.0 / 2 * 1.5,
        "crossings": 8.0 / 2 * 1.5,
        "float64 check": 6.0 / 2 * 1.5,
        "causes": 2.0 / 2 * 1.5,
        "grafts": 4.0 / 2 * 1.5,
        "comparing": 4.0,  # two of the four cells that this took 8 s for
        "findings": 2.0,
        "capsules": 30.0,
    }
    assert estimate.weights == {"llama/float32-sdpa@5.x": 20.0, "gpt2/float32-sdpa@4.48": 4.0}
    assert estimate.seconds == pytest.approx(sum(estimate.phases.values()))


def test_a_cell_without_costs_is_taken_for_an_average_one():
    new = "llama/bfloat16-sdpa@5.x"
    assert costs.estimate(KNOWN, [new], 1).weights[new] == 15.0  # of its model
    new = "mamba/float32-sdpa@5.x"
    assert costs.estimate(KNOWN, [new], 1).weights[new] == pytest.approx(34.0 / 3)  # of all


def test_capsules_are_few_however_many_cells_are_new():
    estimate = costs.estimate(KNOWN, [f"llama/float32-sdpa@{i}" for i in range(40)], 1)
    assert estimate.phases["capsules"] == 60.0
    assert estimate.phases["comparing"] == 80.0


@pytest.mark.parametrize("known", [None, Costs(), Costs(new=4)])
def test_without_costs_there_is_no_estimate(known):
    assert costs.estimate(known, ["llama/float32-sdpa@4.48"], 2) is None


def test_nothing_to_run_needs_no_estimate():
    assert costs.estimate(KNOWN, [], 2) is None


SPENT = [
    Spending("a/float32-sdpa@5.x", "cell", 10.0, 9.0),
    Spending("a/float32-sdpa@5.x", "cell", 12.0, 11.0),
    Spending("a/float32-sdpa@5.x", "ladder", 3.0, 3.0),
    Spending("", "build", 50.0, 50.0),
]


def test_what_the_jobs_of_a_run_took_is_added_up_by_cell_and_kind():
    merged = costs.merged(None, SPENT, {"cells": 14.0}, 2, new=1, finished=True)
    assert merged.of == {
        "a/float32-sdpa@5.x": {
            "cell": Cost(jobs=2, seconds=22.0, cpu=20.0),
            "ladder": Cost(jobs=1, seconds=3.0, cpu=3.0),
        }
    }
    assert (merged.new, merged.phases) == (1, {"cells": 14.0})
    assert merged.stretch == pytest.approx(14.0 * 2 / 25.0, abs=0.01)


def test_what_only_earlier_runs_know_stays_and_the_newest_is_last():
    merged = costs.merged(KNOWN, SPENT, {}, 2, new=1, finished=True)
    assert list(merged.of) == [*KNOWN.of, "a/float32-sdpa@5.x"]
    again = [Spending("llama/float32-sdpa@4.48", "cell", 1.0, 1.0)]
    merged = costs.merged(merged, again, {}, 2, new=1, finished=True)
    assert list(merged.of)[-1] == "llama/float32-sdpa@4.48"
    assert merged.of["llama/float32-sdpa@4.48"]["cell"].seconds == 1.0
    assert merged.stretch >= 1.0


def test_a_run_that_ran_nothing_changes_nothing():
    assert costs.merged(KNOWN, [], {"comparing": 0.1}, 2, new=0, finished=True) == KNOWN


def test_of_an_interrupted_run_the_costs_of_its_jobs_stay():
    merged = costs.merged(KNOWN, SPENT, {"cells": 9.0}, 2, new=3, finished=False)
    assert merged.model_copy(update={"of": KNOWN.of}) == KNOWN
    assert "a/float32-sdpa@5.x" in merged.of


def test_the_file_does_not_grow_for_ever(monkeypatch):
    monkeypatch.setattr(costs, "MAX_CELLS", 3)
    merged = costs.merged(KNOWN, SPENT, {}, 2, new=1, finished=True)
    assert list(merged.of) == [*list(KNOWN.of)[1:], "a/float32-sdpa@5.x"]


def test_costs_of_another_level_are_no_estimate():
    deep = costs.merged(KNOWN, SPENT, {}, 2, new=1, finished=True, level="deep")
    cells = {job.cell for job in SPENT if job.cell}
    assert cells
    assert {cost.level for cell in cells for cost in deep.of[cell].values()} >= {"deep"}
    assert costs.estimate(KNOWN, list(cells), 2, "deep") is None
    assert costs.estimate(deep, list(cells), 2, "deep") is not None


def test_what_is_written_is_read(tmp_path):
    costs.write(tmp_path, KNOWN)
    assert costs.read(tmp_path) == KNOWN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        sealed('{"format": "samebits-costs", "format_version": 1}'),
        sealed('{"format": "samebits-costs", "of": {"a": {"cell": {"jobs": 0}}}}'),
        sealed('{"stretch": "NaN"}'),
        '{"format": "samebits-costs"}',  # no seal
    ],
)
def test_a_file_that_is_damaged_is_none(tmp_path, text):
    (tmp_path / costs.FILE).write_text(text)
    assert costs.read(tmp_path) is None


def test_neither_is_one_of_which_a_bit_has_changed(tmp_path):
    costs.write(tmp_path, KNOWN)
    path = tmp_path / costs.FILE
    content = bytearray(path.read_bytes())
    content[content.index(b"50.0") + 1] ^= 1
    json.loads(content)
    path.write_bytes(content)
    assert costs.read(tmp_path) is None


def test_nor_is_a_folder_of_that_name(tmp_path):
    (tmp_path / costs.FILE).mkdir()
    assert costs.read(tmp_path) is None
    assert costs.read(tmp_path / "nowhere") is None
