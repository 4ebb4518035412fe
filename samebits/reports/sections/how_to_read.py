"""How to read report.md: an explanation of its words, the same in every report."""

from __future__ import annotations

from samebits.text.blocks import bullets, heading, page, table
from samebits.text.markdown import Markdown, code

VERDICTS = {
    "reference": "the cell that the others of its row are compared with",
    "identical": "every compared tensor holds the same bytes",
    "rounding": "bytes differ, and the difference goes away as the arithmetic gets more precise "
    "(the variant's dtype, then float32, then promoted float64)",
    "diverged": "it does not go away: the two releases compute different functions, however small "
    "the difference is",
    "differs": "bytes differ, and nothing tells whether as rounding or as another function; the "
    "reason stands with it (*undecided*, at a glance)",
    "unstable": "the cell does not agree with itself: a second run or load gives other bits, or it "
    "reads memory that nothing ever wrote",
    "failed": "it did not load, or a phase raised; the phase and the exception are given, and what "
    "the other phases observed is compared, with its own verdict as the *rest*",
    "not finished": "a run ended before it had observed all: its time or memory was short, or a "
    "look at what differs ended early; what was observed before is compared, and its verdict is "
    "the *rest*",
    "not observed": "no forward was compared, as samebits cannot feed the model or its forward "
    "refuses what it is fed; what was compared is said with it",
    "absent": "this release does not know this architecture or feature",
    "expected": "the difference is one that the matrix file names",
    "fixed": "the matrix file names a difference that is gone: the run fails until the entry "
    "is removed",
}

WORDS = {
    "stack": "one environment: a release of transformers with torch and everything resolved with "
    "them",
    "variant": "dtype, attention implementation and device of a model: `float32-default`, where "
    "`default` is what the release chooses",
    "cell": "one model in one variant on one stack: `llama/float32-default@4.48`",
    "starts with": "the first operation, mask, table or tensor on the way to the difference that "
    "parts although all that it is given is the same",
    "the same numbers in other shapes": "both releases hand the same elements to the same "
    "operation, cut into other heads, batches or rows, and a kernel sums other shapes in "
    "another order",
    "swapping only x restores the bits": "the reference's x was put into this release, which then "
    "gave the reference's bytes; *only*: no smaller set does",
    "finding": "`SB301`: a defect that a rule knows by name; docs/findings has a page for each",
    "rest": "the verdict on what was compared of a cell of which a phase failed or a run did "
    "not finish",
    "capsule": "a folder under repro/ that shows one difference without samebits",
}

FIGURES = (
    "Each row has its own reference: the reference stack, or the oldest that ran the model.",
    "Every figure is relative to that row's reference cell: same checkpoint, same inputs.",
    "max abs and mean abs are over the elements that are finite on both sides, equal ones too.",
    "NaN and infinities are counted apart: `NaN: 0 → 3` is none in the reference, 3 here.",
    "max rel is relative to the reference's element, where that is not zero.",
    "max ULP is in units in the last place of the coarser dtype of the two.",
    "Values of different sign are up to billions of ULP apart: then its size alone is given.",
    "Padding rows are judged apart and count for no verdict.",
    "`decode` is the logits of each greedy step, up to the first where other tokens are chosen.",
    "A percentage is 0 % or 100 % only if it is none or all.",
    "`config`, `load` and `attention.kernel` explain a verdict and never make one.",
    "A config field is off or at a default if it holds None, False, 0, 1, or nothing at all.",
    "The largest differences name the index in the tensor; its last number is the token id.",
    (
        "An invariant compares two ways to compute the same rows in one release: it holds if all "
        "their bytes agree, or for greedy decoding if all tokens do."
    ),
    (
        "The figure in brackets is the same difference in float64, as in `7.9e-07 (1.6e-15)`, or "
        "a dash where no float64 run was possible. A relation is **broken** if the difference "
        "stays there; one that shrinks only a little `differs`, and nothing more is said."
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
