"""Processors as a capture has them, from plain arrays."""

import hashlib

import numpy as np

from samebits.questions.processors.records import (
    ArrayFacts,
    ProcessorCase,
    ProcessorPart,
    ProcessorsSignal,
    ProcessorStep,
)

N_PROJECTIONS = 4


def facts(array):
    """Return the facts of an array; probes.test_arrays compares them with those of the probe."""
    array = np.asarray(array)
    flat = array.reshape(-1).astype(np.float64)
    weights = np.random.default_rng(5).uniform(-1, 1, (N_PROJECTIONS, flat.size))
    return ArrayFacts(
        dtype=str(array.dtype),
        shapes=(array.shape,),
        hash=hashlib.sha256(array.tobytes()).hexdigest()[:16],
        n=flat.size,
        projections=tuple(weights @ flat),
        sample=tuple(flat[:3]),
    )


def step(name, array, settings="{}", input="x"):
    return ProcessorStep(name=name, settings=settings, input=input, output=facts(array))


def case(own, promoted=None, *, steps=(), promoted_steps=(), key="pixel_values", **fields):
    """Return a case with one output, in its own precision and in float64."""
    return ProcessorCase(
        outputs={key: facts(own)},
        promoted=None if promoted is None else {key: facts(promoted)},
        steps=steps,
        promoted_steps=promoted_steps,
        **fields,
    )


def signal(cases=(), part="image processor", **fields):
    """Return a signal of one part."""
    named = {"class_name": "ViTImageProcessor", "backend": "pil"} | fields
    return ProcessorsSignal(parts={part: ProcessorPart(cases=dict(cases), **named)})
