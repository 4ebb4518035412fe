"""Crossings with fake processes: which jobs run, what is cached, and the effect of a crash."""

import os
import time
from pathlib import Path

import pytest

from samebits.matrix.plan import Selection, plan
from samebits.matrix.spec import Matrix
from samebits.questions.crossings.ask import rows_to_cross
from samebits.questions.crossings.records import SAVE
from tests.support.builders import model_spec, stack_spec
from tests.support.crossings_bench import STACKS, run
from tests.support.fakes import Crossed


def failure(type="RuntimeError", phase="save", message="it broke"):
    return {"phase": phase, "type": type, "message": message, "traceback": "trace"}


ALL = [("load", "4.48"), ("load", "5.0"), ("save", "4.48"), ("save", "5.0")]


def outcomes(report):
    return {(c.saver, c.loader): c.outcome for c in report.crossings}


def pair(report, saver, loader):
    return next(c for c in report.crossings if (c.saver, c.loader) == (saver, loader))


def files(root):
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


# what is planned


def planned(*models, select=None):
    matrix = Matrix(
        path="m", stacks=tuple(map(stack_spec, STACKS)), reference="4.48", models=models
    )
    rows = rows_to_cross(matrix, plan(matrix, Selection.parse(**(select or {}))))
    return [(row.model, str(row.variant)) for row in rows]


def test_the_first_variant_on_cpu_crosses():
    two_dtypes = model_spec("a", dtypes=("float32", "bfloat16"), attention=("eager", "sdpa"))
    two_devices = model_spec("b", devices=("cuda", "cpu"))
    assert planned(two_dtypes, two_devices) == [("a", "float32-eager"), ("b", "float32-sdpa")]


def test_what_does_not_cross():
    assert planned(model_spec("a", save_load=False), model_spec("b", devices=("cuda",))) == []
    assert planned(model_spec("a"), select={"environments": "5.0"}) == []


# what is run


def test_each_stack_saves_once_and_loads_all_in_one_job(tmp_path):
    probes = Crossed()
    report = run(tmp_path, probes)
    assert list(outcomes(report)) == [
        ("4.48", "4.48"),
        ("4.48", "5.0"),
        ("5.0", "4.48"),
        ("5.0", "5.0"),
    ]
    assert set(outcomes(report).values()) == {"same bits"}
    assert probes.did() == ALL
    assert all(list(job["copies"]) == list(STACKS) for job in probes.jobs if "copies" in job)


def test_what_a_loader_says_reaches_the_report(tmp_path):
    lost = {"outcome": "differs", "config": ["rope_theta: 5.0 → 1.0"], "logits": "differs"}
    saves = {"5.0": {"outcome": "saved", "restored": ["modeling.py"]}}
    report = run(tmp_path, Crossed(saves, {("5.0", "4.48"): lost | {"logits_max_abs": 1.5}}))
    crossing = pair(report, "5.0", "4.48")
    assert crossing.is_loss
    assert crossing.config == ("rope_theta: 5.0 → 1.0",)
    assert crossing.logits_max_abs == 1.5
    assert crossing.restored == ("modeling.py",)
    assert [c.is_loss for c in report.crossings] == [False, False, True, False]


@pytest.mark.parametrize(
    ("saved", "outcome", "reason"),
    [
        ({"outcome": "failed", "failure": failure()}, "save failed", ""),
        ({"outcome": "absent", "reason": "no such model"}, "absent", "no such model"),
        ({"outcome": "skipped", "reason": "2 GiB"}, "not tried", "2 GiB"),
        (
            {"outcome": "not loaded", "failure": failure(phase="load")},
            "absent",
            "5.0 cannot load the original: RuntimeError: it broke",
        ),
    ],
)
def test_what_a_stack_did_not_save_is_said_of_every_loader_and_tried_by_none(
    tmp_path, saved, outcome, reason
):
    probes = Crossed({"5.0": saved})
    report = run(tmp_path, probes)
    for loader in STACKS:
        crossing = pair(report, "5.0", loader)
        assert (crossing.outcome, crossing.reason) == (outcome, reason)
        assert (crossing.failure is not None) == (outcome == "save failed")
        assert pair(report, "4.48", loader).outcome == "same bits"
    assert all(list(job["copies"]) == ["4.48"] for job in probes.jobs if "copies" in job)


def test_without_anything_saved_nothing_is_loaded(tmp_path):
    absent = {"outcome": "absent", "reason": "no such model"}
    probes = Crossed({"4.48": absent, "5.0": absent})
    assert set(outcomes(run(tmp_path, probes)).values()) == {"absent"}
    assert {kind for kind, _ in probes.did()} == {"save"}


# a made model in place of a large one

LARGE = {stack: {"outcome": "skipped", "reason": "2 GiB"} for stack in STACKS}
MADE = {"n_layers": 2, "hidden_size": 64, "n_parameters": 1000}


def test_a_made_model_is_saved_and_loaded_in_place_of_a_large_one(tmp_path):
    probes = Crossed(LARGE, makes={"4.48": {"outcome": "saved", "files": {"m": "1"}, "made": MADE}})
    report = run(tmp_path, probes)
    assert set(outcomes(report).values()) == {"same bits"}
    assert report.asked_of.n_parameters == 1000
    (maker,) = (job for job in probes.jobs if job.get("makes"))
    assert (maker["cell"]["stack"], maker["model"]["source"]) == ("4.48", "/c")
    sources = {job["model"]["source"] for job in probes.jobs if job["kind"] != SAVE.name}
    assert sources == {maker["out"]}, "the made model has inputs of its own"
    again = Crossed()
    assert run(tmp_path, again) == report
    assert again.did() == []


def test_the_next_stack_makes_a_model_that_the_oldest_does_not_know(tmp_path):
    makes = {"4.48": {"outcome": "absent", "reason": "no such model"}, "5.0": {"outcome": "saved"}}
    probes = Crossed(LARGE, makes=makes)
    assert set(outcomes(run(tmp_path, probes)).values()) == {"same bits"}
    assert [job["cell"]["stack"] for job in probes.jobs if job.get("makes")] == ["4.48", "5.0"]


def test_a_damaged_made_model_is_made_again(tmp_path):
    makes = {"4.48": {"outcome": "saved", "files": {"m": "1"}, "made": MADE}}
    first = Crossed(LARGE, makes=makes)
    report = run(tmp_path, first)
    (maker,) = (job for job in first.jobs if job.get("makes"))
    (Path(maker["out"]) / "m").write_text("2")
    again = Crossed(LARGE, makes=makes)
    assert run(tmp_path, again) == report
    assert [job["out"] for job in again.jobs if job.get("makes")] == [maker["out"]]


def test_without_a_made_model_nothing_is_tried_and_the_reason_says_both(tmp_path):
    none = {stack: {"outcome": "skipped", "reason": "it has no list"} for stack in STACKS}
    report = run(tmp_path, Crossed(LARGE, makes=none))
    assert report.asked_of is None
    (reason,) = {crossing.reason for crossing in report.crossings}
    assert reason == "2 GiB; no smaller model of its kind can be made: it has no list"
    assert set(outcomes(report).values()) == {"not tried"}


# what lies beside the models

TOKENIZER = {"tokenizer": {"outcome": "saved"}}


def beside(report):
    return {(part.saver, part.loader): part.outcome for part in report.parts}


def test_what_lies_beside_the_models_is_loaded_in_the_same_jobs(tmp_path):
    saves = {stack: {"outcome": "saved", "parts": TOKENIZER} for stack in STACKS}
    same = {"part": "tokenizer", "outcome": "same"}
    parts = {stack: [{"saver": saver, **same} for saver in STACKS] for stack in STACKS}
    probes = Crossed(saves, parts=parts)
    assert set(beside(run(tmp_path, probes)).values()) == {"same"}
    assert len(beside(run(tmp_path, probes))) == 4
    assert probes.did() == ALL


def test_names_of_the_files_of_a_whole_save_are_kept(tmp_path):
    """Those of a release whose tokenizer was not saved lack its files for that reason."""
    names = ("config.json", "model.safetensors", "modeling.py", "vocab.json")
    whole = {"outcome": "saved", "files": dict.fromkeys(names, ""), "parts": TOKENIZER}
    part = whole | {"parts": {"tokenizer": {"outcome": "failed", "failure": failure()}}}
    report = run(tmp_path, Crossed({"4.48": whole, "5.0": part}))
    assert report.files == {"4.48": ("config.json", "vocab.json")}


def test_a_tokenizer_is_loaded_whatever_became_of_the_model(tmp_path):
    lost = {"outcome": "absent", "reason": "no such model", "parts": TOKENIZER}
    parts = {stack: [{"saver": "5.0", "part": "tokenizer", "outcome": "same"}] for stack in STACKS}
    report = run(tmp_path, Crossed({"5.0": lost, "4.48": {"outcome": "absent"}}, parts=parts))
    assert set(outcomes(report).values()) == {"absent"}
    assert beside(report) == {("5.0", "4.48"): "same", ("5.0", "5.0"): "same"}


def test_the_tokenizer_of_a_large_model_is_its_own(tmp_path):
    large = {stack: answer | {"parts": TOKENIZER} for stack, answer in LARGE.items()}
    makes = {"4.48": {"outcome": "saved", "files": {"m": "1"}, "made": MADE}}
    parts = {
        stack: [{"saver": s, "part": "tokenizer", "outcome": "same"} for s in STACKS]
        for stack in STACKS
    }
    report = run(tmp_path, Crossed(large, makes=makes, parts=parts))
    assert set(outcomes(report).values()) == {"same bits"}
    assert set(beside(report).values()) == {"same"}
    assert len(report.parts) == 4


def test_a_crash_of_what_lies_beside_the_models_costs_no_model_and_is_not_kept(tmp_path):
    saves = {stack: {"outcome": "saved", "parts": TOKENIZER} for stack in STACKS}
    report = run(tmp_path, Crossed(saves, crashes={("5.0", "parts")}))
    assert set(outcomes(report).values()) == {"same bits"}
    assert beside(report)["4.48", "5.0"] == "not tried"
    again = Crossed(saves)
    run(tmp_path, again)
    assert again.did() == [("load", "5.0")]


# crashes


def test_a_crash_costs_one_pair(tmp_path):
    stacks = ("4.48", "5.0", "5.1")
    probes = Crossed(crashes={("5.1", "4.48"), ("5.1", "5.0")})
    report = run(tmp_path, probes, stacks=stacks)
    bad = {key for key, outcome in outcomes(report).items() if outcome != "same bits"}
    assert bad == {("4.48", "5.1"), ("5.0", "5.1")}
    crossing = pair(report, "5.0", "5.1")
    assert crossing.outcome == "load failed"
    assert "SIGSEGV" in crossing.failure.message


def test_a_crash_of_the_original_is_no_fault_of_a_saver(tmp_path):
    report = run(tmp_path, Crossed(crashes={("5.0", "original")}))
    crossing = pair(report, "4.48", "5.0")
    assert crossing.outcome == "not tried"
    assert not crossing.is_loss
    assert "5.0 wrote no result for the original" in crossing.reason
    assert "SIGSEGV" in crossing.reason
    assert pair(report, "5.0", "4.48").outcome == "same bits"


def test_a_saver_that_is_killed_fails_and_runs_again(tmp_path):
    report = run(tmp_path, Crossed({"5.0": None}))
    crossing = pair(report, "5.0", "4.48")
    assert crossing.outcome == "save failed"
    assert "SIGKILL" in crossing.failure.message
    again = Crossed()
    assert set(outcomes(run(tmp_path, again)).values()) == {"same bits"}
    assert ("save", "5.0") in again.did()
    assert ("save", "4.48") not in again.did()


# what is kept


def test_a_second_run_runs_nothing_and_says_the_same(tmp_path):
    lost = {"outcome": "forward failed", "failure": failure("TypeError", "forward")}
    first = run(tmp_path, Crossed(loads={("5.0", "4.48"): lost}))
    again = Crossed()
    assert run(tmp_path, again) == first
    assert again.jobs == []
    assert not [name for name in files(tmp_path) if ".tmp" in name]


@pytest.mark.parametrize(
    ("changed", "rerun"),
    [
        ({"digest": "other"}, ALL),
        ({"probed": "other"}, ALL),
        ({"locks": {"5.0": "torch==9"}}, [("load", "5.0"), ("save", "5.0")]),
    ],
)
def test_what_changes_runs_again(tmp_path, changed, rerun):
    run(tmp_path, Crossed())
    again = Crossed()
    run(tmp_path, again, **changed)
    assert again.did() == rerun


def test_loaders_run_again_if_a_saver_left_other_files(tmp_path):
    run(tmp_path, Crossed())
    saves = {"5.0": {"outcome": "saved", "files": {"config.json": "00"}}}
    again = Crossed(saves)
    run(tmp_path, again, locks={"5.0": "torch==9"})
    assert again.did() == [("load", "4.48"), ("load", "5.0"), ("save", "5.0")]


def test_a_failure_of_the_machine_is_not_kept(tmp_path):
    full = {"outcome": "failed", "failure": failure("OSError", message="No space left")}
    assert pair(run(tmp_path, Crossed({"5.0": full})), "5.0", "4.48").outcome == "save failed"
    memory = {"outcome": "load failed", "failure": failure("MemoryError", "load")}
    second = Crossed(loads={("4.48", "5.0"): memory})
    report = run(tmp_path, second)
    assert ("save", "5.0") in second.did()
    assert pair(report, "4.48", "5.0").outcome == "load failed"
    third = Crossed()
    assert set(outcomes(run(tmp_path, third)).values()) == {"same bits"}
    assert third.did() == [("load", "5.0")]


def test_a_failure_of_the_model_is_kept(tmp_path):
    shared = {"outcome": "failed", "failure": failure(message="shared tensors")}
    first = run(tmp_path, Crossed({"5.0": shared}))
    again = Crossed()
    assert run(tmp_path, again) == first
    assert again.jobs == []


def test_a_torn_file_is_no_answer(tmp_path):
    run(tmp_path, Crossed())
    for path in tmp_path.glob("crossings/llama/*/5.0/*.json"):
        path.write_text(path.read_text()[:-9])
    again = Crossed()
    run(tmp_path, again)
    assert again.did() == [("load", "5.0")]


def test_a_saved_model_that_is_not_whole_is_saved_anew_before_it_is_loaded(tmp_path):
    saves = {"4.48": {"outcome": "saved", "files": {"model.safetensors": "weights"}}}
    first = run(tmp_path, Crossed(saves))
    (weights,) = tmp_path.glob("saved/s*/model.safetensors")
    weights.write_text("weightt")
    again = Crossed(saves)
    assert run(tmp_path, again) == first  # no job loads it
    assert again.jobs == []
    for path in tmp_path.glob("crossings/llama/*/5.0/*.json"):
        path.unlink()
    assert run(tmp_path, again) == first
    assert again.did() == [("load", "5.0"), ("save", "4.48")]
    assert weights.read_text() == "weights"


@pytest.mark.parametrize("options", [{"fresh": True}, {"digest": None}])
def test_a_fresh_run_and_an_unpinned_checkpoint_leave_no_folder(tmp_path, options):
    first = run(tmp_path, Crossed())
    before = set(tmp_path.glob("saved/*"))
    assert len(before) == 2
    again = Crossed()
    assert run(tmp_path, again, **options) == first
    assert again.did() == ALL
    assert set(tmp_path.glob("saved/*")) == before


def test_folders_that_no_run_has_used_for_long_are_removed(tmp_path):
    run(tmp_path, Crossed())
    now = time.time()
    old, recent = tmp_path / "saved" / "s-old", tmp_path / "saved" / "s-recent"
    for folder in (old, recent):
        folder.mkdir()
    (tmp_path / "saved" / "s-old.log").touch()
    for path, days in ((old, 8), (tmp_path / "saved" / "s-old.log", 8), (recent, 6)):
        os.utime(path, (now - days * 86_400,) * 2)
    records = list(tmp_path.glob("saved/s*/saved.json"))
    assert len(records) == 2
    for path in records:
        os.utime(path.parent, (now - 8 * 86_400,) * 2)
    again = Crossed()
    run(tmp_path, again)
    assert again.jobs == []
    assert all(path.exists() for path in records)
    assert not old.exists()
    assert not (tmp_path / "saved" / "s-old.log").exists()
    assert recent.exists()
