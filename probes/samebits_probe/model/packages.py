"""Model classes that packages bring: imports that register them, and a class named by the user."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from transformers.models.auto import modeling_auto

from samebits_probe.process import own
from samebits_probe.process.failure import phase

_MAX_LISTED = 8


def import_all(modules: Iterable[str]) -> None:
    """Import modules that register models with the Auto classes; a second time does nothing.

    Raises:
        PhaseFailed: an import raised, in phase ``import`` and the name of the module.

    """
    for name in modules:
        own.add(name)
        with phase(f"import {name}"):
            if is_missing(name):
                raise ModuleNotFoundError(_missing_text(name), name=name)
            importlib.import_module(name)


def named_class(text: str) -> Any:
    """Return the class ``package.module:Name``.

    Raises:
        PhaseFailed: there is no such class, or it is none that loads checkpoints.

    """
    module_name, _, name = text.partition(":")
    import_all([module_name])
    with phase("import"):
        module = sys.modules[module_name]
        model_class = getattr(module, name, None)
        if not isinstance(model_class, type):
            raise AttributeError(_no_class_text(module, name))  # noqa: TRY004  a missing name
        if not hasattr(model_class, "from_pretrained"):
            raise TypeError(
                f"{name} of {module_name} has no from_pretrained: name a class that derives from "
                "PreTrainedModel, after class: in matrix.yaml"
            )
        return model_class


def registered_class(config: Any, name: str | None) -> Any:
    """Return the class that a package registered for a config with an Auto class, or None.

    Of several, that with ``name``, which is the first of the config's ``architectures``. Without a
    name, or if none has it, the first one: AutoModelForCausalLM before AutoModel, the others after.
    """
    classes = list(_registered(type(config)))
    named = [c for c in classes if c.__name__ == name]
    return next(iter([*named, *classes]), None) if named or name is None else None


def module_of(model_class: type) -> str:
    """Return the module of a class that a package brings; '' for any other class."""
    module = model_class.__module__
    return module if module.partition(".")[0] in own.packages() else ""


def _registered(config_class: type) -> Iterator[Any]:
    # dir(transformers) would take half a second
    autos = [name for name in vars(modeling_auto) if name.startswith("AutoModel")]
    first = ["AutoModelForCausalLM", "AutoModel"]
    for auto in [*first, *(name for name in autos if name not in first)]:
        mapping = getattr(getattr(modeling_auto, auto, None), "_model_mapping", None)
        classes = getattr(mapping, "_extra_content", {}).get(config_class, ())
        yield from classes if isinstance(classes, (tuple, list)) else (classes,)


def is_missing(name: str) -> bool:
    """Return True if there is no such module; an exception of a package above it is not that."""
    if name in sys.modules:
        return False
    parent = name.rpartition(".")[0]
    if parent and is_missing(parent):
        return True
    try:
        return importlib.util.find_spec(name) is None
    except ValueError:  # a module without a spec
        return False


def _missing_text(name: str) -> str:
    installed = own.installed_modules()
    if near := difflib.get_close_matches(name, installed, 1, 0.5):
        return f"no module {name!r} in this environment; did you mean {near[0]!r}?"
    if installed:
        listed = ", ".join(installed[:_MAX_LISTED])
        return f"no module {name!r} in this environment; the model's packages have {listed}"
    return (
        f"no module {name!r} in this environment: name its package after packages: in matrix.yaml"
    )


def _no_class_text(module: Any, name: str) -> str:
    """Return what is wrong with a class, and the classes of the module and of those below it."""
    below = f"{module.__name__}."
    for info in pkgutil.iter_modules(getattr(module, "__path__", []), below):
        with contextlib.suppress(Exception):  # one that needs what is not installed
            importlib.import_module(info.name)
    loaded = [m for n, m in sys.modules.items() if n.startswith(below) and m is not None]
    classes: dict[str, list[str]] = {}
    for owner in [module, *loaded]:
        for key, value in vars(owner).items():
            if isinstance(value, type) and (owner is module or value.__module__ == owner.__name__):
                classes.setdefault(key, []).append(f"{owner.__name__}:{key}")
    near = difflib.get_close_matches(name, classes, 1, 0.5)
    loadable = [
        place
        for key, places in classes.items()
        for place in places[:1]
        if hasattr(getattr(sys.modules[place.partition(":")[0]], key), "from_pretrained")
    ]
    fault = f"{module.__name__} has no class {name}"
    if near:
        place = classes[near[0]][0]
        return f"{fault}; did you mean {place if place.startswith(below) else near[0]}?"
    if not loadable:
        return f"{fault}, and neither it nor a module below it has one with from_pretrained"
    return f"{fault}; with from_pretrained there are {', '.join(loadable[:_MAX_LISTED])}"
