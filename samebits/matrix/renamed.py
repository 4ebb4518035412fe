"""Former names of keys in matrix.yaml: they are read as the names of now, with a hint."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from samebits.matrix.yamltext import Keys, Problem, Yaml

RENAMED = {"stacks": "environments", "stack": "environment"}
"""Former names of keys -> their names now."""
OF_SETTINGS = {"invariants": "relations", "crossings": "save_load"}
"""The same of a model's settings."""


def with_present_names(yaml: Yaml) -> tuple[Yaml, list[Problem]]:
    """Return a file whose keys have the names of now, and one hint for each former name in it.

    A mapping that has both names keeps both: the former one is then a problem.
    """
    data = copy.deepcopy(yaml.data)
    pairs = dict(yaml.pairs)
    hints: dict[str, Problem] = {}
    problems = list(yaml.problems)
    for keys, part, names in _mappings(data):
        for former in [key for key in part if key in names]:
            now, place = names[former], yaml.place_of_key((*keys, former))
            if now in part:
                text = f"{former}: the former name of {now}, which is set as well: remove this one"
                problems.append(Problem(place, text))
                del part[former]
                continue
            text = f"`{former}` is now called `{now}`; both are read"
            hints[former] = min(Problem(place, text), hints.get(former, Problem(place, text)))
            _rename(part, former, now)
            node = yaml.node(keys)
            pairs[node] = {names.get(key, key): pair for key, pair in pairs[node].items()}
    return replace(yaml, data=data, pairs=pairs, problems=tuple(problems)), [*hints.values()]


def _rename(part: dict[str, Any], former: str, now: str) -> None:
    """Rename a key in place, and keep the order."""
    items = [(now if key == former else key, value) for key, value in part.items()]
    part.clear()
    part.update(items)


def _mappings(data: object) -> Iterator[tuple[Keys, dict[str, Any], dict[str, str]]]:
    """Yield the mappings that may have former names, with these names."""
    if not isinstance(data, dict):
        return
    yield (), data, {"stacks": "environments"}
    for section in ("include", "exclude", "expected"):
        rules = data.get(section)
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict):
                yield (section, number), rule, {"stack": "environment"}
    models = data.get("models")
    named: dict[Keys, object] = {("defaults",): data.get("defaults")}
    if isinstance(models, dict):
        named |= {("models", key): entry for key, entry in models.items()}
    for keys, settings in named.items():
        if isinstance(settings, dict):
            yield keys, settings, OF_SETTINGS
            if isinstance(settings.get("build"), dict):
                yield (*keys, "build"), settings["build"], {"stack": "environment"}
