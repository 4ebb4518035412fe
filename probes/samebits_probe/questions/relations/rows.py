"""Relations of rows, for models that take something else than token ids.

Whatever forward takes, a row of a batch must give the same outputs alone, at another place of the
batch, and with masked positions behind it. Every output is compared whose rows are those of the
batch; a table of all rows against all rows, as clip's logits, is not. As for tokens, both ways run
again in float64 where their bytes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from samebits_probe.model import determinism, load, outputs, precision
from samebits_probe.model.distance import distance, pooled, same_bytes
from samebits_probe.model.inputs import in_dtype, may_repeat_rows, n_rows, tensors_of
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line
from samebits_probe.questions.relations.state import Snapshot
from samebits_probe.questions.relations.ways import COPY_LIMIT

Facts = dict[str, Any]
Tensors = dict[str, torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]

SIZE, ORDER, PADDING = "batch size", "row order", "right padding"
NAMES = (SIZE, ORDER, PADDING)
_MASK = "attention_mask"
_N_PADS = 3
_NO_ROWS = "its arguments do not all have the rows of one batch"
_NO_OUTPUT = "no output has the rows of the batch"
_NO_MASK = f"no {_MASK} with a column for each position is fed"


class Runner:
    """Runs forward over batches of rows, and restores what a forward leaves in the modules."""

    def __init__(self, model: Any, *, float64: bool = False) -> None:
        first = next(p for p in model.parameters() if p.dtype.is_floating_point)
        self.dtype: torch.dtype = first.dtype
        self.is_small = load.n_bytes(model) <= COPY_LIMIT
        self.model = precision.promoted_copy(model) if float64 else model
        self._float64 = float64
        self._snapshot = Snapshot(self.model, parameters=self.is_small)

    def in_float64(self) -> Runner:
        """Return a runner of a copy in float64, whose code gets float64 for every float."""
        return Runner(self.model, float64=True)

    def run(self, kwargs: Facts, before: Facts | None = None) -> Tensors:
        """Return copies of all outputs by name; '' for a bare tensor; after a forward over what comes ``before``."""
        result = self.call(self.model, kwargs, before)
        return {name: t.detach().clone() for name, t in outputs.tensors(result).items()}

    def call(self, function: Callable[..., Any], kwargs: Facts, before: Facts | None = None) -> Any:
        """Return what a function of the model returns, such as the model itself."""
        promotion = precision.promotion(precision.claimed_of(self.dtype))
        dtype = torch.float64 if self._float64 else None
        kwargs = in_dtype(kwargs, dtype)
        try:
            with (
                torch.no_grad(),
                promotion if self._float64 else nullcontext(),
                progress.forward(kwargs, times=20 if self._float64 else 4),
            ):
                if before is not None:
                    function(**in_dtype(before, dtype))
                return function(**kwargs)
        finally:
            self._snapshot.restore()

    def first_output(self, kwargs: Facts) -> torch.Tensor | None:
        """Return the first output, for the checks that need one tensor."""
        return next(iter(self.run(kwargs).values()), None)


class Compared(NamedTuple):
    """The outputs of two ways to compute the same rows, or why there are none."""

    name: str
    case: str
    pairs: dict[str, Pair]
    refusal: str = ""


class Answer(NamedTuple):
    """The relations of one model, those that could not be tried, and why there is no float64."""

    relations: list[Facts]
    inapplicable: list[Facts]
    no_float64: str | None


def observe(model: Any, prompts: Iterable[tuple[str, Facts]]) -> Answer:
    """Try the relations of rows on forward's arguments for some prompts.

    Of each relation the prompt is returned for which the outputs are farthest apart.
    """
    runner, answers = None, []
    for prompt, kwargs in prompts:
        runner = runner or Runner(model)
        answers.append(_of_prompt(runner, prompt, kwargs))
    worst = worst_of(answers, NAMES)
    tried = {relation["relation"] for relation in worst.relations}
    skips = {s["relation"]: s for s in worst.inapplicable if s["relation"] not in tried}
    return worst._replace(inapplicable=list(skips.values()))


def worst_of(answers: Collection[Answer], names: Iterable[str]) -> Answer:
    """Return of each relation the case whose outputs are farthest apart, with the number of cases; all skips."""
    tried = [[f for a in answers for f in a.relations if f["relation"] == name] for name in names]
    return Answer(
        [max(of, key=amount) | {"tried": len(of)} for of in tried if of],
        [skip for answer in answers for skip in answer.inapplicable],
        next((answer.no_float64 for answer in answers if answer.no_float64), None),
    )


def untried(reason: str, names: Iterable[str]) -> Answer:
    """Return the answer where none of some relations is tried."""
    return Answer([], [{"relation": name, "reason": reason} for name in names], None)


def amount(relation: Facts) -> tuple[bool, float, float, int]:
    """Return how far apart the two ways of a relation are, in float64 first.

    One that is apart by design hides no other, as it accuses nobody; of rounding float64 leaves far less than a
    hundredth.
    """
    promoted, distance = relation["promoted"], relation["distance"]
    in_float64 = promoted["max_abs"] if promoted is not None else 0.0
    is_open = not relation.get("note") and 100 * in_float64 > distance["max_abs"]
    return is_open, in_float64, distance["max_abs"], distance["n_differ"]


def _of_prompt(runner: Runner, prompt: str, kwargs: Facts) -> Answer:
    if not tensors_of(kwargs) or not may_repeat_rows(kwargs):
        return untried(_NO_ROWS, NAMES)
    batch = kwargs if n_rows(kwargs) > 1 else _with_second_row(kwargs)
    try:
        if not (whole := _repeated(runner, batch)):
            return untried(determinism.NOT_REPEATED, NAMES)
        compared = list(_compared(runner, prompt, batch, whole))
    except Exception as error:  # noqa: BLE001  refusing a batch is a fact of the model
        return untried(f"two rows: {in_one_line(error)}", NAMES)
    native = [way for way in compared if way.pairs]
    skips = [
        {"relation": way.name, "reason": way.refusal or _NO_OUTPUT}
        for way in compared
        if not way.pairs
    ]
    promoted, no_float64 = _promoted(runner, prompt, batch, native, whole)
    return Answer([facts(way, promoted.get(way.name)) for way in native], skips, no_float64)


def _with_second_row(kwargs: Facts) -> Facts:
    """Return a batch of the row and of the same row backwards, which holds no new values."""
    second = {
        name: torch.flip(tensor, dims=list(range(1, tensor.ndim))) if tensor.ndim > 1 else tensor
        for name, tensor in tensors_of(kwargs).items()
    }
    # a mask stays as it is: padding on the other side is another question
    second = {name: kwargs[name] if "mask" in name else t for name, t in second.items()}
    return kwargs | {name: torch.cat([kwargs[name], t]) for name, t in second.items()}


def _repeated(runner: Runner, batch: Facts) -> Tensors:
    """Return the outputs that a second forward gives again; the others are drawn or counted."""
    first, second = runner.run(batch), runner.run(batch)
    return {
        name: tensor
        for name, tensor in first.items()
        if name in second and same_bytes(tensor, second[name])
    }


def _compared(runner: Runner, prompt: str, batch: Facts, whole: Tensors) -> Iterator[Compared]:
    """Yield each relation with the outputs that must agree with ``whole``, those of the batch."""
    rows = n_rows(batch)
    joined: Tensors = {}

    def one_by_one() -> dict[str, Pair]:
        alone = [runner.run(_rows(batch, slice(i, i + 1))) for i in range(rows)]
        for name, tensor in whole.items():
            # a loss of one value for each row may be a mean over all of them, as that of DAC's codebooks
            if not name.endswith("loss") and all(
                _is_row_of(tensor, result.get(name), rows) for result in alone
            ):
                joined[name] = torch.cat([result[name] for result in alone])
        return {name: (whole[name], joined[name]) for name in joined}

    def backwards() -> dict[str, Pair]:
        order = list(range(rows))[::-1]
        turned = runner.run(_rows(batch, order))
        return {name: (whole[name], turned[name][order]) for name in joined if name in turned}

    def padded() -> dict[str, Pair]:
        assert width is not None
        return dict(_unpadded(batch, whole, runner.run(_padded(batch, width)), joined, width))

    yield _attempt(SIZE, f"{prompt}: {rows} rows together and one by one", one_by_one)
    yield _attempt(ORDER, f"{prompt}: {rows} rows forwards and backwards", backwards)
    if (width := _masked_width(batch)) is None:
        yield Compared(PADDING, prompt, {}, _NO_MASK)
    else:
        case = f"{prompt}: {_N_PADS} masked positions behind {width}"
        yield _attempt(PADDING, case, padded)


def _attempt(name: str, case: str, pairs: Callable[[], dict[str, Pair]]) -> Compared:
    try:
        return Compared(name, case, pairs())
    except Exception as error:  # noqa: BLE001  refusing a shape is a fact of the model
        return Compared(name, case, {}, f"{case}: {in_one_line(error)}")


def _is_row_of(whole: torch.Tensor, row: torch.Tensor | None, rows: int) -> bool:
    return (
        row is not None
        and whole.ndim > 0
        and whole.shape[0] == rows
        and row.shape == (1, *whole.shape[1:])
    )


def _rows(kwargs: Facts, index: slice | list[int]) -> Facts:
    return kwargs | {name: tensor[index] for name, tensor in tensors_of(kwargs).items()}


def _masked_width(kwargs: Facts) -> int | None:
    mask = tensors_of(kwargs).get(_MASK)
    return int(mask.shape[1]) if mask is not None and mask.ndim == 2 else None


def _padded(kwargs: Facts, width: int) -> Facts:

    def longer(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim < 2 or tensor.shape[1] != width:
            return tensor
        pads = tensor.new_zeros((tensor.shape[0], _N_PADS, *tensor.shape[2:]))
        return torch.cat([tensor, pads], dim=1)

    return kwargs | {name: longer(tensor) for name, tensor in tensors_of(kwargs).items()}


def _unpadded(
    batch: Facts, whole: Tensors, longer: Tensors, names: Tensors, width: int
) -> Iterator[tuple[str, Pair]]:
    """Yield the outputs at the positions that the mask lets through in both ways."""
    real = batch[_MASK].bool()
    for name in names:
        first, second = whole[name], longer.get(name)
        if second is None:
            continue
        if second.shape == (first.shape[0], width + _N_PADS, *first.shape[2:]):
            yield name, (first[real], second[:, :width][real])
        elif second.shape == first.shape:
            yield name, (first, second)


def _promoted(
    runner: Runner, prompt: str, batch: Facts, native: list[Compared], names: Collection[str]
) -> tuple[dict[str, Compared], str | None]:
    """Return the relations of the named outputs in float64, or why there are none.

    Nothing is computed if all relations hold.
    """
    if not any(map(differ, native)):
        return {}, None
    if not runner.is_small:
        return {}, "the model is too large to be copied"
    try:
        twin = runner.in_float64()
        if determinism.chaotic(twin.model, lambda: twin.first_output(batch)):
            return {}, determinism.CHAOTIC
        with precision.Leaks() as watch:
            outputs_of_batch = twin.run(batch)
        if reason := precision.said_of(watch.leaks):
            return {}, reason
        whole = {name: tensor for name, tensor in outputs_of_batch.items() if name in names}
        return {way.name: way for way in _compared(twin, prompt, batch, whole)}, None
    except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
        return {}, in_one_line(error)


def facts(native: Compared, promoted: Compared | None) -> Facts:
    """Return a Relation of samebits/questions/relations/records.py whose layers are outputs."""
    whole = _distance(native.pairs)
    in_float64 = promoted.pairs if promoted is not None and whole["n_differ"] else {}
    layers = [
        {
            "name": f"output {name}" if name else "output",
            "distance": distance(*pair),
            "promoted": distance(*in_float64[name]) if name in in_float64 else None,
        }
        for name, pair in native.pairs.items()
    ]
    return {
        "relation": native.name,
        "case": native.case,
        "holds": not whole["n_differ"],
        "distance": whole,
        "promoted": _distance(in_float64) if in_float64 else None,
        "layers": layers,
        "tried": 1,
    }


def differ(compared: Compared) -> bool:
    """Return True if the bytes of two ways differ."""
    return bool(_distance(compared.pairs)["n_differ"])


def _distance(pairs: dict[str, Pair]) -> Facts:
    return pooled(pairs.values()) | {"argmax_changes": None}
