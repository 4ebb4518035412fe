"""SB318: a class that needs a package which the environment lacks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from samebits.base.wheels import package_of
from samebits.findings.case import Case
from samebits.findings.rule import RAISED, Rule, Sighting

NEEDED = "SB318"
"""The finding whose place is the package that a load misses."""
_OF_IMPORT = re.compile(r"(?:\w+\.)*(?:ImportError|ModuleNotFoundError):")
"""How an exception begins that is one of an import."""
_NAMED = (
    r"pip install (?:-U |--upgrade )?(?P<pip>[A-Za-z][\w-]*(?:(?: [A-Za-z][\w-]*)+(?=`))?)"
    r"|requires the (?:🤗 )?(?P<library>[A-Za-z][\w-]*) library but it was not found"
    r"|need to install (?P<install>[a-z][\w-]*)"
    r"|No module named '(?P<module>[A-Za-z]\w*)"
)
"""How releases from 4.48 to 5.24 name them: ``requires_backends``, ``check_imports`` of code beside a checkpoint,
classes that import by themselves, and Python."""
_OF_ENVIRONMENTS = frozenset({"torch", "transformers", "tokenizers", "tensorflow", "flax", "jax"})
"""What an environment has, or what no model of torch needs."""
_TOO_OLD = re.compile(
    r"version of PEFT you are using is not compatible, .* (?:>=|greater than) (?P<least>\d[\d.]*\d)"
)
"""How ``check_peft_version`` of transformers/utils/peft_utils.py refuses an adapter's package."""


def missing_packages(exception: str) -> tuple[str, ...]:
    """Return the packages that an exception, ``TYPE: MESSAGE``, says are missing or too old; () for any other one."""
    message = " ".join(exception.split())
    if too_old := _TOO_OLD.search(message):
        return (f"peft>={too_old['least']}",)
    return tuple(dict.fromkeys(_packages(message))) if _OF_IMPORT.match(exception) else ()


def _packages(message: str) -> Iterator[str]:
    for match in re.finditer(_NAMED, message):
        for package in map(package_of, str(match[match.lastgroup or 0]).split()):
            if package not in _OF_ENVIRONMENTS:
                yield package


def remedy(package: str) -> str:
    """Return the line of evidence that names the command."""
    return f"with it: samebits check --package {shlex.quote(package)}"


def _load_needs(case: Case) -> Iterator[Sighting]:
    """Find what a load or a save misses; of a tokenizer, SB828 says which packages every environment needs."""
    integrity = case.capture.signals.integrity
    if integrity and integrity.round_trip:
        reason = integrity.round_trip.reason
        for package in missing_packages(reason):
            yield Sighting(
                package, (f"save_pretrained, then from_pretrained: {reason}", remedy(package))
            )
    failure = case.failure
    if failure is None or failure.phase == "tokenizer":
        return
    if failure.phase.startswith("import"):
        return  # a module that the user names, of which the run says more
    for package in missing_packages(f"{failure.type}: {failure.message}"):
        yield Sighting(package, (*case.exception_lines(), remedy(package)))


RULES = (Rule(NEEDED, _load_needs, explains=RAISED),)
