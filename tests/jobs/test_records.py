"""The jobs of both sides: the tasks and jobs that the host sends, and the keys that the probes read."""

import ast
import importlib
import inspect
import pkgutil
import sys
import types
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from samebits import questions
from samebits.jobs import records
from samebits.jobs.common import as_written
from samebits.matrix.spec import Prompt
from samebits.records.kinds import kinds as kinds_of_host
from samebits.records.record import Record

PROBES = Path(__file__).parents[2] / "probes"
sys.path.insert(0, str(PROBES))

from samebits_wire import jobs as read


def kinds():
    """Return KINDS of probes/stack.py, read from its source."""
    for node in ast.parse((PROBES / "stack.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KINDS":
            return ast.literal_eval(node.value)
    raise AssertionError


def jobs_in(module):
    """Return the jobs of a module that have a kind of their own, each with its kind."""
    forms = [form for form in vars(module).values() if is_typeddict(form)]
    named = [(form, get_type_hints(form).get("kind")) for form in forms]
    return [(form, get_args(kind)[0]) for form, kind in named if get_args(kind)]


JOBS = jobs_in(read)


def modules_of(question):
    """Return the modules of a question's folder."""
    package = importlib.import_module(f"{questions.__name__}.{question}")
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def sent_by_questions():
    """Return what each question sends that is its own: its jobs and its tasks."""
    found = []
    for question in questions.questions():
        modules = modules_of(question.name)
        own = {module.__name__ for module in modules}
        tasks = (c for module in modules for c in vars(module).values() if inspect.isclass(c))
        tasks = [c for c in tasks if issubclass(c, records.Task) and c.__module__ in own]
        jobs = [form for m in modules for form, _ in jobs_in(m) if form.__module__ in own]
        found += [(question.name, form) for form in dict.fromkeys([*jobs, *tasks])]
    return found


def read_by_question(question, name):
    """Return the TypedDict of a name in a question's folder of the probes.

    Its module is imported, so it imports no torch.
    """
    folder = PROBES / "samebits_probe" / "questions" / question
    for path in sorted(folder.glob("*.py")):
        names = {n.name for n in ast.parse(path.read_text("utf-8")).body if hasattr(n, "name")}
        if name in names:
            module = f"samebits_probe.questions.{question}.{path.stem}"
            return getattr(importlib.import_module(module), name)
    raise AssertionError(name)


def keys(form, above=()):
    """Return the keys of a record or a TypedDict at every depth, as one comparable value."""
    if get_origin(form) is not None and hasattr(form, "__metadata__"):
        form = get_args(form)[0]  # Annotated
    if form in above:
        return "as above"
    if is_typeddict(form):
        hints = get_type_hints(form)
        return {name: keys(hints[name], (*above, form)) for name in sorted(hints)}
    if inspect.isclass(form) and issubclass(form, Record):
        fields = sorted(form.model_fields.items(), key=lambda item: item[0])
        return {name: keys(field.annotation, (*above, form)) for name, field in fields}
    if get_origin(form) in {Union, types.UnionType}:
        parts = [part for argument in get_args(form) if (part := keys(argument, above))]
        return parts[0] if len(parts) == 1 else sorted(parts, key=repr)
    parts = [part for argument in get_args(form) if (part := keys(argument, above))]
    return parts[0] if len(parts) == 1 else parts


def name(form):
    return form.__name__


def test_every_kind_has_its_keys():
    assert {kind for _, kind in JOBS} == kinds().keys()


@pytest.mark.parametrize(
    "form",
    [records.Rungs, records.Tracing, records.DonorTask, records.PatientTask, records.Options],
    ids=name,
)
def test_both_sides_have_the_same_keys(form):
    assert keys(form) == keys(getattr(read, form.__name__))


@pytest.mark.parametrize(("question", "form"), sent_by_questions())
def test_both_sides_of_a_question_have_the_same_keys(question, form):
    keys_read = read_by_question(question, form.__name__)
    assert keys(form) == keys(keys_read)
    if is_typeddict(form):
        (kind,) = get_args(get_type_hints(form)["kind"])
        assert get_args(get_type_hints(keys_read)["kind"]) == (kind,)
        assert kind.partition(".")[0] == question


def test_the_kinds_of_questions_are_their_modules():
    for question in questions.questions():
        for kind in question.key.kinds:
            folder, _, module = kind.name.partition(".")
            assert folder == question.name
            # without a module the host keeps something
            assert (
                not module
                or (PROBES / "samebits_probe" / "questions" / folder / f"{module}.py").exists()
            )


@pytest.mark.parametrize(("form", "kind"), JOBS)
def test_the_module_of_the_kind_reads_these_keys(form, kind):
    module = kinds()[kind]
    path = PROBES / f"{module.replace('.', '/')}.py"
    functions = (
        n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.FunctionDef)
    )
    run = next(function for function in functions if function.name == "run")
    assert form.__name__ in ast.unparse(run.args.args[0].annotation)


def test_the_table_of_kinds_has_those_of_the_stack():
    of_questions = {kind.name for q in questions.questions() for kind in q.key.kinds}
    kept = kinds().keys() - {"build", "capsule", "golden"}
    assert {kind.name for kind in kinds_of_host()} == kept | of_questions


def test_another_key_at_any_depth_is_noticed():
    class Inner(Record):
        a: int

    class Outer(Record):
        inner: dict[str, Inner] | None

    class Renamed(Record):
        inner: dict[str, records.Options] | None

    assert keys(Outer) != keys(Renamed)
    assert keys(read.CellModel) != keys(read.PromptedModel)


def test_prompts_are_sent_with_the_keys_that_were_given():
    given = {"pair": {"batch": [{"length": 2}]}, "text": {"text": "a"}}
    assert as_written({n: Prompt.model_validate(keys) for n, keys in given.items()}) == given
