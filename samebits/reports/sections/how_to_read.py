"""How to read report.md: an explanation of its words, the same in every report."""

from __future__ import annotations

from samebits.text.blocks import bullets, heading, page, table
from samebits.text.markdown import Markdown, code

VERDICTS = {
    "reference": "the cell that the other cells of its row are compared with",
    "identical": "every compared tensor holds the same bytes",
    "rounding": "bytes differ, but the difference goes away as the arithmetic gets more precise "
    "(the variant's dtype, then float32, then promoted float64)",
    "diverged": "the difference does not go away: a behaviour change, "
    "however small the difference is",
    "undecided": "bytes differ, and it is undecided whether this is rounding or a behaviour change; "
    "the reason is given",
    "unstable": "the cell does not reproduce itself: a second run or load gives different bits, or "
    "the model reads uninitialised memory",
    "failed": "the model did not load, or a phase raised an exception. The phase and the exception "
    "are given. Results of the other phases are compared, and their verdict is the *rest*",
    "not finished": "a run, or a closer look at a difference, ended early because time or memory "
    "was short. What was observed before is compared, and its verdict is the *rest*",
    "not observed": "no forward was compared, because samebits cannot make inputs for the model or "
    "its forward rejects them; what was compared is given",
    "absent": "this release does not have this architecture or feature",
    "expected": "the matrix file lists this difference",
    "fixed": "the matrix file lists a difference that is gone: the run fails until the entry "
    "is removed",
}

WORDS = {
    "environment": "a release of transformers, with torch and all other packages at "
    "resolved versions",
    "variant": "dtype, attention implementation and device of a model: `float32-default`, where "
    "`default` is what the release chooses",
    "cell": "one model in one variant in one environment: `llama/float32-default@4.48`",
    "starts with": "the first operation, mask, table or tensor before the difference whose inputs "
    "are all the same and whose result is not",
    "the same numbers in different shapes": "both releases give the same elements to the same "
    "operation, but split differently into heads, batches or rows; a kernel adds up other shapes "
    "in another order",
    "swapping only x restores the bits": "with the reference's x put into this release, it gave "
    "the reference's bytes; *only*: no smaller set of swaps does",
    "finding": "a known defect, such as `SB301`; docs/findings has a page for each",
    "rest": "the verdict on what was compared, where a phase failed or a run did not finish",
    "reproducer": "a folder under repro/ that reproduces one difference without samebits",
}

FIGURES = (
    "Each row has its own reference: the reference environment, or the oldest environment that ran the model.",
    "Every figure is relative to the row's reference cell: same checkpoint, same inputs.",
    "max abs and mean abs are over all elements that are finite on both sides, equal or not.",
    "NaN and infinities are counted separately: `NaN: 0 → 3` is none in the reference, 3 in the candidate.",
    "max rel is relative to the reference's element, where that is not zero.",
    "max ULP is in units in the last place of the coarser of the two dtypes.",
    "Values of different sign can be billions of ULP apart: then only the size is given.",
    "Padding rows are compared separately and do not affect the verdict.",
    "`decode` is the logits of each greedy step, up to the first step with different tokens.",
    "A percentage is 0 % only if it is none, and 100 % only if it is all.",
    "`config`, `load` and `attention.kernel` explain a verdict and never decide one.",
    "A config field counts as off or at a default if it is None, False, 0, 1 or empty.",
    "The largest differences give the index in the tensor; its last number is the token id.",
    (
        "A relation compares two ways to compute the same rows in one release. It holds if all "
        "their bytes agree, or for greedy decoding if all tokens agree."
    ),
    (
        "The figure in brackets is the same difference in float64, as in `7.9e-07 (1.6e-15)`, or "
        "a dash where no float64 run was possible. A relation is **broken** if the difference "
        "is still there in float64. It is `rounding` if almost nothing is left in float64. "
        "In between, or without float64, it is `undecided`."
    ),
)


def how_to_read() -> Markdown:
    """Return the meaning of the words, and what each figure is relative to."""
    verdicts = [[code(word), Markdown(meaning)] for word, meaning in VERDICTS.items()]
    return page(
        [
            heading(2, "How to read this report"),
            table(["verdict", "means"], verdicts),
            table(["word", "means"], [[word, Markdown(text)] for word, text in WORDS.items()]),
            bullets(map(Markdown, FIGURES)),
        ]
    )
