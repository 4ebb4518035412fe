"""The job that makes a checkpoint from a recipe; of one without sizes, the tiny model is found first."""

from __future__ import annotations

from typing import Any

import transformers

from samebits_probe.jobs import auto, config_variants
from samebits_probe.model import build, packages
from samebits_probe.process import progress
from samebits_wire.jobs import BuildJob


def run(job: BuildJob) -> None:
    """Make the checkpoint of a job."""
    progress.begin("build")
    model, facts = _tiny(job)
    build.build(job, job["out"], model, facts)


def _tiny(job: BuildJob) -> tuple[Any, dict[str, Any]]:
    """Return the tiny model of a recipe that leaves its sizes open, and facts; None for any other recipe."""
    recipe = job["recipe"]
    is_known = recipe["architecture"] in transformers.CONFIG_MAPPING
    if not recipe.get("auto") or not is_known:
        return None, {}
    packages.import_all(job.get("imports", ()))
    name, head = job.get("model_class"), build.HEADS.get(recipe["head"])
    named = packages.named_class(name) if name is not None else None
    made = auto.make(recipe["architecture"], recipe["seed"], recipe["config"], head, named)
    if made.refused:
        raise auto.NoneMade(made.refused)
    if number := recipe.get("config_variant", 0):
        return config_variants.variant(made, number, recipe["seed"])
    return made.model, {}
