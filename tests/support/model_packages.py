"""Packages of models for tests: the code of tests/custom as a package that registers itself."""

import json
import shutil
from pathlib import Path

from samebits.base.patches import patched_files

CUSTOM = Path(__file__).parents[1] / "custom"
_REGISTERING = """
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from .configuration_tiny import TinyConfig
from .modeling_tiny import TinyForCausalLM, TinyModel

AutoConfig.register("tiny_custom", TinyConfig)
AutoModel.register(TinyConfig, TinyModel)
AutoModelForCausalLM.register(TinyConfig, TinyForCausalLM)
"""


def make_package(folder, name, *, patches=(), code=_REGISTERING, requires=()):
    """Write the source of a package with the model of tests/custom, and return its folder.

    ``name`` is that of its module. The build backend is uv's own, which needs no download.
    """
    module = folder / "src" / name
    module.mkdir(parents=True)
    for file in (CUSTOM / "healthy").glob("*.py"):
        shutil.copy(file, module)
    for file, text in patched_files(CUSTOM / "healthy", [CUSTOM / p for p in patches]).items():
        (module / file).write_text(text, "utf-8")
    (module / "__init__.py").write_text(code, "utf-8")
    lines = [
        "[project]",
        f'name = "{name.replace("_", "-")}"',
        'version = "0.1"',
        f"dependencies = {json.dumps(list(requires))}",
        "[build-system]",
        'requires = ["uv_build>=0.5,<1"]',
        'build-backend = "uv_build"',
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def make_checkpoint(folder, **fields):
    """Write the checkpoint of tests/custom without its code, and return its folder."""
    folder.mkdir(parents=True)
    shutil.copy(CUSTOM / "healthy" / "model.safetensors", folder)
    config = json.loads((CUSTOM / "healthy" / "config.json").read_text("utf-8"))
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config | fields), "utf-8")
    return folder
