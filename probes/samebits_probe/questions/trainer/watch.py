"""What one run of Trainer shows: what the model receives, each loss, the log, and the checkpoint at a stop."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from samebits_probe.questions.training import origin
from samebits_probe.questions.training.batches import IGNORED, ITEMS
from samebits_probe.questions.training.learner import Learner, as_json
from samebits_probe.questions.training.origin import Places
from samebits_probe.questions.training.way import Results

if TYPE_CHECKING:
    from samebits_probe.questions.trainer.trainer import Rows

Facts = dict[str, Any]


STOP = 2
"""Steps before a stop."""


class Stop:
    """The checkpoint that one run writes, and from which another one goes on."""

    def __init__(self, folder: str) -> None:
        """Take the folder of the run."""
        self.folder = folder
        self.checkpoint = f"{folder}/checkpoint-{STOP}"
        self.refused: Exception | None = None
        """What the run raised when it was to write it; the run goes on."""
        self.saved: Results = {}
        """Tensor of the checkpoint -> its values at the stop."""
        self.resumed: Results = {}
        """The same as the other run begins."""


class Watch:
    """What one run shows: a list for each fact, in the order of time."""

    def __init__(self, learner: Learner, rows: Rows) -> None:
        self.learner = learner
        self.rows = rows
        self.received: list[Facts] = []
        """For each forward: names, rows, positions of labels, and the number of items."""
        self.losses: list[float] = []
        """What each micro-batch contributed."""
        self.rates: list[list[float | str]] = []
        """Learning rates of the groups at each update."""
        self.log: list[Facts] = []

    @contextlib.contextmanager
    def model_watched(self) -> Iterator[None]:
        """Note what the model's forward receives."""
        with self.learner.model.register_forward_pre_hook(self._before, with_kwargs=True):
            yield

    def _before(self, _model: Any, _args: Any, kwargs: Facts) -> None:
        labels = kwargs.get("labels")
        tensors = [value for name, value in kwargs.items() if name in self.rows.kwargs]
        n = len(tensors[0]) if tensors else 0
        items = kwargs.get(ITEMS)
        self.received.append(
            {
                "names": sorted(name for name in kwargs if name != ITEMS),
                "rows": [self.rows.index(kwargs, row) for row in range(n)],
                "labels": _positions(labels),
                "counts": _counts(labels),
                "items": None if items is None else as_json(float(items)),
            }
        )

    def facts(self) -> Facts:
        """Return what was seen."""
        return {
            "received": self.received,
            "losses": [as_json(loss) for loss in self.losses],
            "norms": [as_json(norm) for norm in logged(self, "grad_norm")],
            "rates": self.rates,
            "logged_losses": [as_json(loss) for loss in logged(self, "loss")],
            "logged_rates": [as_json(rate) for rate in logged(self, "learning_rate")],
        }


def logged(watch: Watch, name: str) -> list[float]:
    """Return a number of each entry of the log that has it."""
    return [float(step[name]) for step in watch.log if name in step]


def _positions(labels: Any) -> list[str]:
    """Return where the labels of each row count, such as ``1-5 7``."""
    if not isinstance(labels, torch.Tensor) or labels.ndim < 2:
        return []
    rows = (labels != IGNORED).reshape(labels.shape[0], -1)
    return [_ranges(torch.nonzero(row).flatten().tolist()) for row in rows]


def _counts(labels: Any) -> list[int]:
    """Return how many labels of each row count; [] where a row has one label."""
    if not isinstance(labels, torch.Tensor) or labels.ndim < 2:
        return []
    return [int(row.sum()) for row in (labels != IGNORED).reshape(labels.shape[0], -1)]


def _ranges(numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in spans)


def watched(trainer_class: type, watch: Watch, stop: Stop | None = None) -> type:
    """Return a Trainer that tells what each micro-batch contributed, and runs in the precision."""

    class Watched(trainer_class):  # type: ignore[misc]
        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            with _backward_of(watch.learner), watch.learner.arithmetic():
                loss: torch.Tensor = super().training_step(*args, **kwargs)
            watch.losses.append(float(loss.detach()))
            return loss

        def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
            with watch.learner.arithmetic():
                return super().prediction_step(*args, **kwargs)

        def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            assert stop is not None
            config = settings(watch.learner.model)  # a save writes the dtype into it
            try:
                super()._save_checkpoint(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  what does not save is trained all the same
                stop.refused = error
            finally:
                put_back(watch.learner.model, config)

    return Watched


@contextlib.contextmanager
def _backward_of(learner: Learner) -> Iterator[None]:
    """Have losses go backward as the learner does, in its precision."""
    if learner.promoted is None:
        yield
        return

    def backward(loss: torch.Tensor, *_args: Any, **_kwargs: Any) -> None:
        learner.backward(loss)

    with mock.patch.object(torch.Tensor, "backward", backward):
        yield


def callback(watch: Watch, trainer: Any) -> Any:
    """Return a callback that notes learning rates and the log."""
    module = importlib.import_module("transformers.trainer_callback")

    class Callback(module.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_pre_optimizer_step(self, *_args: Any, **_kw: Any) -> None:
            # 4.49 gives callbacks no optimizer
            groups = trainer.optimizer.param_groups
            watch.rates.append([as_json(float(group["lr"])) for group in groups])

        def on_log(self, _args: Any, _state: Any, _control: Any, **kw: Any) -> None:
            logs = kw.get("logs") or {}
            if "loss" in logs:
                watch.log.append(logs)

    return Callback()


def at_stop(stop: Stop, now: Callable[[], Results], *, resumes: bool) -> Any:
    """Return a callback that has a checkpoint written, or notes what was loaded from it; ``now`` gives the weights."""
    module = importlib.import_module("transformers.trainer_callback")

    class AtStop(module.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_train_begin(self, *_args: Any, **_kw: Any) -> None:
            if resumes:
                stop.resumed = now()

        def on_step_end(self, _args: Any, state: Any, control: Any, **_kw: Any) -> None:
            if state.global_step == STOP and not resumes:
                stop.saved = now()
                control.should_save = True

    return AtStop()


def weights(learner: Learner, where: Places) -> Results:
    """Return a copy of what a model holds of each tensor of the checkpoint."""
    return {name: w.clone() for name, w in origin.weights(learner.model, where).items()}


def settings(model: Any) -> Facts:
    """Return the plain settings of a model's config."""
    config: Facts = vars(model.config)
    plain = (bool, int, float, str, type(None))
    return {n: v for n, v in config.items() if isinstance(v, plain) and n[0] != "_"}


def put_back(model: Any, config: Facts) -> None:
    """Restore the settings of a model's config: Trainer changes some."""
    for name, value in config.items():
        setattr(model.config, name, value)
