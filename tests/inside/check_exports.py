"""questions.exports: programs of torch.export and torch.jit.trace, of real models and of planted ones."""

import contextlib
import io
from types import SimpleNamespace

import tiny
import torch
import transformers
from samebits_probe.questions.exports import exports, phase

IDS = {"input_ids": torch.arange(5, 14)[None]}
MASKED = {**IDS, "attention_mask": torch.tensor([[0] * 2 + [1] * 7])}
SAME = {"own": 0.0, "others": 0.0}


class Plain(torch.nn.Module):
    """A model whose rows are sums over the tokens before, without those that the mask leaves out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(99, 8)

    def forward(self, input_ids, attention_mask=None, use_cache=True):
        mask = self.mask(attention_mask)
        hidden = self.table(input_ids)
        hidden = hidden if mask is None else hidden * mask[..., None]
        cached = {"past_key_values": Cache()} if use_cache else {}
        return transformers.utils.ModelOutput(logits=hidden.cumsum(1), **cached)

    def mask(self, mask):
        return mask


class Cache:
    """A class that is no tree of tensors."""


class SkipsMasks(Plain):
    """Takes no mask where all are ones: right for each call, and wrong in a program for the next one."""

    def mask(self, mask):
        return None if torch.all(mask == 1) else mask


class TracedOtherwise(Plain):
    def forward(self, input_ids, attention_mask=None, use_cache=True):
        output = super().forward(input_ids, attention_mask, use_cache)
        if torch.jit.is_tracing() or torch.compiler.is_compiling():
            output["logits"] = output["logits"] * 2
        return output


class Rounds(Plain):
    """Sums backwards in a program: the same function in another order."""

    def forward(self, input_ids, attention_mask=None, use_cache=True):
        hidden = self.table(input_ids) * 1.1
        if torch.jit.is_tracing() or torch.compiler.is_compiling():
            return {"logits": hidden.flip(1).sum(1)}
        return {"logits": hidden.sum(1)}


class Draws(Plain):
    def mask(self, mask):
        return torch.rand(mask.shape)


class ReadsNumbers(Plain):
    """Loops over a number that only the values of its inputs tell."""

    def forward(self, input_ids, attention_mask=None, use_cache=True):
        hidden = self.table(input_ids)
        for token in input_ids[0].tolist():
            hidden = hidden + token if token > 7 else hidden
        return {"logits": hidden}


def made(model_class, way, **more):
    return exports.made(model_class().eval(), MASKED | more, way)


def test_programs_of_a_plain_model_compute_the_same():
    for way in exports.WAYS:
        assert made(Plain, way) == SAME
        assert exports.made(Plain().eval(), IDS, way) == SAME


def test_a_mask_that_is_skipped_in_a_trace_is_seen_with_the_next_mask():
    facts = made(SkipsMasks, "torch.jit.trace")
    assert facts["own"] == 0
    assert facts["others"] > 0.1
    assert facts["others_in_float64"] > 0.1
    # torch.export knows no value of a tensor, and says so
    assert "data-dependent" in made(SkipsMasks, "torch.export")["refused"]


def test_a_forward_that_is_another_while_a_program_is_made_is_seen_at_once():
    for way in exports.WAYS:
        facts = made(TracedOtherwise, way)
        assert facts["own"] > 0.1
        assert facts["own_in_float64"] > 0.1


def test_another_order_of_sums_vanishes_in_float64():
    for way in exports.WAYS:
        facts = made(Rounds, way)
        assert 0 < facts["own"] < 1e-5
        assert facts["own_in_float64"] < 1e-13


def test_a_forward_that_draws_is_compared_with_nothing():
    for way in exports.WAYS:
        assert made(Draws, way) == {"left_out": "forward gives other numbers each time"}


def test_what_no_program_can_hold_is_the_exception():
    facts = made(ReadsNumbers, "torch.export")
    assert facts.keys() == {"refused"}
    assert facts["refused"].startswith("GuardOnDataDependentSymNode: ")


def test_torch_prints_nothing_of_a_program_that_it_cannot_make():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        made(ReadsNumbers, "torch.export")
    assert not printed.getvalue()


def test_tokens_stay_where_an_image_stands():
    class Sees(Plain):
        def forward(self, input_ids, pixel_values, attention_mask=None):
            return {"logits": self.table(input_ids) * pixel_values.mean()}

    image = torch.arange(12.0).reshape(1, 3, 2, 2)
    given = exports.inputs(Sees(), {**MASKED, "pixel_values": image, "words": ["a"]})
    assert given.fixed == {"words": ["a"]}
    others = dict(zip(given.names, given.others, strict=True))
    assert others["input_ids"].tolist() == IDS["input_ids"].tolist()
    assert others["attention_mask"].tolist() == MASKED["attention_mask"].tolist()
    assert others["pixel_values"].tolist() == image.flip(-1).tolist()


def test_other_tokens_have_a_padded_end():
    given = exports.inputs(Plain(), MASKED)
    assert given.fixed == {"use_cache": False}
    assert given.values[1].tolist() == [[1] * 9]
    ids, mask = given.others
    assert ids.tolist() == [[13, 5, 6, 7, 8, 9, 10, 11, 12]]
    assert mask.tolist() == [[1] * 6 + [0] * 3]


def test_a_llama_of_this_release_is_exported_with_the_same_numbers():
    model = tiny.model(intermediate_size=40)
    for inputs in (IDS, MASKED):
        assert exports.made(model, inputs, "torch.export") == SAME


def programs(model, **prompts):
    inputs = {name: SimpleNamespace(kwargs=kwargs) for name, kwargs in prompts.items()}
    loaded = SimpleNamespace(model=model.eval())
    session = SimpleNamespace(loaded=loaded, prompts=lambda: inputs)
    return {way: [*made] for way, made in phase._programs(session, [*prompts]).items()}


def test_a_second_program_of_torch_export_is_made_only_where_the_first_is_refused_or_has_an_image():
    both, one = ["rich", "short"], ["rich"]
    made = programs(Plain(), rich=MASKED, short=IDS)
    assert made == {"torch.export": one, "torch.jit.trace": both}
    assert programs(SkipsMasks(), rich=MASKED, short=MASKED)["torch.export"] == both

    class Sees(Plain):
        def forward(self, input_ids, pixel_values=None, use_cache=True):
            return {"logits": self.table(input_ids)}

    image = IDS | {"pixel_values": torch.zeros(1, 3, 2, 2)}
    assert programs(Sees(), rich=image, short=IDS)["torch.export"] == both
