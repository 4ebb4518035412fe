"""SB3xx: what a model's own ``from_pretrained`` leaves out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samebits.lint.problem import LintRule, Problem
from samebits.lint.project import Project, problem
from samebits.lint.releases import since
from samebits.lint.syntax import argument_names, inside

_OLD, _NEW = "torch_dtype", "dtype"


def _unheeded_dtype(project: Project) -> Iterator[Problem]:
    """Find a load of the model's own that knows the old name of the dtype alone."""
    for entry in project.models:
        method = entry.method("from_pretrained")
        if method is None or project.own_load(entry) is not method:
            continue
        keys = [node for node in inside(method, ast.Constant) if node.value in (_OLD, _NEW)]
        arguments = argument_names(method)
        if _NEW in arguments or any(node.value == _NEW for node in keys):
            continue
        if keys or _OLD in arguments:
            yield problem(
                entry.source,
                keys[0] if keys else method,
                "AutoModel passes dtype to this from_pretrained, which only reads torch_dtype: "
                "the parameters stay in float32",
                since("4.56"),
                'read both: kwargs.pop("dtype", None) or kwargs.pop("torch_dtype", None)',
            )


RULES = (LintRule("SB324", "error", _unheeded_dtype),)
