"""Files of an artefact, changed after they are saved."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any


def edit(folder: str, name: str = "config.json", drop: Iterable[str] = (), **fields: Any) -> None:
    """Write fields into a JSON file, without those to drop."""
    path = Path(folder, name)
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    for key in drop:
        del values[key]
    path.write_text(json.dumps(values | fields, indent=2), "utf-8")


def add_code(folder: str, code: str, **fields: Any) -> None:
    """Write ``OwnForCausalLM`` beside its weights, with a config if the code has one, and let config.json name them."""
    Path(folder, "modeling_own.py").write_text(code, "utf-8")
    classes = {"AutoConfig": "OwnConfig", "AutoModelForCausalLM": "OwnForCausalLM"}
    auto = {key: f"modeling_own.{name}" for key, name in classes.items() if f"class {name}" in code}
    edit(folder, architectures=["OwnForCausalLM"], auto_map=auto, **fields)


def imported(folder: str, code: str) -> ModuleType:
    """Write own code and return it as a module, to make a model of."""
    Path(folder, "modeling_own.py").write_text(code, "utf-8")
    sys.path.insert(0, folder)
    return importlib.import_module("modeling_own")
