"""Phase omitted: what a forward does without one of its arguments."""

import torch
from samebits_probe.cell.phases.omitted import Effects
from samebits_probe.model.leftover import Leftover


class Model(torch.nn.Module):
    """Counts its calls, adds ``types`` to its logits, and raises without ``needed``."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, ids, types=None, needed=None, unused=None):
        self.calls += 1
        if needed is None:
            raise ValueError("needed is missing")
        logits = torch.nn.functional.one_hot(ids, 5).float() + self.calls
        return {"logits": logits if types is None else logits + types[..., None]}


def effect(argument):
    model = Model()
    ids = torch.tensor([[1, 2, 3]])
    kwargs = {name: torch.ones_like(ids) for name in ("types", "needed", "unused")}
    found = Effects(model, Leftover(model)).without({"ids": ids, **kwargs}, argument)
    assert model.calls == 0  # the state is as it was
    return found


def test_an_argument_that_changes_the_logits():
    assert effect("types")["effect"] == "other logits"


def test_an_argument_that_forward_does_not_use_although_each_call_is_counted():
    assert effect("unused")["effect"] == "none"


def test_an_argument_without_which_forward_raises():
    found = effect("needed")
    assert (found["effect"], found["message"]) == ("raises", "ValueError: needed is missing")
