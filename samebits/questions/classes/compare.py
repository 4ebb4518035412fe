"""The same checkpoint loaded by other classes in two environments.

In each environment the load is compared with that by the checkpoint's own class, so that what changes there,
the form of its tensors and its numbers are no difference here.
"""

from __future__ import annotations

from collections.abc import Iterator

from samebits.questions.classes.records import (
    ClassDifference,
    ClassesSignal,
    ClassLoad,
    Kind,
    NewModel,
    Samples,
)

_BAND = {"float64": 1e-3, "float32": 1e-2}
"""Share of the largest value above which values of a head differ: far above what rounds, in code that casts to
float32 inside as well."""
_SAME = 1e-5
"""Share up to which base models compute the same."""


def differences(reference: ClassesSignal, candidate: ClassesSignal) -> Iterator[ClassDifference]:
    """Yield the classes that do not read the same.

    Where the reference's Auto class knows none, the candidate's must be a class that the reference has, too: else
    it is a new one.
    """
    classes = {load.model_class for load in reference.loads.values()}
    for name, before in reference.loads.items():
        after = candidate.loads.get(name)
        if not before.model_class and (after is None or after.model_class not in classes):
            continue
        if kind := _kind(before, after):
            yield ClassDifference(name=name, kind=kind, reference=before, candidate=after)
    for name in (name for name in reference.from_base if name in candidate.from_base):
        before, after = reference.from_base[name], candidate.from_base[name]
        # the base model of another release may be another part
        is_whole = not (before.elements_left and after.elements_left)
        if is_whole and (kind := _kind(before, after)):
            yield ClassDifference(name=name, kind=kind, reference=before, candidate=after)


_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16}


def smaller(new: NewModel) -> dict[str, tuple[str, ...]]:
    """Return the tensors of a new model that have fewer bits than what was asked for, and their dtypes."""
    bits = _BITS.get(new.asked, 0)
    return {
        name: dtypes
        for name, dtypes in new.dtypes.items()
        if any(_BITS.get(dtype, bits) < bits for dtype in dtypes)
    }


def other_dtypes(
    before: NewModel, after: NewModel
) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the tensors of both sides that have other dtypes, but those that have too few bits on a side."""
    shrunk = smaller(before).keys() | smaller(after).keys()
    return {
        name: (dtypes, after.dtypes[name])
        for name, dtypes in before.dtypes.items()
        if name not in shrunk and after.dtypes.get(name, dtypes) != dtypes
    }


def _kind(before: ClassLoad, after: ClassLoad | None) -> Kind | None:
    if after is None or before.model_class != after.model_class:
        return "class"
    if before.raised or after.raised or before.left_out or after.left_out:
        return None  # SB931 and SB932 name what raises
    left = before.elements_left != after.elements_left
    # a class that has other tensors itself is a matter of the verdict
    if left and before.elements - before.elements_left != after.elements - after.elements_left:
        return "tensors"
    outputs = (before.outputs, after.outputs)
    if not left and None not in outputs and sum(each == "other bits" for each in outputs) == 1:
        return "outputs"
    return "head" if changed_outputs(before, after) else None


def changed_outputs(before: ClassLoad, after: ClassLoad) -> tuple[str, ...]:
    """Return the outputs of a head that differ where the base model below it computes the same.

    Only heads whose parameters were filled alike are compared.
    """
    if before.fresh != after.fresh or before.n_fresh != after.n_fresh or not before.base_numbers:
        return ()
    if _have_other_shapes(before.base_numbers, after.base_numbers):
        return ()  # of a prompt of another length, where a tokenizer splits it otherwise
    if _differing(before.base_numbers, after.base_numbers, _SAME):
        return ()
    band = max(_BAND[load.dtype] for load in (before, after) if load.dtype is not None)
    return _differing(before.numbers, after.numbers, band)


def _have_other_shapes(before: Samples, after: Samples) -> bool:
    first, second = ({name.partition("(")[0]: name for name in each} for each in (before, after))
    return any(first[name] != second[name] for name in first.keys() & second.keys())


def _differing(before: Samples, after: Samples, band: float) -> tuple[str, ...]:
    """Return the outputs on both sides that are further apart than a share of their largest value."""
    return tuple(
        name for name in before if name in after and not _is_close(before[name], after[name], band)
    )


def _is_close(before: tuple[float, ...], after: tuple[float, ...], band: float) -> bool:
    scale = max(map(abs, (*before, *after)), default=0.0)
    return all(abs(a - b) <= band * scale for a, b in zip(before, after, strict=True))
