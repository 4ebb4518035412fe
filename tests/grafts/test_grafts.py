"""Judgement of grafts: every claim follows from the sets that were run, for any oracle."""

import importlib.util
from itertools import chain, combinations
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.grafts import judge
from samebits.records.graft import DonorFile, GraftFile, GraftSuspect, Try
from tests.support.builders import cell_id

PATH = Path(__file__).parents[2] / "probes" / "samebits_probe" / "graft" / "search.py"
SPEC = importlib.util.spec_from_file_location("graft_search", PATH)
search = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(search)

KINDS = ("config", "buffer", "attribute", "rope", "mask", "call")
DONOR = DonorFile(cell=cell_id(), prompt="short", what="forward", seconds=0.5)


def subsets(names):
    return map(
        frozenset, chain.from_iterable(combinations(names, n) for n in range(len(names) + 1))
    )


def suspects(kinds):
    return [GraftSuspect(kind=kind, name=f"s{i}", what="") for i, kind in enumerate(kinds)]


def searched(kinds, restores, budget=60):
    """Return the graft and the search for an oracle, which the probe's search runs."""
    all_suspects = suspects(kinds)
    search_run = search.Search(restores, budget)
    search_run.run(search.grouped([(s.kind, s.name) for s in all_suspects]))
    names = [s.name for s in all_suspects]
    tried = [Try(suspects=(), same=0, of=4, first="logits", max_abs=1.0)]
    for chosen, restored in search_run.tried.items():
        ordered = tuple(name for name in names if name in chosen)
        same = 4 if restored else 1
        tried.append(Try(suspects=ordered, same=same, of=4, max_abs=0.0 if restored else 0.5))
    patient = GraftFile(
        cell=cell_id("5.x"),
        prompt="short",
        what="forward",
        suspects=tuple(all_suspects),
        tried=tuple(tried),
        spent=search_run.spent,
        seconds=1.5,
    )
    return judge.graft(DONOR, patient), search_run


def true_of(graft, restores, names):
    """Check a claim against the oracle's answers for all sets."""
    chosen = frozenset(graft.smallest)
    if graft.proof == "none":
        assert not chosen or restores(chosen)
        return
    assert restores(chosen)
    if graft.proof == "irreducible":
        assert not any(restores(chosen - {name}) for name in chosen)
    else:
        assert not any(restores(s) for s in subsets(names) if s and len(s) < len(chosen))
    assert all(restores(frozenset({name})) for name in graft.others)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=12).map(sorted),
    st.data(),
)
def test_no_claim_is_ever_more_than_what_a_monotone_oracle_says(kinds, data):
    names = [s.name for s in suspects(kinds)]
    needed = [
        frozenset(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4)))
        for _ in range(data.draw(st.integers(0, 3)))
    ]

    def restores(chosen):
        return any(need <= chosen for need in needed)

    graft, seeking = searched(kinds, restores)
    true_of(graft, restores, names)
    assert len(seeking.tried) <= 60
    if needed and not seeking.spent:
        assert graft.proof != "none"
        assert not any(restores(frozenset(graft.smallest) - {n}) for n in graft.smallest)


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 6), st.data())
def test_no_claim_is_ever_more_than_what_any_oracle_says(n, data):
    names = [f"s{i}" for i in range(n)]
    answers = {s: data.draw(st.booleans()) if s else False for s in subsets(names)}
    graft, _ = searched(["buffer"] * n, answers.__getitem__, data.draw(st.integers(1, 80)))
    true_of(graft, answers.__getitem__, names)


def test_one_of_few_is_found_with_every_other_one_tried_alone():
    graft, seeking = searched(("buffer", "rope", "mask"), lambda s: "s1" in s)
    assert graft.smallest == ("s1",)
    assert graft.proof == "alone"
    assert len(seeking.tried) == 3
    assert graft.headline.startswith("swapping only s1 restores bit equality in the forward of")
    assert "4 of 4" in graft.headline


def test_of_two_that_restore_alone_the_one_nearest_the_root_is_named():
    graft, _ = searched(("buffer", "rope", "mask"), lambda s: s & {"s0", "s1"})
    assert graft.smallest == ("s0",)
    assert graft.others == ("s1",)


def test_two_causes_need_two_suspects():
    graft, _ = searched(("buffer", "rope", "mask", "call"), lambda s: {"s0", "s3"} <= s)
    assert graft.smallest == ("s0", "s3")
    assert graft.proof == "smallest"
    assert "swapping only s0 and s3 restores" in graft.headline


def test_two_that_only_run_together_are_found_and_one_that_never_runs_spoils_nothing():
    answers = {frozenset({"s0"}): None, frozenset({"s1"}): None, frozenset({"s0", "s1"}): True}
    graft, _ = searched(("mask", "cache", "call"), lambda s: answers.get(s, False))
    assert graft.smallest == ("s0", "s1")
    needed, broken = {"s0", "s1", "s3"}, "s2"
    oracle = lambda s: None if broken in s else needed <= s
    graft, _ = searched(("config", "buffer", "mask", "cache"), oracle)
    assert graft.smallest == ("s0", "s1", "s3")
    assert graft.proof == "smallest"


def test_a_suspect_that_breaks_what_another_one_mends_does_not_hide_it():
    graft, _ = searched(("buffer", "rope", "mask"), lambda s: {"s0", "s2"} == s)
    assert graft.smallest == ("s0", "s2")
    assert graft.proof == "smallest"


def test_many_of_one_kind_are_tried_together_and_then_taken_apart():
    graft, seeking = searched(("buffer",) * 30, lambda s: {"s7", "s23"} <= s)
    assert graft.smallest == ("s7", "s23")
    assert graft.proof in {"smallest", "irreducible"}
    assert len(seeking.tried) <= 60


def test_nothing_that_restores_is_said_plainly_with_how_far_it_brings_it():
    graft, _ = searched(("buffer", "rope"), lambda s: False)
    assert graft.smallest == ()
    assert graft.proof == "none"
    assert "no set of the 2 candidate causes restores" in graft.headline
    assert "with s0 the logits differ by 0.5 instead of 1" in graft.headline
    assert "not every set" not in graft.headline
    assert "code of the release" in graft.headline


def test_nothing_to_swap_points_at_the_code():
    graft, seeking = searched((), lambda s: True)
    assert not seeking.tried
    assert graft.headline.startswith("nothing that can be swapped differs")


def test_a_set_that_raised_restores_nothing():
    assert not Try(suspects=("a",), same=4, of=4, error="RuntimeError: no").restores
    assert not Try(suspects=("a",), same=0, of=0).restores


def test_a_spent_budget_is_said():
    graft, seeking = searched(("buffer", "rope", "mask", "call"), lambda s: False, budget=5)
    assert seeking.spent
    assert "not every set was tried" in graft.headline


def refusing(*tried, names=("buffer", "rope")):
    all_suspects = suspects(names)
    baseline = Try(suspects=(), same=0, of=4, first="logits", max_abs=1.0)
    return judge.graft(
        DONOR,
        GraftFile(
            cell=cell_id("5.x"),
            prompt="short",
            what="decode",
            suspects=tuple(all_suspects),
            tried=(baseline, *tried),
        ),
    )


def test_what_could_not_be_put_in_is_no_evidence_and_is_said():
    unfit = Try(suspects=("s0",), same=0, of=4, error="Unfit: another shape")
    nearer = Try(suspects=("s1",), same=2, of=4, first="short step 2", max_abs=0.25)
    graft = refusing(unfit, nearer)
    assert "s0 could not be swapped" in graft.headline
    assert "with s1 the logits differ by 0.25 instead of 1" in graft.headline
    only_unfit = refusing(unfit, names=("buffer",))
    assert only_unfit.headline.startswith(
        "what differs in the decode of prompt short cannot be swapped"
    )
    assert "another shape" in only_unfit.headline
    assert only_unfit.proof == "none"


def test_nothing_to_swap_never_says_that_the_code_is_all_that_is_left():
    graft, _ = searched((), lambda s: True)
    assert graft.headline.endswith(
        "the difference is in the code, or in something that is not swapped"
    )


def test_no_time_for_a_first_try_is_said_and_ends_no_run():
    graft = refusing()
    assert "time ran out before the first try" in graft.headline
    assert graft.proof == "none"


def test_a_run_that_was_lost_is_no_proof_that_its_set_does_not_restore():
    lost = Try(suspects=("s0",), same=0, of=4, error="it took more than 60 s", lost=True)
    raised = Try(suspects=("s0",), same=0, of=4, error="Unfit: another shape")
    fails = Try(suspects=("s1",), same=1, of=4)
    pair = Try(suspects=("s0", "s1"), same=4, of=4)
    assert refusing(raised, fails, pair).proof == "smallest"
    graft = refusing(lost, fails, pair)
    assert graft.proof == "none"
    assert "not every smaller set was tried" in graft.headline


def test_all_of_them_are_all_suspects_and_not_only_those_that_ran():
    singles = [Try(suspects=s, same=1, of=4, max_abs=0.9) for s in (("s0",), ("s1",))]
    pair = Try(suspects=("s0", "s1"), same=1, of=4, max_abs=0.1)
    unfit = Try(suspects=("s2",), same=0, of=4, error="Unfit: another shape")
    assert "with all of them" in refusing(*singles, pair).headline
    headline = refusing(*singles, pair, unfit, names=("buffer", "rope", "mask")).headline
    assert "with s0 and s1 the logits differ by 0.1" in headline


def test_nearer_is_denied_only_where_every_distance_is_known():
    farther = Try(suspects=("s0",), same=1, of=4, max_abs=2.0)
    unknown = Try(suspects=("s1",), same=1, of=4, max_abs=None)
    measured = Try(suspects=("s1",), same=1, of=4, max_abs=3.0)
    assert "or brings the logits closer" in refusing(farther, measured).headline
    assert "nearer" not in refusing(farther, unknown).headline
