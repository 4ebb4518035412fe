"""All lint rules: every module of ``samebits.lint.rules`` has a tuple ``RULES``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from samebits.lint import rules as package
from samebits.lint.problem import LintRule


@cache
def rules() -> tuple[LintRule, ...]:
    """Return the rules of all modules, in the order of their codes."""
    names = sorted(module.name for module in iter_modules(package.__path__))
    modules = [import_module(f"{package.__name__}.{name}") for name in names]
    return tuple(sorted((rule for m in modules for rule in m.RULES), key=lambda rule: rule.code))
