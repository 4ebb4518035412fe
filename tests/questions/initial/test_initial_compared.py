"""First weights of new models on two sides: what is accused, what a sample may miss, and what is worth nobody's time."""

import math

import pytest

from samebits.questions.initial.compare import differences, stated
from samebits.questions.initial.records import FirstWeights, InitialSignal
from tests.support.asked import findings_of, report_of

LINE = {"function": "M._init_weights", "place": "modeling_m.py:9", "code": "init.normal_(w)"}
MADE_BY = {"function": "Block.__init__", "place": "modeling_m.py:3", "code": "nn.Linear(4, 4)"}
DRAWN = {
    "n_values": 4096,
    "std": 0.02,
    "least": -0.07,
    "largest": 0.07,
    "kurtosis": 3.0,
    "writer": LINE,
}
ONES = {"is_fixed": True, "n_values": 1, "mean": 1.0, "least": 1.0, "largest": 1.0}
TABLE = {
    "is_fixed": True,
    "n_values": 8,
    "mean": 1.3,
    "std": 0.7,
    "least": 0.0,
    "largest": 2.0,
    "kurtosis": 2.0,
}


def signal(weights, made="from_config", model_class="M", **fields):
    tensors = weights if "w" in weights else {"w": weights}
    new = {made: {"model_class": model_class, "tensors": tensors}}
    return {"scales": {"initializer_range": 0.02}, "made": new, **fields}


def kinds(before, after):
    sides = (InitialSignal.model_validate(signal(side)) for side in (before, after))
    return [each.kind for each in differences(*sides)]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (DRAWN, DRAWN | {"std": 0.03}, "scale"),
        (DRAWN, DRAWN | {"std": 1.0}, "scale"),
        (DRAWN, ONES, "drawn"),
        (ONES, ONES | {"mean": 0.0, "least": 0.0, "largest": 0.0}, "constant"),
        (TABLE, ONES, "constant"),
        (TABLE, TABLE | {"largest": 2.1}, "constant"),
        (DRAWN, DRAWN | {"mean": 0.01}, "centre"),
        (DRAWN, DRAWN | {"zero_rows": 1}, "padding"),
        # clean twins: the same, what rounds, and another sample
        (DRAWN, DRAWN, None),
        (ONES, ONES, None),
        (TABLE, TABLE | {"largest": 2.0001}, None),
        (DRAWN, DRAWN | {"std": 0.0203, "mean": 0.0004, "least": -0.08}, None),
        # far beyond a sample of 4096, and worth nobody's time
        (DRAWN, DRAWN | {"std": 0.0228}, None),
        # a head of 32 values, which may be that far off by chance
        (DRAWN | {"n_values": 32}, DRAWN | {"n_values": 32, "std": 0.03}, None),
        (DRAWN | {"n_values": 32}, DRAWN | {"n_values": 32, "std": 0.3}, "scale"),
        # a sample with heavy tails knows its scale less well
        (DRAWN | {"kurtosis": 900.0}, DRAWN | {"kurtosis": 900.0, "std": 0.03}, None),
        # a distribution of the same scale
        (DRAWN, DRAWN | {"kurtosis": 1.8}, None),
        # SB321
        (DRAWN, DRAWN | {"std": 3.0, "n_unwritten": 5}, None),
        (DRAWN, DRAWN | {"std": 3.0, "repeats": False}, None),
        (DRAWN, ONES | {"is_finite": False}, None),
    ],
)
def test_what_starts_otherwise_is_accused(before, after, kind):
    expected = [kind] if kind else []
    assert kinds(before, after) == expected
    assert kinds(after, before) == expected
    found = findings_of("initial", *map(record, (before, after)))
    assert ("SB320" in found) == bool(kind)


def record(weights, **more):
    return InitialSignal.model_validate(signal(weights, **more))


def test_a_sample_of_the_same_distribution_is_hardly_ever_accused():
    """Six standard errors of both sides: a tensor of 64 values may be off by half, one of 65536 by 15 percent."""
    for n, least in ((64, 1.6), (65536, 1.14)):
        sample = DRAWN | {"n_values": n}
        assert kinds(sample, sample | {"std": 0.02 * least}) == []
        assert math.log(least) > 3 / math.sqrt(n)


def test_another_class_or_another_name_is_not_compared():
    for other in (
        record(DRAWN | {"std": 1.0}, model_class="N"),
        record(DRAWN | {"std": 1.0}, made="AutoModelForCTC.from_pretrained"),
        record({"w": DRAWN, "v": DRAWN | {"std": 1.0}}),
    ):
        assert not list(differences(record(DRAWN), other))


def test_tensors_of_one_change_share_a_line_and_those_of_another_one_do_not():
    other = DRAWN | {"writer": LINE | {"place": "modeling_m.py:20"}}
    before = {"w": DRAWN, "v": DRAWN | {"std": 0.0201}, "other": other}
    after = {name: side | {"std": 0.3, "writer": MADE_BY} for name, side in before.items()}
    found = findings_of("initial", record(before), record(after))["SB320"]
    assert found.where == "M, from_config"
    assert found.evidence == (
        "w, v",
        "4.48: drawn, std 0.02, which is config.initializer_range; M._init_weights, modeling_m.py:9: init.normal_(w)",
        "5.x: drawn, std 0.3; Block.__init__, modeling_m.py:3: nn.Linear(4, 4)",
        "other",
        "4.48: drawn, std 0.02, which is config.initializer_range; M._init_weights, modeling_m.py:20: init.normal_(w)",
        "5.x: drawn, std 0.3; Block.__init__, modeling_m.py:3: nn.Linear(4, 4)",
    )


def test_the_evidence_has_constants_tables_centres_and_rows_of_zeros():
    before = {"w": ONES, "table": TABLE, "pad": DRAWN | {"zero_rows": 1}, "mean": DRAWN}
    uniform = DRAWN | {"kurtosis": 1.8, "writer": None}
    after = {
        "w": uniform,
        "table": ONES,
        "pad": DRAWN,
        "mean": DRAWN | {"mean": 0.5},
    }
    said = " ".join(findings_of("initial", record(before), record(after))["SB320"].evidence)
    for part in (
        "4.48: all 1 ",
        "5.x: drawn uniformly, std 0.02",
        "0 to 2, the same under each seed",
        "1 row of zeros",
        "around 0.5",
    ):
        assert part in said


def test_a_long_list_is_cut():
    before = {
        f"w{'v' * i}": DRAWN | {"writer": LINE | {"place": f"m.py:{i}"}} for i in range(9)
    } | {"w": DRAWN}
    after = {name: side | {"std": 0.5} for name, side in before.items()}
    evidence = findings_of("initial", record(before), record(after))["SB320"].evidence
    assert evidence[-1] == "and 3 more changes"


def test_a_field_of_the_config_states_the_scale_that_it_has():
    side = record(DRAWN)
    assert stated(side, FirstWeights.model_validate(DRAWN)) == "initializer_range"
    assert not stated(side, FirstWeights.model_validate(DRAWN | {"std": 0.03}))
    assert not stated(side, FirstWeights.model_validate(ONES))


@pytest.mark.parametrize(
    ("planted", "evidence"),
    [
        ({"n_unwritten": 7}, "w: 7 elements of uninitialised memory"),
        ({"repeats": False}, "w: other values in a second model of the same seed"),
    ],
)
def test_values_that_no_seed_decides_are_named_on_the_side_that_has_them(planted, evidence):
    found = findings_of("initial", record(DRAWN), record(DRAWN | planted))
    assert found.keys() == {"SB321"}
    assert found["SB321"].evidence[0].startswith(evidence)
    assert not findings_of("initial", record(DRAWN | planted), record(DRAWN))


def test_a_report_keeps_no_tensors_and_an_exception_is_named():
    report = report_of("initial", record(DRAWN), record(DRAWN))
    (answer,) = (row.answers["initial"] for row in report.rows)
    assert not [new for side in answer.stacks.values() for new in side.made.values() if new.tensors]
    broken = InitialSignal.model_validate(
        {"made": {"from_config": {"model_class": "M", "raised": "KeyError: 'planted'"}}}
    )
    assert findings_of("initial", record(DRAWN), broken).keys() & {"SB931", "SB932"}
