"""The same checkpoint loaded by other classes in two environments.

In each environment the load is compared with that by the checkpoint's own class, so that what changes there,
the form of its tensors and its numbers are no difference here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.classes.records import ClassDifference, ClassesReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.questions.classes.records import ClassesSignal, ClassLoad, Kind


def differences(reference: ClassesSignal, candidate: ClassesSignal) -> Iterator[ClassDifference]:
    """Yield the classes that do not read the same."""
    for name, before in reference.loads.items():
        after = candidate.loads.get(name)
        if kind := _kind(before, after):
            yield ClassDifference(name=name, kind=kind, reference=before, candidate=after)


def report(stack: str, reference: ClassesSignal, candidate: ClassesSignal) -> ClassesReport:
    """Compare the loads of two environments; ``stack`` is the reference's."""
    return ClassesReport(reference=stack, differences=tuple(differences(reference, candidate)))


def _kind(before: ClassLoad, after: ClassLoad | None) -> Kind | None:
    if after is None or before.model_class != after.model_class:
        return "class"
    if before.raised or after.raised or before.left_out or after.left_out:
        return None  # SB931 and SB932 name what raises
    left = before.elements_left != after.elements_left
    # a class that has other tensors itself is a matter of the verdict
    if left and before.elements - before.elements_left != after.elements - after.elements_left:
        return "tensors"
    outputs = {before.outputs, after.outputs}
    return "outputs" if not left and outputs == {"same bits", "other bits"} else None
