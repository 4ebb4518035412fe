"""What is asked of samebits for a test, and what the terminal shows."""

import asyncio

import pytest

from samebits.base.errors import OptionError, StackError
from samebits.check.releases import ReleaseError
from samebits.golden import command, judge
from samebits.golden.asking import name_of, revision_of, steps
from samebits.golden.judge import Asked
from samebits.golden.records import Golden
from tests.golden.test_judge import OLD, Story, change, moved
from tests.support.clones import FOLDER, clone, source


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(**given):
    return command.Options(**{"test": "test_a.py::test_a", "first": "5.0"} | given)


def test_environments_are_named_by_release_and_torch(folder):
    first, last = command.environments(options(last="5.2"))
    assert (first.id, last.id, first.torch == last.torch) == ("5.0", "5.2", True)
    first, last = command.environments(options(torch="2.12.1,2.13.0"))
    assert [s.id for s in (first, last)] == ["5.0-torch-2.12.1", "5.0-torch-2.13.0"]
    first, last = command.environments(options(last="5.2", torch="2.12.1"))
    assert (first.torch, last.torch) == ("2.12.1", "2.12.1")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"test": "test_b.py::test_a"}, OptionError),
        ({"torch": "2.1,2.2,2.3"}, OptionError),
        ({"torch": "newest"}, OptionError),
        ({"last": "4.57"}, ReleaseError),
    ],
)
def test_mistakes(folder, given, error):
    with pytest.raises(error):
        command.environments(options(**given))


def test_torch_changes_before_transformers(folder):
    both = steps(*command.environments(options(last="5.2", torch="2.12.1,2.13.0")))
    assert [(s.package, s.before.transformers, s.after.transformers) for s in both] == [
        ("torch", "5.0", "5.0"),
        ("transformers", "5.0", "5.2"),
    ]
    assert both[0].after == both[1].before
    (only,) = steps(*command.environments(options(torch="2.12.1,2.13.0")))
    assert only.package == "torch"
    assert steps(*command.environments(options())) == []


def test_calls_that_are_the_same_are_asked_once(folder):
    story = Story()
    reference = story.side(OLD, OLD)
    candidate = story.side(moved(0.3), moved(0.3), holds=False)
    pair = next(judge.pairs(reference, candidate))
    twin = [
        call.model_copy(update={"number": 7, "test": "another", "file": "/other"})
        for call in (reference.first.called[0], candidate.first.called[0])
    ]
    other = judge.Pair(
        tuple(
            runs._replace(first=runs.first.model_copy(update={"called": (call,)}))
            for runs, call in zip(pair.runs, twin, strict=True)
        ),
        tuple(s.model_copy(update={"calls": ((7, "logits"), None)}) for s in pair.sides),
        0,
    )
    asked = []

    class Asker:
        async def ask(self, cases, way):
            asked.append({number: name_of(case.first) for number, case in cases.items()})
            return {number: Asked((change("diverged"),), (True, True)) for number in cases}

    answers = asyncio.run(command._asked([pair, other], Asker(), ["a step"], asked.append))
    assert asked == [
        "running one call of a model in both environments",
        {0: "LlamaForCausalLM-call-1"},
    ]
    assert answers[0] == answers[7]


def found(*judged):
    return Golden(
        test="test_a.py", environments=("transformers 5.0", "transformers 5.1"), judged=judged
    )


def test_the_screen_and_the_exit_code():
    story = Story()
    reference = story.side(OLD, OLD)
    rounds = story.judged(
        reference,
        story.side(moved(3e-4), moved(1e-13), holds=False),
        change("rounding", cause="mul"),
    )
    text = "\n".join(command.lines(found(rounds)))
    assert "test_a.py:9  rounding" in text
    assert "model       rounding by transformers 5.0 → 5.1: it" in text
    assert "from        mul" in text
    assert "new         torch.tensor(" in text
    assert command.exit_code(found(rounds)) == 0
    other = story.judged(
        reference, story.side(moved(0.3), moved(0.3), holds=False), change("diverged")
    )
    assert "new  " not in "\n".join(command.lines(found(other)))
    assert command.exit_code(found(rounds, other)) == 1
    undecided = story.judged(
        reference, story.side(moved(0.3), moved(0.3), holds=False), change("undecided")
    )
    assert command.exit_code(found(undecided)) == 3
    unjudged = found(rounds).model_copy(update={"unjudged": ("test_a.py::test_list",)})
    assert command.exit_code(unjudged) == 3
    assert "not judged  test_list: only assert_close" in "\n".join(command.lines(unjudged))
    assert command.exit_code(found().model_copy(update={"failure": "it does not run"})) == 3


def test_what_the_candidate_alone_fails_by_another_comparison_is_not_the_same_answer():
    story = Story()
    watched = story.side(OLD, OLD).first
    passed, failed, skipped = ("passed", ""), ("failed", "assert [1] == [2]"), ("skipped", "")
    outcomes = {"a": passed, "b": failed, "c": passed, "d": passed}
    reference = watched.model_copy(update={"outcomes": outcomes})
    after = outcomes | {"a": failed, "c": skipped, "e": failed}
    candidate = watched.model_copy(update={"outcomes": after})
    assert [*command._unjudged(reference, candidate)] == ["a"]
    missed = tuple(
        each.model_copy(update={"test": "a", "holds": False}) for each in watched.compared
    )
    judged = candidate.model_copy(update={"compared": missed})
    assert [*command._unjudged(reference, judged)] == []
    assert [*command._unjudged(reference, reference)] == []


@pytest.mark.processes
def test_the_commit_of_a_checkout_is_an_end_of_a_search_unless_it_has_changes(tmp_path):
    repo = tmp_path / "transformers"
    (sha,) = clone(repo, ("One", source(ops="A = 1\n")))
    assert revision_of("5.15") == "5.15"
    assert revision_of(str(repo)) == sha
    assert revision_of(f"{repo}@{sha}") == sha
    (repo / FOLDER / "ops.py").write_text("A = 2\n")
    with pytest.raises(StackError, match="changes that are in no commit"):
        revision_of(str(repo))
    assert revision_of(f"{repo}@{sha}") == sha
