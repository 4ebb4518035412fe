"""The lines of samebits record and verify."""

from samebits.records.verification import (
    Kept,
    Mismatch,
    PackageChange,
    VerificationFile,
    Verified,
)
from samebits.terminal.gate import change_lines, model_lines, packages_text, verified_lines
from tests.support.locks import environment, machine, recorded

NAME = "tiny/float32-default"
FIRST = Mismatch(signal="logits", name="short", kind="differs")


def file(*models, exit_code=0):
    return VerificationFile(
        lock="samebits.lock",
        environment=environment(),
        machine=machine(),
        models=models,
        seconds=1.0,
        exit_code=exit_code,
    )


def test_bits_that_are_kept():
    lines = verified_lines(file(Verified(model=NAME, verdict=Kept.IDENTICAL, n_tensors=1234)))
    assert lines == [
        "samebits.lock against transformers 4.57.6, torch 2.13.0, Python 3.11.7",
        f"{NAME}: identical: 1,234 hashes",
        "1 model: 1 identical. The bits are kept.",
    ]


def test_a_changed_file_that_no_hash_shows_is_named():
    """As a tokenizer.json: the recorded bits begin behind it."""
    model = Verified(model=NAME, verdict=Kept.IDENTICAL, n_tensors=1, files=("tokenizer.json",))
    assert list(model_lines(model)) == [
        f"{NAME}: identical: 1 hash",
        "  changed files of the checkpoint, which no recorded hash shows: tokenizer.json",
    ]


def test_a_phase_that_raises_as_recorded_is_named_beside_bits_that_are_kept():
    raised = {"greedy short": "ValueError"}
    model = Verified(model=NAME, verdict=Kept.IDENTICAL, n_tensors=1, raised=raised)
    assert list(model_lines(model)) == [
        f"{NAME}: identical: 1 hash",
        "  greedy short: nothing was compared, as it raises ValueError as it did in the record",
    ]


def test_every_fact_of_a_difference_has_a_line():
    model = Verified(
        model=NAME,
        verdict=Kept.DIVERGED,
        n_tensors=24,
        n_differ=12,
        first=FIRST,
        difference="logits: prompt short: max abs 1.8",
        packages=(PackageChange(name="transformers", recorded="4.57.6", current="5.2.0"),),
        files=("modeling.py",),
        other_machine=True,
        command="samebits check tiny --from 4.57.6 --to 5.2.0",
    )
    assert list(model_lines(model)) == [
        f"{NAME}: diverged",
        "  differs: logits: prompt short: max abs 1.8",
        "  first recorded hash that differs: logits short, one of 12 of 24",
        "  a behaviour change, or different stored numbers",
        "  packages: transformers 4.57.6 → 5.2.0",
        "  changed files of the checkpoint: modeling.py",
        "  the record is another machine's",
        "  in full: samebits check tiny --from 4.57.6 --to 5.2.0",
    ]


def test_hostile_names_are_made_visible():
    model = Verified(model=NAME, verdict=Kept.FAILED, reason="a\x1b[31m\nb")
    text = "\n".join(verified_lines(file(model, exit_code=1)))
    assert "\x1b" not in text
    assert text.splitlines()[-1].endswith("The bits are not kept (exit code 1).")


def test_many_packages_are_cut():
    changes = [PackageChange(name=f"p{n}", recorded=None, current="1") for n in range(6)]
    text = packages_text(changes)
    assert text == "p0 none → 1, p1 none → 1, p2 none → 1, p3 none → 1 and 2 more"


def test_what_an_update_does_to_an_entry():
    before = recorded()
    moved = recorded(signals={"logits": {"short": "00000000000000bb"}})
    elsewhere = recorded(machine="0" * 8)
    assert list(change_lines(NAME, None, before)) == [f"+ {NAME}: 1 hash of logits"]
    assert list(change_lines(NAME, before, None)) == [
        f"- {NAME}: removed, as its folder is not there"
    ]
    assert list(change_lines(NAME, before, before)) == [f"= {NAME}: the same 1 hash"]
    assert list(change_lines(NAME, before, moved)) == [f"~ {NAME}: logits 1 of 1 (first short)"]
    assert list(change_lines(NAME, before, elsewhere)) == [
        f"~ {NAME}: the same 1 hash; other machine"
    ]
    gone = recorded(signals={})
    assert list(change_lines(NAME, before, gone)) == [f"~ {NAME}: logits 1 of 1 (first short)"]
    raising = recorded(raised={"greedy short": "AttributeError"})
    line = "  greedy short: no hashes, as it raises AttributeError; the lock keeps that it does"
    assert list(change_lines(NAME, None, raising)) == [f"+ {NAME}: 1 hash of logits", line]
    assert list(change_lines(NAME, before, raising)) == [f"~ {NAME}: the same 1 hash; other raised"]
