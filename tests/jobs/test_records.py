"""The jobs of both sides: the records that the host sends, and the keys that the probes read."""

import ast
import inspect
import sys
import types
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from pydantic import TypeAdapter

from samebits.jobs import records
from samebits.records.kinds import KINDS
from samebits.records.record import Record

PROBES = Path(__file__).parents[2] / "probes"
sys.path.insert(0, str(PROBES))

from samebits_wire import jobs as read

ADDED = {"id", "slots"}
"""Keys that the process of a stack adds."""


def kinds():
    """Return KINDS of probes/stack.py, read from its source."""
    for node in ast.parse((PROBES / "stack.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KINDS":
            return ast.literal_eval(node.value)
    raise AssertionError


def sent_jobs():
    """Return the record of every job; a class that others derive from is none."""
    classes = [c for c in vars(records).values() if inspect.isclass(c)]
    return [
        c
        for c in classes
        if issubclass(c, records.Job) and not any(c in other.__bases__ for other in classes)
    ]


def keys(form, above=()):
    """Return the keys of a record or a TypedDict at every depth, as one comparable value."""
    if get_origin(form) is not None and hasattr(form, "__metadata__"):
        form = get_args(form)[0]  # Annotated
    if form in above:
        return "as above"
    if is_typeddict(form):
        hints = get_type_hints(form)
        return {name: keys(hints[name], (*above, form)) for name in sorted(hints.keys() - ADDED)}
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


def test_every_kind_has_a_record():
    assert {form.model_fields["kind"].default for form in sent_jobs()} == kinds().keys()


@pytest.mark.parametrize("form", sent_jobs(), ids=name)
def test_both_sides_have_the_same_keys(form):
    keys_read = getattr(read, form.__name__)
    assert keys(form) == keys(keys_read)
    assert get_args(get_type_hints(keys_read)["kind"]) == (form.model_fields["kind"].default,)


@pytest.mark.parametrize("form", sent_jobs(), ids=name)
def test_the_module_of_the_kind_reads_these_keys(form):
    module = kinds()[form.model_fields["kind"].default]
    path = PROBES / f"{module.replace('.', '/')}.py"
    functions = (
        n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.FunctionDef)
    )
    run = next(function for function in functions if function.name == "run")
    assert form.__name__ in ast.unparse(run.args.args[0].annotation)


def test_the_table_of_kinds_has_those_of_the_stack():
    assert {kind.name for kind in KINDS} == kinds().keys() - {"build", "capsule"}  # not kept


def test_every_task_is_a_key_of_its_job():
    for task, (job, key) in records.JOB_OF.items():
        form = job.model_fields[key].annotation
        assert task in (get_args(form) or (form,))


def test_another_key_at_any_depth_is_noticed():
    class Inner(Record):
        a: int

    class Outer(Record):
        inner: dict[str, Inner] | None

    class Renamed(Record):
        inner: dict[str, records.JobStore] | None

    assert keys(Outer) != keys(Renamed)
    assert keys(records.CellModel) != keys(records.PromptedModel)


def test_prompts_are_sent_with_the_keys_that_were_given():
    source = {"source": "/c", "revision": None, "trust_remote_code": False}
    source |= {"imports": [], "model_class": None, "load": {}, "logits": None}
    prompts = {"pair": {"batch": [{"length": 2}]}, "text": {"text": "a"}}
    form = TypeAdapter(records.PromptedModel)
    assert form.dump_python(form.validate_python(source | {"prompts": prompts}), mode="json") == (
        source | {"prompts": prompts}
    )
