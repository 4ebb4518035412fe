"""SB83x: rules for what a model's processors make of images, videos and sounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.records.finding import RuleText
from samebits.text.numbers import number, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.processor import PartComparison, ProcessorDifference, ProcessorOutcome

    Check = Callable[[Case], Iterator[Sighting]]

_MAX_CASES = 3
"""Cases of one finding that the evidence shows."""


def _other_settings(case: Case) -> Iterator[Sighting]:
    """Find settings that the checkpoint's files give alike and the releases do not."""
    for part in case.processors:
        if part.settings and not part.is_on_demand:
            lines = tuple(f"{name}: {before} → {after}" for name, before, after in part.settings)
            yield Sighting(part.part, lines)


def _other_class(case: Case) -> Iterator[Sighting]:
    for part in case.processors:
        if part.fields and not part.is_after and not part.is_on_demand:
            lines = tuple(f"{name}: {before} → {after}" for name, before, after in part.fields)
            yield Sighting(part.part, lines)


def _differing(outcome: ProcessorOutcome) -> Check:
    """Return a check for outputs that differ in this way."""

    def check(case: Case) -> Iterator[Sighting]:
        for part in case.processors:
            if part.is_after and outcome != "rounding":
                continue
            differences = [d for d in part.differences if d.outcome == outcome]
            if outcome == "raised":
                differences = [d for d in differences if d.raises_here]
            if differences:
                yield _sighting(case, part, differences)

    return check


def _other_results(case: Case) -> Iterator[Sighting]:
    """Find methods that make something else of the same outputs of a model."""
    for part in case.processors:
        differences = [
            d
            for d in part.differences
            if d.outcome != "rounding" and (d.outcome != "raised" or d.raises_here)
        ]
        if part.is_after and differences:
            yield _sighting(case, part, differences)


def _sighting(case: Case, part: PartComparison, differences: list[ProcessorDifference]) -> Sighting:
    names = {difference.case for difference in differences}
    lines = [f"{len(names)} of {plural(part.n_compared, 'input')} differ in this way"]
    for difference in differences[:_MAX_CASES]:
        lines.append(_summary(difference))
        lines += side_lines(case, difference.reference, difference.candidate)
    step = next((d.step for d in differences if d.step), "")
    first = f"{part.part}: {differences[0].case}"
    return Sighting(first if not step else f"{first}, {step}", tuple(lines))


def _summary(difference: ProcessorDifference) -> str:
    name = f"{difference.case}, {difference.output}" if difference.output else difference.case
    facts = [f"first step that differs: {difference.step}"] if difference.step else []
    if difference.size is not None:
        facts.append(f"root mean square of the difference about {number(difference.size)}")
    if difference.promoted_size is not None:
        facts.append(f"in float64 {number(difference.promoted_size)}")
    if difference.reason:
        facts.append(difference.reason)
    return f"{name}: {'; '.join(facts)}" if facts else name


def _not_loaded(case: Case) -> Iterator[Sighting]:
    """Find processors that the reference loads and this release does not."""
    for part in case.processors:
        candidate = case.capture.signals.processors
        assert candidate is not None
        is_asked = part.load is not None and not part.is_after and not part.is_on_demand
        if is_asked and not candidate.parts[part.part].class_name:
            assert part.load is not None
            yield Sighting(part.part, side_lines(case, *part.load))


_AUTO = "transformers/models/auto/image_processing_auto.py"
_RESIZE = "transformers/image_transforms.py, resize"
_ISSUE = "https://github.com/huggingface/transformers/issues"
_KEEP = (
    "AutoImageProcessor.from_pretrained(model, use_fast=False)   # 4.48 to 5.2\n"
    'AutoImageProcessor.from_pretrained(model, backend="pil")    # 5.23'
)

RULES = (
    Rule(
        RuleText(
            code="SB831",
            name="a processor is read with other settings",
            kind="silent",
            looks_for="a setting that the processors of both releases have, with another value: "
            "size, crop_size, resample, mean, std, rescale_factor, sampling_rate …",
            cause="A release changed the default of a class, or reads a key of the checkpoint's "
            "file in another way, such as an integer size that becomes a dict. The model was "
            "trained with the values of one of them. Affected: checkpoints that leave the setting "
            "to the default, and old files.",
            remedy="Write all settings into preprocessor_config.json, as the reference shows them.",
            example='{"size": {"height": 224, "width": 224}, "resample": 2, "do_center_crop": true}',
            releases="depends on the class and on the file",
            references=(_AUTO,),
        ),
        _other_settings,
    ),
    Rule(
        RuleText(
            code="SB832",
            name="AutoImageProcessor returns another class or backend",
            kind="api",
            scope="release",
            looks_for="a processor whose class or backend (pil, torchvision, python) is another one "
            "for the same checkpoint and the same installed packages",
            cause="Releases of 5.x choose the torchvision backend where torchvision is installed, "
            "and else a class whose name ends in Pil. Earlier ones choose the slow class unless "
            "use_fast is set. Affected: code that tests for the class, and numbers that depend on "
            "the backend; those are SB833 and SB834.",
            remedy="Name the backend in the call.",
            example=_KEEP,
            releases="Measured with 5.23 against 4.48: class names that end in Pil.",
            references=(_AUTO, f"{_ISSUE}/39591"),
        ),
        _other_class,
    ),
    Rule(
        RuleText(
            code="SB833",
            name="a processor computes another function of the same input",
            kind="silent",
            looks_for="an image, a video or a sound that becomes other values, also in float64; or "
            "other integers, such as masks and grids. The first step that differs is named",
            cause="Another kernel of the resize, another size, crop, order of the steps, mean or "
            "rescaling, or an alpha channel or a palette that is converted otherwise. It is no "
            "rounding: both releases' code was run in float64, with images resized in float64 by "
            "the kernel that each names, and the difference stays. The model's inputs are others "
            "than those it was trained or evaluated with.",
            remedy="Set what the named step takes in preprocessor_config.json, or name the backend "
            "that the reference uses.",
            example=_KEEP,
            releases="depends on the class",
            references=(_RESIZE, f"{_ISSUE}/46688", f"{_ISSUE}/40136"),
        ),
        _differing("other function"),
    ),
    Rule(
        RuleText(
            code="SB834",
            name="a processor rounds otherwise",
            kind="rounding",
            looks_for="values that differ, and that almost vanish when the code of both releases "
            "runs in float64, with images resized in float64",
            cause="The same kernel, size and order in other arithmetic: Pillow resizes in 8 bits and "
            "integers, torchvision in floats; rescale and normalize are two operations or one; "
            "sums are taken in another order or in another float. An image that is stored in 8 "
            "bits between two steps can differ by one of 255 levels.",
            remedy="Nothing is wrong. Name the backend if an evaluation must give the same numbers.",
            example=_KEEP,
            releases="depends on the class and the backend",
            references=(_RESIZE, f"{_ISSUE}/37143"),
        ),
        _differing("rounding"),
    ),
    Rule(
        RuleText(
            code="SB835",
            name="a processor returns other keys, shapes or dtypes",
            kind="api",
            looks_for="an input that both releases process, with an output that only one returns, or "
            "that has another shape or dtype",
            cause="A release returns masks or sizes that others leave out, pads to another length, "
            "splits images into another number of patches, or returns another dtype. Affected: "
            "code that names the key, and models that count the tokens of an image.",
            remedy="Ask for the output in the call, or set size, padding and the limits of pixels in "
            "preprocessor_config.json.",
            releases="depends on the class",
            references=("transformers/image_processing_base.py, BatchFeature",),
        ),
        _differing("other form"),
    ),
    Rule(
        RuleText(
            code="SB836",
            name="a processor raises for an input that the reference takes",
            kind="crash",
            looks_for="an image, a video or a sound for which only this release raises",
            cause="Releases check and convert inputs differently: images in gray or with an alpha "
            "channel, arrays with one or four channels, very small images, short sounds.",
            remedy="Convert the input before the call, or set do_convert_rgb in "
            "preprocessor_config.json.",
            example='processor(images=image.convert("RGB"))',
            releases="depends on the class",
            references=("transformers/image_utils.py",),
        ),
        _differing("raised"),
    ),
    Rule(
        RuleText(
            code="SB837",
            name="a processor does not load",
            kind="crash",
            looks_for="a processor that the reference loads for the checkpoint, and for which this "
            "release raises or lacks a package",
            cause="The class was removed or renamed, or needs a package that it did not need before: "
            "classes of 5.x that have no Pil counterpart need torchvision.",
            remedy="Install the package that the message names. In samebits, name it under packages.",
            example="packages: [pillow, torchvision]  # matrix.yaml",
            releases="depends on the class",
            references=(_AUTO,),
        ),
        _not_loaded,
    ),
    Rule(
        RuleText(
            code="SB838",
            name="a processor makes other boxes, masks or texts of the same outputs",
            kind="silent",
            looks_for="a method such as post_process_object_detection or batch_decode that gives "
            "other values, keys or texts for the same outputs of a model, or raises only here; values "
            "that differ by rounding are SB834",
            cause="A release changed a threshold, the order or the scale of boxes, how masks are "
            "resized, or how ids become a text. The model computes the same, and its users get other "
            "results.",
            remedy="Name the arguments of the method in the call: threshold, target_sizes, "
            "skip_special_tokens, clean_up_tokenization_spaces.",
            example="processor.post_process_object_detection(outputs, threshold=0.5, target_sizes=sizes)",
            releases="depends on the class",
            references=("transformers/image_processing_utils.py", f"{_ISSUE}/46688"),
        ),
        _other_results,
    ),
    Rule(
        RuleText(
            code="SB839",
            name="a processor's values differ, and float64 does not show why",
            kind="silent",
            looks_for="values that differ where one side could not be run in float64, or where the "
            "difference shrinks there, but not as rounding does",
            cause="A step that has no version in float64, such as a resize by Pillow itself or of an "
            "image with an alpha channel; or a constant that was rounded when the object was made. "
            "It may be rounding or another function; the size of the difference is given.",
            remedy="Look at the step that is named, or name the backend that the reference uses.",
            example=_KEEP,
            releases="depends on the class",
            references=(_RESIZE,),
        ),
        _differing("undecided"),
    ),
)
