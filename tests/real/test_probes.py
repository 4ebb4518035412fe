"""Probes of the user's over two real stacks: planted differences, clean twins, random numbers."""

import pytest

POOL = '''\
def pooling(model, inputs, torch):
    """Return the normalised mean of the last layer's output, prompt by prompt."""
    outputs = []
    hook = model.layers[-1].register_forward_hook(lambda *given: outputs.append(given[2]))
    for arguments in inputs.values():
        model(**arguments)
    hook.remove()
    means = [output.mean(1) for output in outputs]
    return {p: torch.nn.functional.normalize(m, dim=-1) for p, m in zip(inputs, means)}
'''
NEW = "import transformers\nNEW = int(transformers.__version__.split('.')[0]) >= 5\n"
FILES = {
    "pool": POOL,
    "noise": "def draw(torch):\n    return {'numbers': torch.rand(3), 'sound': 1}\n",
    "release": NEW + "def version():\n    return transformers.__version__\n",
    "order": NEW
    + "def total(model):\n"
    + "    columns = list(model.embed.weight.T)\n"
    + "    return sum(reversed(columns) if NEW else columns)\n",
    "other": NEW + "def scaled(model):\n    return model.embed.weight * (1.0001 if NEW else 1)\n",
    "falls": NEW
    + "def fall(model):\n    if NEW:\n        raise ValueError('planted')\n    return 1\n",
    "breaks": "def spoil(model, torch):\n"
    "    model.embed.weight.data.zero_()\n    model.config.defect = 'first layer'\n"
    "    torch.set_default_dtype(torch.float64)\n    return 1\n",
    "dies": "import os\ndef die():\n    os._exit(3)\n    return 1\n",
}
"""``order`` adds tensors: torch's own sums of a row are kept in a wider float."""
MODELS = {
    "clean": ("none", "pool! noise! breaks! release dies"),
    "first-layer": ("first layer", "pool!"),
    "informed": ("first layer", "pool"),
    "rounded": ("none", "order!"),
    "other": ("none", "other!"),
    "known": ("none", "other!"),
    "told-of-other": ("none", "other"),
    "falls": ("none", "falls!"),
    "told-of-fall": ("none", "falls"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory, planted, run_in):
    folder = tmp_path_factory.mktemp("probes")
    for name, source in FILES.items():
        (folder / f"{name}.py").write_text(source)
    lines = [
        'environments: ["4.48", "5.x"]',
        "defaults: {greedy: 0, questions: [],",
        "  prompts: {short: {length: 9}, long: {length: 30}}}",
        "expected:",
        '  - {model: known, environment: "5.x", signal: [other], reason: planted}',
        "models:",
    ]
    for name, (defect, probes) in MODELS.items():
        entries = ", ".join(
            f"{{path: {p[:-1]}.py, verdict: true}}" if p.endswith("!") else f"{p}.py"
            for p in probes.split()
        )
        lines.append(
            f"  {name}: {{path: '{planted(defect)}', trust_remote_code: true, probes: [{entries}]}}"
        )
    (folder / "matrix.yaml").write_text("\n".join(lines))
    return run_in(folder)


@pytest.fixture(scope="module")
def cells(report):
    return {row.model: row.cells[-1] for row in report.rows}


def signal(cell, name):
    return next(s for s in (*cell.signals, *cell.informing) if s.signal == name)


def test_a_clean_model_is_identical_whatever_its_probes_do(cells):
    cell = cells["clean"]
    assert cell.verdict == "identical", cell.headline
    assert signal(cell, "pool").outcome == "identical"
    assert signal(cell, "pool").n_items == 2
    assert signal(cell, "breaks").outcome == "identical"


def test_random_numbers_are_not_repeatable(cells):
    (item,) = signal(cells["clean"], "noise").items
    assert (item.outcome, item.reason) == ("not compared", "not repeatable")


def test_a_process_that_ends_is_no_accusation_of_one_that_informs(cells):
    (item,) = signal(cells["clean"], "dies").items
    assert "Lost: it ended with exit code 3" in item.note


def test_one_that_informs_differs_beside_an_identical_cell(cells):
    (item,) = signal(cells["clean"], "release").items
    assert item.outcome == "differs"
    assert item.note.startswith('"4.48.')


def test_a_pooling_over_another_forward_diverges(cells):
    cell = cells["first-layer"]
    assert (cell.verdict, cell.first.signal) == ("diverged", "hidden_states")
    assert signal(cell, "pool").n_differ == 2
    steps = [step for step in cell.ladder.steps if step.signal == "pool"]
    assert {(step.what, step.kind) for step in steps} == {
        ("pooling.short", "diverged"),
        ("pooling.long", "diverged"),
    }


def test_the_ladder_judges_those_that_inform_apart(cells):
    cell = cells["informed"]
    assert cell.verdict == "diverged"
    assert not [step for step in cell.ladder.steps if step.signal == "pool"]
    assert {step.kind for step in cell.informing_steps} == {"diverged"}
    alone = cells["told-of-other"]
    assert (alone.verdict, alone.ladder) == ("identical", None)
    assert [(s.what, s.kind) for s in alone.informing_steps] == [("scaled", "diverged")]


def test_another_order_of_a_sum_is_rounding(cells):
    cell = cells["rounded"]
    assert (cell.verdict, cell.first.signal) == ("rounding", "order")
    (step,) = [step for step in cell.ladder.steps if step.signal == "order"]
    assert step.kind == "rounding"


def test_one_that_counts_makes_the_verdict_and_can_be_expected(cells):
    assert (cells["other"].verdict, cells["other"].first.signal) == ("diverged", "other")
    assert cells["known"].verdict == "expected"


def test_an_exception_of_one_release_counts_only_if_the_probe_does(cells, report):
    cell = cells["falls"]
    assert cell.verdict == "failed"
    assert cell.headline == "failed in phase probe falls.fall: ValueError: planted"
    assert cell.rest == "identical"
    informed = cells["told-of-fall"]
    assert informed.verdict == "identical"
    assert (
        "raised in the candidate: ValueError: planted (falls.py:5)"
        in signal(informed, "falls").items[0].note
    )
