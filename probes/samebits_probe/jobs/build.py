"""The job that makes a checkpoint from a recipe; of one without sizes, the tiny model is found first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import transformers

from samebits_probe.jobs import auto
from samebits_probe.model import build
from samebits_probe.process import progress

if TYPE_CHECKING:
    from samebits_wire.jobs import BuildJob


def run(job: BuildJob) -> None:
    """Make the checkpoint of a job."""
    progress.begin("build")
    build.build(job, job["out"], _tiny(job))


def _tiny(job: BuildJob) -> Any:
    """Return the tiny model of a recipe that leaves its sizes open; None for any other recipe.

    Raises:
        NoneMade: no tiny model runs.

    """
    recipe = job["recipe"]
    is_known = recipe["architecture"] in transformers.CONFIG_MAPPING
    if not recipe.get("auto") or job.get("model_class") is not None or not is_known:
        return None
    head = build.HEADS.get(recipe["head"])
    made = auto.make(recipe["architecture"], recipe["seed"], recipe["config"], head)
    if made.refused:
        raise auto.NoneMade(made.refused)
    return made.model
