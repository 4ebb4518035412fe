"""Nights of the watch, with made reports: one issue for each cause, none for rounding, and none closed unseen."""

import json

import pytest

from samebits import cli
from samebits.bisect.history import HistoryError
from samebits.bisect.records import Bisection, Culprit
from samebits.records.capture import Failure, Frame
from samebits.records.ids import Verdict
from samebits.records.trace import Side, SourceDiff
from samebits.reports.json import render
from samebits.watch import command
from samebits.watch.causes import grouped, night_of
from samebits.watch.nights import changes
from samebits.watch.records import WatchFile
from samebits.watch.text import Beside, marked, text_of, title
from tests.support.builders import bare_report, cause_in, cell_id, cell_result
from tests.support.clones import FOLDER, clone
from tests.support.sample_report import row

RELEASE, MAIN = "5.15", "main"
SHAS = [f"{n:010x}" for n in range(1, 9)]
NORM = "transformers/models/{0}/modeling_{0}.py"


def changed(
    model, *, lines="-a\n+b", line=70, op="aten.add.Tensor", function="{}RMSNorm.forward", **fields
):
    """Return a cause in a copy of one function that many models have."""
    source = f"{NORM.format(model)}:{line}"
    name = function.format(model.capitalize())
    diff = SourceDiff(function=name, reference=source, candidate=source, diff=f"@@\n{lines}")
    side = Side(stack=MAIN, op=op, function=name, source=source)
    return cause_in(side, **({"diffs": (diff,)} | fields))


def shared(line=10):
    side = Side(
        stack=MAIN,
        op="aten.mul.Tensor",
        function="rope",
        source=f"transformers/modeling_rope_utils.py:{line}",
    )
    return cause_in(side)


def raised(model, message="no attribute 'x'", file=None, type="AttributeError"):
    frame = Frame(file=file or NORM.format(model), line=3, function="forward")
    return Failure(phase="forward short", type=type, message=message, traceback="", frames=(frame,))


def on_main(model, verdict, dtype="float32", **fields):
    cell = cell_id(MAIN, model, dtype)
    return cell_result(cell, verdict, reference=cell_id(RELEASE, model, dtype), **fields)


def report(*cells, commit=SHAS[0], release=RELEASE, failure=None):
    """Return the report of a night: the release, and main."""
    rows = []
    for cell in cells:
        variant = cell.cell.variant
        base = cell_result(cell_id(RELEASE, cell.cell.model, variant.dtype), Verdict.REFERENCE)
        rows.append(row(cell.cell.model, variant, {RELEASE: base, MAIN: cell}))
    made = bare_report((RELEASE, MAIN), *rows)
    stacks = (
        made.stacks[0].model_copy(update={"transformers": release}),
        made.stacks[1].model_copy(
            update={
                "transformers": None if failure else f"5.16.0.dev0+git.{commit}",
                "failure": failure,
            }
        ),
    )
    return made.model_copy(update={"stacks": stacks})


def same(*models):
    return [on_main(model, Verdict.IDENTICAL) for model in models]


def diverged(model, cause, **fields):
    return on_main(model, Verdict.DIVERGED, cause=cause, **fields)


def nights(*reports):
    """Return what each of these nights changes, one after the other."""
    state, results = WatchFile(), []
    for night_report in reports:
        results.append(changes(state, night_of(night_report)))
        state = results[-1].after
    return results


def counts(results):
    return [(len(c.opens), len(c.edits), len(c.closes)) for c in results]


def kinds(*cells):
    return [(group.kind, group.models) for group in grouped(cells)]


def test_copies_of_one_change_are_one_cause_and_another_change_of_a_copy_is_another():
    cells = [diverged(model, changed(model)) for model in ("llama", "gemma", "qwen2")]
    other = diverged("mistral", changed("mistral", lines="-a\n+c"))
    groups = kinds(*cells, other)
    assert sorted(groups) == [("differs", ("gemma", "llama", "qwen2")), ("differs", ("mistral",))]


def test_one_place_in_shared_code_is_one_cause_whatever_the_line():
    assert kinds(diverged("a", shared(10)), diverged("b", shared(12))) == [("differs", ("a", "b"))]


def test_an_unchanged_function_that_two_models_call_differently_is_no_common_cause():
    place = {"op": "aten.sdpa", "function": "sdpa_attention_forward", "kind": "argument"}
    cells = [
        diverged(model, changed(model, lines=f"-a\n+{number}", **place))
        for number, model in enumerate(("llama", "gemma"))
    ]
    assert sorted(kinds(*cells)) == [("differs", ("gemma",)), ("differs", ("llama",))]


def test_variants_of_a_model_that_differ_in_one_function_are_one_cause():
    one = diverged("llama", changed("llama", op="aten.mm"))
    two = diverged("llama", changed("llama", op="aten.addmm", lines="-a\n+c"), dtype="bfloat16")
    assert len(kinds(one, two)) == 1


def test_the_same_groups_and_signs_in_any_order_of_models():
    cells = [diverged(m, changed(m)) for m in ("llama", "gemma")] + [diverged("t5", shared())]
    assert list(grouped(cells)) == list(grouped(reversed(cells)))


def test_the_place_is_where_more_than_rounding_begins():
    """Where bits differ first is another place on another CPU."""
    real = changed("llama")
    ways = [
        real,
        changed("llama", function="{}MLP.forward", op="aten.mm", lines="-x\n+y", beyond=real),
        changed(
            "llama", function="{}Attention.forward", op="aten.bmm", lines="-v\n+w", beyond=real
        ),
    ]
    assert len({group.signs for way in ways for group in grouped([diverged("llama", way)])}) == 1


def test_what_only_rounds_or_is_expected_is_no_cause():
    cells = [
        on_main("a", Verdict.ROUNDING, cause=changed("a")),
        on_main("b", Verdict.EXPECTED, judged=Verdict.DIVERGED),
    ]
    (results,) = nights(report(*cells))
    assert results.opens == ()


def test_what_float64_does_not_tell_is_a_cause_in_these_words():
    night = night_of(report(on_main("c", Verdict.UNDECIDED, cause=changed("c"))))
    (pair,) = changes(WatchFile(), night).opens
    assert title(*pair).startswith("samebits watch: c differs, and float64 does not tell how")


def test_what_raises_is_one_cause_by_message_or_by_shared_function():
    message = "cannot import name 'x' from 'transformers.utils'"
    cells = [
        on_main(m, Verdict.FAILED, failure=raised(m, message, type="ImportError"))
        for m in ("a", "b")
    ]
    utils = "transformers/masking_utils.py"
    cells += [
        on_main(m, Verdict.FAILED, failure=raised(m, f"size {n}", utils))
        for m, n in (("c", 3), ("d", 4))
    ]
    cells += [on_main("e", Verdict.FAILED, failure=raised("e", "other"))]
    assert sorted(kinds(*cells)) == [
        ("raises", ("a", "b")),
        ("raises", ("c", "d")),
        ("raises", ("e",)),
    ]


def test_a_model_that_main_no_longer_has_is_a_cause():
    assert kinds(on_main("a", Verdict.ABSENT)) == [("absent", ("a",))]


def test_a_difference_without_a_cause_is_told_by_model_and_signal():
    assert len(kinds(on_main("a", Verdict.DIVERGED), on_main("b", Verdict.DIVERGED))) == 2


def test_a_cause_is_opened_once_kept_and_closed():
    planted = report(diverged("llama", changed("llama")), *same("t5"))
    clean = report(*same("llama", "t5"), commit=SHAS[3])
    results = nights(report(*same("llama", "t5")), planted, planted, clean)
    assert counts(results) == [(0, 0, 0), (1, 0, 0), (0, 0, 0), (0, 0, 1)]
    assert results[-1].after.causes == ()


def test_another_line_number_is_the_same_cause_and_another_model_is_written_into_it():
    first = report(diverged("llama", changed("llama")), *same("gemma"))
    second = report(diverged("llama", changed("llama", line=99)), *same("gemma"))
    third = report(*(diverged(m, changed(m)) for m in ("llama", "gemma")))
    results = nights(first, second, third)
    assert counts(results) == [(1, 0, 0), (0, 0, 0), (0, 1, 0)]
    assert results[-1].after.causes[0].models == ("gemma", "llama")
    assert results[-1].after.causes[0].id == results[0].after.causes[0].id


@pytest.mark.parametrize(
    "hidden",
    [
        on_main("llama", Verdict.NOT_FINISHED),
        on_main("llama", Verdict.UNDECIDED),
        on_main("llama", Verdict.FAILED, failure=raised("llama")),
        on_main(
            "llama",
            Verdict.FAILED,
            failure=Failure(phase="process", type="not started", message="", traceback=""),
        ),
        diverged(
            "llama", changed("llama", function="{}Model.forward", lines="-1\n+2", op="aten.mul")
        ),
    ],
    ids=["not finished", "undecided", "raises", "not started", "differs elsewhere"],
)
def test_a_cause_that_could_be_hidden_is_not_closed(hidden):
    results = nights(report(diverged("llama", changed("llama"))), report(hidden, *same("t5")))
    assert results[1].closes == ()
    assert len([k for k in results[1].after.causes if k.kind == "differs"]) >= 1


def test_what_no_longer_raises_is_closed_though_it_differs():
    broken = report(on_main("llama", Verdict.FAILED, failure=raised("llama")))
    results = nights(broken, report(diverged("llama", changed("llama"))))
    assert counts(results) == [(1, 0, 0), (1, 0, 1)]


def test_a_broken_environment_closes_nothing_and_opens_one_issue():
    planted = report(diverged("llama", changed("llama")), *same("t5", "vit"))
    broken = report(*same("llama", "t5", "vit"), failure="no wheel")
    results = nights(planted, broken, broken, planted)
    assert counts(results) == [(1, 0, 0), (1, 0, 0), (0, 0, 0), (0, 0, 1)]
    assert [cause.kind for cause in results[2].after.causes] == ["differs", "watch"]
    assert results[2].after.commit == SHAS[0], "a night without models is no last night"


def test_a_model_that_the_release_cannot_run_is_the_watchs_own_trouble():
    made = report(on_main("llama", Verdict.IDENTICAL))
    (row,) = made.rows
    base = row.cells[0].model_copy(update={"judged": Verdict.FAILED, "verdict": Verdict.FAILED})
    failing = row.model_copy(update={"cells": (base, row.cells[1])})
    (results,) = nights(made.model_copy(update={"rows": (failing,)}))
    assert [cause.kind for cause, _ in results.opens] == ["watch"]


def drafted(folder, night_report, *options):
    """Run the command on a report; return the names of the files that it writes."""
    if night_report is not None:
        (folder / "report.json").write_text(render(night_report), "utf-8")
    else:
        (folder / "report.json").unlink(missing_ok=True)
    words = [
        "watch",
        folder / "report.json",
        "--state",
        folder / "watch.json",
        "--output",
        folder / "issues",
    ]
    code, lines = cli.run([*map(str, words), *map(str, options)], {"HOME": str(folder)})
    assert code == 0
    return sorted(path.name for path in (folder / "issues").iterdir()), "\n".join(lines)


def test_a_week_of_nights_on_the_command_line(tmp_path):
    planted = report(diverged("llama", changed("llama")))
    steps = [
        (report(*same("llama")), []),
        (planted, ["open"]),
        (planted, []),
        (report(on_main("llama", Verdict.ROUNDING)), ["close"]),
        (None, ["open"]),  # a night without a report
        (report(*same("llama"), commit=SHAS[4]), ["close"]),
    ]
    for number, (night_report, verbs) in enumerate(steps):
        names, lines = drafted(tmp_path, night_report)
        assert [name.partition("-")[0] for name in names] == verbs, (number, lines)
        assert f"{int(night_report is not None)} of {int(night_report is not None)} models" in lines
    state = WatchFile.model_validate_json((tmp_path / "watch.json").read_bytes())
    assert (state.commit, state.causes) == (SHAS[4], ())


def issues(path, *entries):
    path.write_text(json.dumps(entries), "utf-8")
    return path


def opened(folder):
    (path,) = (folder / "issues").glob("open-*.md")
    first, _, body = path.read_text("utf-8").partition("\n\n")
    return first, body


def test_the_issues_themselves_are_the_state(tmp_path):
    planted = report(diverged("llama", changed("llama")))
    drafted(tmp_path, planted)
    title, body = opened(tmp_path)
    assert (
        title
        == "samebits watch: llama computes something else on transformers main: LlamaRMSNorm.forward"
    )
    assert "+b" in body
    (tmp_path / "watch.json").unlink()
    entry = {"number": 7, "state": "OPEN", "stateReason": None, "body": body}
    known = (
        "--known",
        issues(tmp_path / "known.json", {**entry, "number": 6, "body": "other"}, entry),
    )
    assert drafted(tmp_path, planted, *known)[0] == []
    assert drafted(tmp_path, report(*same("llama")), *known)[0] == ["close-7.md"]
    for reason, names in (("NOT_PLANNED", 0), ("COMPLETED", 1)):
        closed = issues(tmp_path / "known.json", entry | {"state": "CLOSED", "stateReason": reason})
        assert len(drafted(tmp_path, planted, "--known", closed)[0]) == names
        assert drafted(tmp_path, report(*same("llama")), "--known", closed)[0] == []


def test_a_mark_cannot_end_early(tmp_path):
    message = "a --> b <!-- @everyone #1"
    drafted(tmp_path, report(on_main("llama", Verdict.FAILED, failure=raised("llama", message))))
    _, body = opened(tmp_path)
    first = body.splitlines()[0]
    assert first.count("-->") == 1
    assert first.endswith("-->")
    assert message.replace("1", "N") in marked(body).signs[0]


def test_a_change_that_a_new_release_has_is_closed_with_these_words(tmp_path):
    drafted(tmp_path, report(diverged("llama", changed("llama"))))
    (name,), _ = drafted(tmp_path, report(*same("llama"), release="5.16.0"))
    text = (tmp_path / "issues" / name).read_text("utf-8")
    assert "--from 5.15 --to 5.16.0" in text


@pytest.mark.processes
def test_commits_since_last_night_that_change_the_file_are_listed(tmp_path):
    path = f"{FOLDER}/models/llama/modeling_llama.py"
    shas = clone(
        tmp_path / "clone",
        ("Start", {path: "a"}),
        ("A page", {"docs/x.md": "x"}),
        ("Steady the norm (#8)", {path: "b"}),
    )
    drafted(tmp_path, report(*same("llama"), commit=shas[0][:10]))
    (tmp_path / "matrix.yaml").write_text(
        "version: 1\nmodels: {llama: {build: {architecture: llama}}}\n"
    )
    planted = report(diverged("llama", changed("llama")), commit=shas[2][:10])
    planted = planted.model_copy(update={"matrix_path": str(tmp_path / "matrix.yaml")})
    drafted(tmp_path, planted, "--repo", tmp_path / "clone")
    _, body = opened(tmp_path)
    assert "1 commit of 2 since" in body
    assert "Steady the norm (#8)" in body
    assert f"./transformers@{shas[2]}" in body
    assert "A page" not in body


@pytest.mark.processes
@pytest.mark.parametrize("is_found", [True, False])
def test_a_bisection_names_commits_or_says_why_not(tmp_path, monkeypatch, is_found):
    shas = clone(tmp_path / "clone", ("Start", {}), ("Steady the norm (#8)", {"x": "b"}))
    culprit = Culprit(sha=shas[1], date="2026-07-01", title="Steady the norm (#8)", before=shas[0])
    asked = []

    async def bisected(matrix, options, *_, **__):
        asked.append(([model.name for model in matrix.models], options.first, options.last))
        if not is_found:
            raise HistoryError("the clone has no such commit")
        ends = {"model": "llama", "first": "a", "last": "b", "commits": (shas[0], shas[1])}
        return Bisection(
            **ends, culprits=(culprit,), n_commits=2, n_suspected=1, n_tried=2, seconds=1
        )

    monkeypatch.setattr(command.bisect, "bisected", bisected)
    (tmp_path / "matrix.yaml").write_text(
        'version: 1\nenvironments: ["5.x"]\nmodels:\n  llama: {build: {architecture: llama}}\n'
        "  t5: {build: {architecture: t5}}\n"
    )
    drafted(tmp_path, report(*same("llama"), commit=shas[0][:10]))
    planted = report(diverged("llama", changed("llama")), commit=shas[1][:10])
    planted = planted.model_copy(update={"matrix_path": str(tmp_path / "matrix.yaml")})
    drafted(tmp_path, planted, "--repo", tmp_path / "clone", "--bisect")
    _, body = opened(tmp_path)
    assert asked == [(["llama"], shas[0][:10], shas[1])]
    assert (f"{shas[1][:10]} 2026-07-01 Steady the norm (#8)" in body) == is_found
    assert ("not found: the clone has no such commit" in body) != is_found


def test_files_of_another_form_are_said(tmp_path):
    (tmp_path / "report.json").write_text(render(report(*same("llama"))), "utf-8")
    for option, text in (("--known", '[{"number": 1}]'), ("--state", '{"format_version": 2}')):
        (tmp_path / "other.json").write_text(text)
        words = ["watch", str(tmp_path / "report.json"), "--output", str(tmp_path / "i")]
        words += ["--state", str(tmp_path / "s.json")] if option == "--known" else []
        assert (
            cli.main([*words, option, str(tmp_path / "other.json")], {"HOME": str(tmp_path)}) == 2
        )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--bisect"], 2, "name its folder, --repo DIR"),
        (["--bisect", "--repo", "nowhere"], 2, "nowhere is no clone"),
        (["--repo", "nowhere"], 0, "no commits are listed"),
    ],
)
def test_without_a_clone_a_search_is_a_mistake_and_a_night_opens_its_issues(
    tmp_path, capsys, options, code, words
):
    (tmp_path / "report.json").write_text(render(report(*same("llama"))), "utf-8")
    paths = ["--output", str(tmp_path / "i"), "--state", str(tmp_path / "s.json")]
    command_line = ["watch", str(tmp_path / "report.json"), *paths, *options]
    assert cli.main(command_line, {"HOME": str(tmp_path)}) == code
    assert words in "".join(capsys.readouterr())
    assert (tmp_path / "s.json").exists() is (code == 0)


def test_a_text_fits_github():
    diff = "\n".join(f"+{n}" * 20 for n in range(3000))
    made = report(diverged("llama", changed("llama", lines=diff)))
    night = night_of(made)
    (pair,) = changes(WatchFile(), night).opens
    assert len(text_of(*pair, night, made, Beside(script="x" * 70_000))) < 65_536
