"""Relations of one model: details of those where two ways did not compute the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from samebits.questions.made_models import made_models
from samebits.questions.relations import untried
from samebits.questions.relations.averages import has_averages
from samebits.questions.relations.judge import Standing, judge_relation
from samebits.questions.relations.lines import SEVERITY, Line, lines
from samebits.questions.relations.precision import (
    has_suspicious,
    has_unknown_precision,
    precision_table,
)
from samebits.questions.relations.records import (
    CacheTensor,
    GreedySplit,
    Relation,
    RelationName,
    TopDifference,
    signals_of,
)
from samebits.questions.relations.section import TITLE
from samebits.records.distance import Distance
from samebits.records.report import Row
from samebits.text.blocks import below, codes, details, fence, heading, page, table, titled
from samebits.text.lists import group_equal, grouped
from samebits.text.markdown import EMPTY, Markdown, code, fill, join
from samebits.text.numbers import count, exact, pair, part, plural, size

WAYS: dict[RelationName, tuple[str, str]] = {
    "full forward = prefill + decode": ("full forward", "prefill + decode"),
    "prefill split anywhere": ("full forward", "split"),
    "multi-token verify = single-token decode": ("single-token decode", "multi-token verify"),
    "cache contents": ("one pass", "two passes"),
    "prefix cache reused": ("fresh run", "copied cache"),
    "greedy without cache = with cache": ("without cache", "with cache"),
    "greedy by hand = generate()": ("generate()", "by hand"),
    "generate() past a switch of rope = without a cache": ("without a cache", "with a cache"),
    "position ids left out": ("given", "left out"),
    "left padding": ("alone", "padded"),
    "left padding, positions left out": ("alone", "padded"),
    "right padding": ("alone", "padded"),
    "batch position": ("first", "last"),
    "batch size": ("alone", "in a batch"),
    "row order": ("in order", "turned"),
    "causality": ("as it is", "changed later"),
    "experts in another order": ("in order", "turned"),
    "embeddings = token ids": ("token ids", "embeddings"),
    "generate() from embeddings = from token ids": ("token ids", "embeddings"),
    "rows with images = one by one": ("in a batch", "alone"),
    "rows of text after images = before": ("before", "after"),
    "generate() with images or sounds = forward": ("generate()", "forward"),
    "generate() of a padded row = without padding": ("padded", "without padding"),
    "generate() over the cache of a turn = anew": ("over the cache", "anew"),
    "generate(use_cache=False) with images or sounds = with a cache": (
        "without a cache",
        "with a cache",
    ),
    "SDPA = eager attention": ("SDPA", "eager"),
}
"""Names of ``one`` and ``other`` of each relation, as probes/samebits_probe/relations/cases.py and
probes/samebits_probe/relations/greedy.py compute them."""

MAX_SIZES = 16
"""Limit for the figures in one line; a reader cannot take in more at a glance."""

MAX_IN_FULL = 4
"""Limit for the relations with all details, the most severe first; report.json has them all."""

MAX_TENSORS = 8
"""Limit for the cache tensors of a table; report.json has them all."""

MAX_TOKENS_TEXT = 300
"""Limit in characters for a list of tokens; the middle of a longer one is left out."""


def has_relation_details(rows: Iterable[Row]) -> bool:
    """Return True if a model's page needs more than the remark that all relations hold."""
    rows = list(rows)
    return (
        any(not line.holds for line in lines(rows))
        or any(map(has_averages, rows))
        or any(map(has_suspicious, rows))
        or any(map(has_unknown_precision, rows))
    )


def relations_of(rows: list[Row]) -> Markdown:
    """Return every relation of a model, and all details of those that do not hold bit for bit."""
    if not any(signals_of(row) for row in rows):
        return EMPTY
    all_lines = lines(rows)
    differing = [line for line in all_lines if not line.holds]
    differing.sort(key=_severity, reverse=True)
    return page(
        [
            heading(2, TITLE),
            made_models(rows, signals_of),
            _overview(differing),
            _holding([line for line in all_lines if line.holds and line.cases]),
            untried.left_out(all_lines),
            untried.not_promoted(rows),
            *map(_in_full, differing[:MAX_IN_FULL]),
            precision_table(rows),
        ]
    )


def _severity(line: Line) -> int:
    return max(
        SEVERITY.index(result) for stack in line.cases if (result := line.standing_on(stack))
    )


def _overview(differing: list[Line]) -> Markdown:
    stacks = list(dict.fromkeys(stack for line in differing for stack in signals_of(line.row)))
    rows = [[line.name, line.row.variant, *map(line.word, stacks)] for line in differing]
    return table(["relation", "variant", *stacks], rows)


def _holding(holding: list[Line]) -> Markdown:
    """Return the relations that hold everywhere; variants with the same ones share a line."""
    by_variant = grouped(holding, lambda line: line.row.variant)
    names_of = {variant: [line.name for line in of] for variant, of in by_variant.items()}
    return page(
        fill(
            "{} hold in every environment that ran them, in {}: {}.",
            count(len(names)),
            ", ".join(variants),
            join(names, "; "),
        )
        for variants, names in group_equal(names_of)
    )


def _in_full(line: Line) -> Markdown:
    """Return all details of one relation in one variant, folded unless it is broken."""
    broken = line.stacks_with(Standing.BROKEN)
    worst = {stack: case for stack in line.cases if (case := line.worst(stack))}
    differing = {stack: case for stack, case in worst.items() if not case.holds}
    blocks = [
        _cases(line),
        _notes(line),
        _reproduce(line, broken),
        *(
            _largest(line, stacks, case.top)
            for stacks, case in _by_field(differing, "top")
            if case.top
        ),
        _layers(worst),
        *(_positions(stacks, case.positions) for stacks, case in _by_field(differing, "positions")),
        _cache(worst),
        _splits(line, differing),
    ]
    if not broken:
        return details(f"{line.name}, {line.row.variant}", *blocks)
    title = fill("{}, {}: broken on {}", line.name, line.row.variant, ", ".join(broken))
    return page([heading(3, title), *blocks])


def _by_field(cases: Mapping[str, Relation], field: str) -> list[tuple[list[str], Relation]]:
    """Return the stacks with an equal ``field`` together, with the first of their cases."""
    groups = group_equal({stack: getattr(case, field) for stack, case in cases.items()})
    return [(stacks, cases[stacks[0]]) for stacks, _ in groups]


def _cases(line: Line) -> Markdown:
    """Return every shape with its figures; stacks with equal figures share a line."""
    pairs = ((tuple(_case(line, c)), stack) for stack, cases in line.cases.items() for c in cases)
    groups = grouped(pairs, lambda pair: pair[0])
    rows = [[", ".join(stack for _, stack in of), *case] for case, of in groups.items()]
    headers = ["environments", "shape", "shapes tried", "result", "elements that differ", "max abs"]
    headers += ["mean abs", "argmax changes", "max abs in float64", "mean abs in float64", "ratio"]
    return table(headers, rows, right=(headers[2], *headers[4:]))


def _notes(line: Line) -> Markdown:
    """Return why a broken relation is broken by design; stacks with the same note are joined."""
    notes: dict[str, dict[str, None]] = {}
    for stack, cases in line.cases.items():
        for case in cases:
            if case.note and judge_relation(case, line.dtype) == Standing.BROKEN:
                notes.setdefault(case.note, {})[stack] = None
    return page(fill("On {} {}.", ", ".join(stacks), note) for note, stacks in notes.items())


def _case(line: Line, case: Relation) -> list[str]:
    result = judge_relation(case, line.dtype)
    native, promoted = case.distance, case.promoted
    return [
        case.case,
        count(case.tried),
        Markdown(f"**{result}**" if result == Standing.BROKEN else result),
        part(native.n_differ, native.n) if native else "",
        *_sizes(native),
        "" if native is None or native.argmax_changes is None else count(native.argmax_changes),
        *_sizes(promoted),
        _ratio(native, promoted),
    ]


def _sizes(distance: Distance | None) -> list[str]:
    return [size(distance.max_abs, 7), size(distance.mean_abs, 7)] if distance else ["", ""]


def _ratio(native: Distance | None, promoted: Distance | None) -> str:
    """Return how much of a difference remains in float64."""
    if native is None or promoted is None or not native.max_abs:
        return ""
    return size(promoted.max_abs / native.max_abs)


def _reproduce(line: Line, broken: list[str]) -> Markdown:
    commands = {cell.cell.stack: cell.reproduce for cell in line.row.cells if cell.reproduce}
    broken_commands = [commands[stack] for stack in broken if stack in commands]
    return (
        page([titled("To reproduce"), fence(broken_commands[0], "bash")])
        if broken_commands
        else EMPTY
    )


def _largest(line: Line, stacks: list[str], top: tuple[TopDifference, ...]) -> Markdown:
    headers = ["position", "token", *WAYS[line.name], "abs diff"]
    rows = [
        [
            str(entry.position),
            str(entry.token),
            *pair(entry.one, entry.other),
            exact(abs(entry.one - entry.other)),
        ]
        for entry in top
    ]
    count_text = "largest difference" if len(top) == 1 else f"{len(top)} largest differences"
    title = fill("The {} of the logits on {}:", count_text, ", ".join(stacks))
    return page([title, table(headers, rows, right=headers)])


def _layers(worst: Mapping[str, Relation]) -> Markdown:
    """Return the growth through the layers, one column per stack; equal columns are joined."""
    by_stack = {
        s: {layer.name: layer.distance for layer in case.layers} for s, case in worst.items()
    }
    columns = group_equal({stack: layers for stack, layers in by_stack.items() if layers})
    names = dict.fromkeys(name for _, layers in columns for name in layers)
    headers = ["layer"]
    for stacks, _ in columns:
        suffix = f" on {', '.join(stacks)}" if len(columns) > 1 else ""
        headers += [f"max abs{suffix}", f"mean abs{suffix}"]
    rows = [
        [name, *(figure for _, layers in columns for figure in _sizes(layers.get(name)))]
        for name in names
    ]
    return below(titled("Growth from layer to layer"), table(headers, rows, right=headers[1:]))


def _positions(stacks: list[str], positions: tuple[float, ...]) -> Markdown:
    """Return the largest difference of each position, unless they are all the same."""
    figures = [size(value) for value in positions]
    if len(set(figures)) < 2:
        return EMPTY
    runs = ((figure, len(list(run))) for figure, run in groupby(figures))
    texts = [f"{figure} ({n} positions)" if n > 1 else figure for figure, n in runs]
    if len(texts) > MAX_SIZES:
        texts = [*texts[: MAX_SIZES - 4], "…", *texts[-3:]]
    n = count(len(positions))
    intro = fill("Largest difference at each of {} positions on {}", n, ", ".join(stacks))
    return fill("{}: {}", intro, ", ".join(texts))


def _cache(worst: Mapping[str, Relation]) -> Markdown:
    """Return how much of each tensor of the cache differs, one column per stack."""
    by_stack = {s: {t.name: t for t in case.cache} for s, case in worst.items() if case.cache}
    columns = group_equal(by_stack)
    names = list(dict.fromkeys(name for _, tensors in columns for name in tensors))
    differing = [name for name in names if any(_differs(t.get(name)) for _, t in columns)]
    if not differing:
        return EMPTY
    headers = ["tensor", "shape", *(", ".join(stacks) for stacks, _ in columns)]
    rows = [_tensor(name, columns) for name in differing[:MAX_TENSORS]]
    n_same, rest = len(names) - len(differing), len(differing) - MAX_TENSORS
    remarks = [
        fill("The same bytes: {}.", plural(n_same, "other tensor")) if n_same else EMPTY,
        fill("… and {} more that differ, listed in report.json.", count(rest))
        if rest > 0
        else EMPTY,
    ]
    return page([titled("The cache after one pass and after two"), table(headers, rows), *remarks])


def _differs(tensor: CacheTensor | None) -> bool:
    return tensor is not None and tensor.distance.n_differ > 0


def _tensor(name: str, columns: list[tuple[list[str], dict[str, CacheTensor]]]) -> list[str]:
    tensors = [tensors.get(name) for _, tensors in columns]
    shapes = dict.fromkeys(str(list(tensor.shape)) for tensor in tensors if tensor)
    return [code(name), codes(shapes), *map(_elements, tensors)]


def _elements(tensor: CacheTensor | None) -> str:
    if tensor is None:
        return "no such tensor"
    distance = tensor.distance
    if not distance.n_differ:
        return "the same bytes"
    figures = f"max abs {size(distance.max_abs)}"
    n, n_differ = count(distance.n), count(distance.n_differ)
    return f"{n_differ} out of {n} elements differ, {figures}"


def _splits(line: Line, differing: Mapping[str, Relation]) -> Markdown:
    """Return where greedy decoding diverges, with both lists of tokens."""
    by_stack = {stack: case.split for stack, case in differing.items() if case.split}
    rows = [[", ".join(stacks), *_split(split)] for stacks, split in group_equal(by_stack)]
    headers = ["environments", "first step", "margin", *WAYS[line.name]]
    title = titled("First step where greedy decoding differs, and the tokens of both ways")
    return page([title, table(headers, rows, right=headers[1:3])]) if rows else EMPTY


def _split(split: GreedySplit) -> list[str]:
    return [
        "never" if split.step is None else str(split.step),
        "" if split.margin is None else size(split.margin),
        *(code(" ".join(map(str, tokens)), MAX_TOKENS_TEXT) for tokens in (split.one, split.other)),
    ]
