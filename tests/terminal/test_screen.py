"""The answer of samebits check fits on a screen, begins with the verdict and names what to do."""

import io
import itertools
from pathlib import Path

import pytest

from samebits.records.capture import Skip, UnrunModule
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.finding import Explanation, Finding
from samebits.records.ids import Variant, Verdict
from samebits.records.report import CheckpointReport
from samebits.records.subject import Subject
from samebits.records.trace import Side
from samebits.reports.head import head
from samebits.reports.plain import Place
from samebits.terminal.screen import WIDTH, screen
from samebits.text.terminal import Mark, Marked, TerminalText
from tests.support.builders import cause_in
from tests.support.sample_report import NEVER_WRITTEN, cell, raised, row, sample_report

VARIANT = Variant(dtype="float32", attention="default")
PATH = Path("reports/check/tiny/report.md")


def report(*cells, code=1, **fields):
    """Return the report of a check from 4.48 to 5.23."""
    verdicts = {c.cell.stack: c for c in cells}
    sample = sample_report()
    stacks = tuple(stack for stack in sample.stacks if stack.id in verdicts)
    update = {
        "matrix": "tiny",
        "command": "samebits check tiny --trust-remote-code",
        "rows": (row("tiny", VARIANT, verdicts),),
        "stacks": stacks,
        "rules": (),
        "exit_code": code,
        "reasons": (),
    }
    return sample.model_copy(update=update | fields)


def of(stack, verdict, **fields):
    return cell("tiny", VARIANT, stack, verdict, **fields)


def reference():
    return of("4.48", Verdict.REFERENCE)


def lines(shown, places=None):
    printed = screen(shown, [PATH], places or {})
    assert len(printed) <= 24
    assert all(len(line) <= 2 * WIDTH for line in printed)
    assert printed[-1].split() == ["report", str(PATH)]
    return printed


def field(printed, label):
    """Return the text of one field of the answer, on one line; '' if it has none."""
    start = next((i for i, line in enumerate(printed) if line.startswith(f"  {label} ")), None)
    if start is None:
        return ""
    rest = itertools.takewhile(lambda line: line.startswith(" " * 10), printed[start + 1 :])
    return " ".join([printed[start].split(maxsplit=1)[1], *(line.strip() for line in rest)])


def test_the_same_bits_are_one_line_and_the_report():
    printed = lines(report(reference(), of("5.23", Verdict.IDENTICAL), code=0))
    assert printed[0] == "tiny  4.48.0 → 5.23.0: same bits"
    assert printed[0].mark is Mark.SAME
    assert len(printed) == 2


def test_rounding_says_that_both_sides_are_right_and_that_nothing_is_to_do():
    rounding = of("5.23", Verdict.ROUNDING, figure="logits 1e-06")
    rounding = rounding.model_copy(update={"reference": reference().cell})
    printed = lines(report(reference(), rounding, code=0))
    assert printed[0] == "tiny  4.48.0 → 5.23.0: rounding only (logits 1e-06)"
    assert printed[0].mark is Mark.CLOSE
    assert field(printed, "right") == "both: the difference goes away in float64"
    assert field(printed, "do") == "Nothing"
    assert not field(printed, "next")


def test_the_same_bits_are_no_reason_to_do_nothing_about_what_stands_beside_them():
    def do(*findings, code=0):
        cells = (reference(), of("5.23", Verdict.IDENTICAL, findings=findings))
        return field(lines(report(*cells, code=code, rules=(NEVER_WRITTEN,))), "do")

    silent = Finding(code=NEVER_WRITTEN.code, where="cache", evidence=("x",))
    assert do(silent) == f"Nothing for what was compared; beside it: {NEVER_WRITTEN.code}"
    assert do() == ""


@pytest.mark.parametrize("width", range(60, 84))
def test_the_first_line_has_room_for_its_mark_and_each_file_stands_whole(width):
    rounding = of("5.23", Verdict.ROUNDING, figure="logits 1e-06", reference=reference().cell)
    paths = [PATH, PATH.with_suffix(".html")]
    printed = screen(report(reference(), rounding, code=0), paths, {}, width)
    marked = next(line for line in printed if isinstance(line, Marked))
    assert len(f"{marked.mark} {marked}") <= width
    assert all(any(str(path) in line for line in printed) for path in paths)
    assert all(len(line) <= width for line in printed)


ANSWERS = NEVER_WRITTEN.model_copy(update={"code": "SB931", "name": "a check raises"})
OF_RELEASE = ANSWERS.model_copy(update={"code": "SB932", "scope": "release"})


def one_sided(code, *stacks):
    name = "the training step with gradient checkpointing that is left to its own default " * 2
    return tuple(
        Finding(code=code, where=f"{stack} raises: {name}", evidence=(), raises=stack)
        for stack in stacks
    )


@pytest.mark.parametrize("verdict", [Verdict.IDENTICAL, Verdict.ROUNDING])
def test_a_run_that_passes_says_in_its_first_line_that_a_check_beside_it_raises(verdict):
    def printed(*findings):
        shown = report(
            reference(), of("5.23", verdict, findings=findings), code=0, rules=(ANSWERS, OF_RELEASE)
        )
        (first, *_) = head(shown)
        printed = lines(shown)
        line = next(i for i, line in enumerate(printed) if line.startswith("tiny "))
        rest = itertools.takewhile(lambda line: not line.startswith("   "), printed[line + 1 :])
        whole = " ".join([printed[line], *map(str.strip, rest)])
        cut = min(whole.find(f" {label} ") % len(whole) for label in ("right", "do", "report"))
        return first.rstrip("."), whole[:cut].strip(), " ".join(printed)

    for first in printed(*one_sided("SB931", "5.23"))[:2]:
        assert first.endswith("; a check beside the verdict raises in 5.23 only (SB931)")
    for first in printed(*one_sided("SB931", "5.23", "5.23"))[:2]:
        assert first.endswith("; checks beside the verdict raise in 5.23 only (SB931)")
    for first in printed(*one_sided("SB931", "4.48", "5.23"))[:2]:
        assert first.endswith("; checks beside the verdict raise in one release only (SB931)")
    for clean in ((), one_sided("SB932", "5.23"), one_sided("SB931", "4.48", "4.48")):
        assert "beside the verdict" not in "".join(printed(*clean)[:2])
    # the heading of the finding is not cut before it says which side raises
    assert "5.23 raises" in printed(*one_sided("SB931", "5.23"))[2]


@pytest.mark.parametrize("moved", [False, True])
def test_what_raises_in_every_release_is_said_of_all_and_comes_after_a_change(moved):
    failure = raised("greedy short", "ValueError", "decoder_start_token_id has to be set")
    shared = {"shared_failures": (failure.model_copy(update={"traceback": ""}),)}
    first = of("4.48", Verdict.FAILED, rest=Verdict.REFERENCE, failure=failure, **shared)
    verdict = Verdict.DIVERGED if moved else Verdict.IDENTICAL
    printed = lines(report(first, of("5.23", verdict, **shared)))
    everywhere = "every release: ValueError in generate()"
    if moved:
        assert printed[0].startswith("tiny  4.48.0 → 5.23.0: behaviour change")
        assert field(printed, "also").startswith(everywhere)
    else:
        assert printed[0].startswith(f"tiny  {everywhere}")


def test_what_could_not_be_observed_has_the_advice_of_what_raises_everywhere():
    """As a tokenizer that raises in every release, which leaves no forward to compare."""
    failure = raised("forward short", "TypeError", "_pad() got an unexpected keyword argument")
    shared = {"shared_failures": (failure.model_copy(update={"traceback": ""}),)}
    first = of("4.48", Verdict.FAILED, rest=Verdict.REFERENCE, failure=failure, **shared)
    printed = lines(report(first, of("5.23", Verdict.NOT_OBSERVED, **shared)))
    assert printed[0].startswith("tiny  4.48.0 → 5.23.0:")
    assert field(printed, "also").startswith("every release: TypeError")
    assert field(printed, "do").startswith("If forward needs inputs that samebits does not make")
    moved = lines(report(first, of("5.23", Verdict.DIVERGED, **shared)))
    assert "If forward needs" not in field(moved, "do")


def test_a_failure_names_place_cause_finding_and_remedy():
    here, there = (
        Side(
            stack=stack,
            module="model.rotary_emb",
            tensor="model.rotary_emb.inv_freq",
            source="modeling_x.py:81",
        )
        for stack in ("5.23", "4.48")
    )
    cause = cause_in(here, kind="buffer", headline="inv_freq differs", reference=there)
    finding = Finding(code="SB301", where="model.rotary_emb.inv_freq", evidence=())
    diverged = explained(
        of("5.23", Verdict.DIVERGED, cause=cause, findings=(finding,)),
        Explanation(code="SB301", where="model.rotary_emb.inv_freq", stack="5.23"),
    )
    shown = report(reference(), diverged, rules=(NEVER_WRITTEN,))
    printed = lines(shown, {"SB301": Place("modeling_x.py", 80, 9)})
    assert printed[0].startswith("tiny  4.48.0 → 5.23.0: behaviour change (")
    assert printed[0].mark is Mark.WORSE
    assert field(printed, "where") == (
        "model.rotary_emb.inv_freq: a buffer differs (4.48: modeling_x.py:81; 5.23: modeling_x.py:81); modeling_x.py:80:9"
    )
    assert field(printed, "right") == "5.23 is wrong: a buffer is never written (SB301)"
    assert field(printed, "do") == "Stay with transformers 4.48.0. Or: compute it in forward"
    command = "samebits check tiny --trust-remote-code --releases --from 4.48 --to 5.23"
    assert field(printed, "next") == command
    labels = [line.split()[0] for line in printed if line[:2] == "  " and line[2] != " "]
    assert labels == ["where", "right", "do", "next", "report"]


@pytest.mark.parametrize("verdict", [Verdict.IDENTICAL, Verdict.DIVERGED])
def test_environments_of_one_release_are_named_by_themselves(verdict):
    """As with --scan, or beside a changed copy of a release."""
    compared = of("5.23", verdict).model_copy(update={"reference": reference().cell})
    shown = report(reference(), compared, code=int(verdict is not Verdict.IDENTICAL))
    stacks = tuple(s.model_copy(update={"transformers": "5.23.0"}) for s in shown.stacks)
    printed = lines(shown.model_copy(update={"stacks": stacks}))
    assert printed[0].startswith("tiny  4.48 → 5.23: ")
    assert lines(shown)[0].startswith("tiny  4.48.0 → 5.23.0: ")


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        ("5.23.0", True),
        ("4.50.0", True),
        ("4.48.0", False),  # a changed copy of the same release
        ("4.49.0.dev0", False),  # a checkout
        ("4.49.0", False),
    ],
)
def test_releases_are_proposed_only_where_one_lies_between(version, asked):
    shown = report(reference(), explained(of("5.23", Verdict.DIVERGED)))
    stacks = [
        stack.model_copy(update={"transformers": version}) if stack.id == "5.23" else stack
        for stack in shown.stacks
    ]
    printed = lines(shown.model_copy(update={"stacks": tuple(stacks)}))
    assert ("--releases" in field(printed, "next")) == asked


def explained(cell, *explanations):
    return cell.model_copy(update={"reference": reference().cell, "explained_by": explanations})


def test_what_a_line_of_the_models_code_shows_is_the_first_beside_the_verdict():
    codes = [f"SB82{n}" for n in range(5)]
    rules = tuple(NEVER_WRITTEN.model_copy(update={"code": code, "name": code}) for code in codes)
    findings = tuple(Finding(code=code, where="w", evidence=()) for code in codes)
    shown = report(
        reference(), explained(of("5.23", Verdict.ROUNDING, findings=findings)), rules=rules
    )
    assert lines(shown)[0].startswith("Beside the verdict: SB820")
    beside = lines(shown, {"SB824": Place("m.py", 7, 5)})
    assert [line.split()[3] for line in beside[:3]] == ["SB824", "SB820", "SB821"]
    assert "m.py:7" in beside[0]


def test_a_line_of_the_models_code_is_named_once():
    finding = Finding(code="SB301", where="m.py:7", evidence=())
    cells = (reference(), explained(of("5.23", Verdict.DIVERGED, findings=(finding,))))
    beside = lines(report(*cells, rules=(NEVER_WRITTEN,)), {"SB301": Place("m.py", 7, 5)})
    assert beside[0] == "Beside the verdict: SB301 a buffer is never written (m.py:7:5)"


def test_a_finding_that_explains_nothing_stands_beside_the_verdict():
    finding = Finding(code="SB301", where="model.inv_freq", evidence=())
    diverged = of("5.23", Verdict.DIVERGED, findings=(finding,))
    beside = lines(report(reference(), explained(diverged), rules=(NEVER_WRITTEN,)))
    assert beside[0] == "Beside the verdict: SB301 a buffer is never written (model.inv_freq)"
    assert "SB301" not in " ".join(beside[1:])
    assert field(beside, "right") == "not known: no finding or consistency check shows it"
    explanation = Explanation(code="SB301", where="model.inv_freq", stack="5.23")
    without_others = lines(
        report(reference(), explained(diverged, explanation), rules=(NEVER_WRITTEN,))
    )
    assert "SB301" in field(without_others, "right")
    assert "Beside the verdict" not in " ".join(without_others)


def test_a_finding_of_every_release_alike_is_no_change():
    finding = Finding(code="SB301", where="model.inv_freq", evidence=())
    first = reference().model_copy(update={"findings": (finding,)})
    same = explained(of("5.23", Verdict.IDENTICAL, findings=(finding,)))
    (line,) = (
        line for line in lines(report(first, same, rules=(NEVER_WRITTEN,))) if "SB301" in line
    )
    assert line == "In every release alike: SB301 a buffer is never written (model.inv_freq)"


def test_the_side_that_has_the_defect_is_named_be_it_the_reference():
    explanation = Explanation(code="SB301", where="model.inv_freq", stack="4.48")
    diverged = explained(of("5.23", Verdict.DIVERGED), explanation)
    printed = lines(report(reference(), diverged, rules=(NEVER_WRITTEN,)))
    assert field(printed, "right") == "4.48 is wrong: a buffer is never written (SB301)"
    assert field(printed, "do") == "Use transformers 5.23.0. Or: compute it in forward"


def test_a_quick_check_says_what_it_left_out_and_names_what_it_knows():
    explanation = Explanation(code="SB301", where="model.inv_freq", stack="5.23")
    diverged = explained(of("5.23", Verdict.DIVERGED), explanation)
    shown = report(reference(), diverged, rules=(NEVER_WRITTEN,), level="quick")
    printed = lines(shown)
    assert printed[0].startswith("--quick left out: consistency checks, training, ")
    assert "SB301" in field(printed, "right")
    full = lines(shown.model_copy(update={"level": "default"}))
    assert "--quick" not in " ".join(full)


@pytest.mark.parametrize("width", [60, 80, 110])
def test_no_line_is_wider_than_the_terminal_but_what_is_to_be_copied(width):
    explanation = Explanation(code="SB301", where="model.inv_freq", stack="5.23")
    diverged = explained(of("5.23", Verdict.DIVERGED, headline="x " * 200), explanation)
    printed = screen(report(reference(), diverged, rules=(NEVER_WRITTEN,)), [PATH], {}, width)
    assert max(len(line) for line in printed if line[2:6] != "next") <= width


@pytest.mark.parametrize(
    ("is_tty", "environ", "shown"),
    [
        (True, {}, "\x1b[1;31m✕ tiny\x1b[0m\n"),
        (True, {"NO_COLOR": "1"}, "✕ tiny\n"),
        (True, {"TERM": "dumb"}, "✕ tiny\n"),
        (False, {}, "tiny\n"),
    ],
    ids=["terminal", "no colour", "dumb", "pipe"],
)
def test_glyph_and_colour_are_for_terminals_only(is_tty, environ, shown):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream.isatty = lambda: is_tty
    spoken = TerminalText(environ)
    spoken.say(spoken.log_line(Marked("tiny", Mark.WORSE)), stream)
    stream.flush()
    assert stream.buffer.getvalue().decode() == shown


def test_all_releases_are_named_that_do_not_repeat_their_own_results():
    shown = report(*(of(s, Verdict.UNSTABLE, reference=None) for s in ("4.48", "5.x")))
    (headline,) = [line for line in lines(shown) if "two runs of the same release" in line]
    assert headline.split(":")[0].endswith("tiny  4.48.0, 5.x")


def test_an_exception_is_shown_with_its_line():
    failure = raised("load", "ImportError", "cannot import name 'LossKwargs'")
    printed = lines(report(reference(), of("5.23", Verdict.FAILED, failure=failure)))
    assert (
        printed[0]
        == "tiny  4.48.0 → 5.23.0: ImportError in loading: cannot import name 'LossKwargs'"
    )


def test_a_release_that_could_not_be_built_says_why():
    only = report(reference())
    broken = only.stacks[0].model_copy(
        update={"id": "5.23", "failure": "stack 5.23: no set of packages fits:\ndns error"}
    )
    reasons = ("stack 5.23: no set of packages fits",)
    printed = lines(only.model_copy(update={"stacks": (*only.stacks, broken), "reasons": reasons}))
    assert any("not built" in line and "dns error" in line for line in printed)
    assert field(printed, "why").startswith("stack 5.23: no set of packages fits")


@pytest.mark.parametrize("code", [0, 1, 3])
def test_what_a_model_says_stays_on_its_line(code):
    odd = of("5.23", Verdict.FAILED, failure=raised("load", "E", "a\n\x1b[31mred\nb"))
    assert not any(
        "\x1b" in line or "\n" in line for line in lines(report(reference(), odd, code=code))
    )


def test_what_a_folder_adds_to_the_model_is_said_not_to_be_compared():
    steps = ("Pooling (1_Pooling)", "Normalize (2_Normalize)")
    of_folder = CheckpointReport(model="tiny", source="path tiny", steps=steps)
    same = of("5.23", Verdict.IDENTICAL)
    text = " ".join(lines(report(reference(), same, code=0, checkpoints=(of_folder,))))
    assert "Not compared: Pooling (1_Pooling), Normalize (2_Normalize) of tiny" in text
    plain = of_folder.model_copy(update={"steps": ()})
    assert "Not compared" not in " ".join(
        lines(report(reference(), same, code=0, checkpoints=(plain,)))
    )


def test_modules_that_no_prompt_ran_are_named():
    same = of("5.23", Verdict.IDENTICAL)
    shown = report(reference(), same, code=0)
    assert "Not run by any prompt" not in " ".join(lines(shown))
    tower = UnrunModule(name="model.vision_tower", parameters=1200)
    unrun = {stack.id: (tower,) for stack in shown.stacks}
    rows = (
        shown.rows[0].model_copy(
            update={"unrun": unrun, "attention": dict.fromkeys(unrun, "sdpa")}
        ),
    )
    printed = lines(shown.model_copy(update={"rows": rows}))
    assert "Not run by any prompt: model.vision_tower (1,200 parameters)" in printed


def test_what_got_no_image_and_no_video_is_said():
    item = ItemComparison(subject=Subject(prompt="image"), outcome="identical")
    signal = SignalComparison(
        signal="logits", outcome="identical", n_items=1, n_differ=0, items=(item,)
    )
    video = Skip(what="forward video", reason="forward takes videos", why="inputs")
    with_image = of("5.23", Verdict.IDENTICAL).model_copy(
        update={"signals": (signal,), "skips": (video,)}
    )
    text = " ".join(" ".join(lines(report(reference(), with_image, code=0))).split())
    assert "Forward and decoding were also fed an image. No video was fed." in text
    plain = of("5.23", Verdict.IDENTICAL)
    assert "were fed" not in " ".join(lines(report(reference(), plain, code=0)))


def test_the_reason_of_an_absent_release_is_not_cut():
    reason = (
        "its packages cannot be installed beside transformers 4.57.6 and the other packages of the "
        "stack: my-models==1.2 needs numpy<2, and torch==2.13.0 needs numpy>=2"
    )
    absent = of("5.23", Verdict.ABSENT, absent=reason)
    text = " ".join(" ".join(lines(report(reference(), absent, code=0))).split())
    assert reason in text


def test_what_the_code_alone_shows_stands_behind_the_remedy_where_the_cell_cannot_show_it():
    """generate() raises, so nothing shows that it hands over the cache by another name."""
    places = {"SB713": Place("m.py", 7, 5), "SB303": Place("m.py", 9, 5)}

    def then(verdict, *last, **fields):
        failure = raised("greedy short", "AttributeError", "no")
        cell_ = of(
            "5.23", verdict, failure=failure if verdict is Verdict.FAILED else None, **fields
        )
        return field(screen(report(reference(), cell_), [PATH], places, last=last), "then")

    assert then(Verdict.FAILED, "SB713").startswith("SB713 (m.py:7:5): ")
    assert then(Verdict.FAILED) == ""
    assert then(Verdict.DIVERGED, "SB713") == ""
    named = (Finding(code="SB713", where="m.py:7", evidence=("x",)),)
    assert then(Verdict.FAILED, "SB713", findings=named) == ""
    # weights that differ are the verdict's; a loop over the same forward shows that decoding has another cause
    assert then(Verdict.DIVERGED, "SB713", findings=named).startswith("SB713 (m.py:7:5): another")
    beside = (Finding(code="SB303", where="w", evidence=("x",)),)
    assert then(Verdict.IDENTICAL, "SB713", "SB303", findings=(*named, *beside)) == ""
