"""A short run: it observes the same bytes as a full one, as far as it goes, and it stops there."""

import importlib

import tiny
import torch
import transformers
from samebits_probe.cell.phases import forward as forward_phase
from samebits_probe.cell.phases import greedy
from samebits_probe.model import decode
from samebits_probe.model.inputs import Inputs

for name in ("transformers.generation", "torch._dynamo"):
    importlib.import_module(name)  # once, for the forks that the tests run in

STEPS = 7


def llama(**generation):
    model = tiny.llama(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    return model


def bart():
    model = tiny.bart(seed=1, d_model=16, decoder_layers=2)
    model.generation_config.eos_token_id = None
    model.generation_config.forced_eos_token_id = 2
    return model


def fed(rows=2):
    ids = torch.arange(rows * 5).reshape(rows, 5) + 3
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    return Inputs({"input_ids": ids, "attention_mask": mask}, None, None)


def session_of(model, *, short):
    session = tiny.session_of(model, {}, run="b", greedy=STEPS)
    session.job["short"], session.signals["forward"] = short, {}
    return session


def decoded(model, *, short):
    forwards = []
    hook = model.register_forward_hook(lambda *_: forwards.append(1))
    session = session_of(model, short=short)
    tokens = greedy._FirstTokens(session, STEPS)
    with torch.no_grad():
        facts = greedy._generate(session, "pair", fed(), STEPS, tokens)
    hook.remove()
    return facts, len(forwards)


def agreement(make):
    """Check that both extents decode the same start, and return the number of forwards of each."""
    full, n_full = decoded(make(), short=False)
    short, n_short = decoded(make(), short=True)
    assert full.keys() == short.keys() == {"pair[0]", "pair[1]"}
    for row, facts in short.items():
        assert facts["ids"] == full[row]["ids"][: greedy.START]
        assert facts["top2"] == full[row]["top2"][: greedy.START]
        assert facts["logits"]["hash"] == full[row]["start"]["hash"]
        assert full[row]["logits"]["hash"] != full[row]["start"]["hash"]
    return n_full, n_short


def test_a_short_decoding_is_the_start_of_a_full_one():
    assert agreement(lambda: llama(eos_token_id=None)) == (STEPS, greedy.START)


def test_a_cache_of_the_size_of_the_whole_decoding_has_that_size_in_a_short_one():
    assert agreement(lambda: llama(cache_implementation="static", eos_token_id=None))[0] == STEPS


def test_a_token_that_is_forced_at_the_end_is_not_forced_at_the_end_of_a_short_one():
    agreement(bart)


def test_a_row_that_ends_at_once_ends_in_both():
    model = llama(eos_token_id=None)
    first = decoded(model, short=False)[0]["pair[0]"]["ids"][0]

    def ending():
        return llama(eos_token_id=first)

    full, _ = decoded(ending(), short=False)
    short, _ = decoded(ending(), short=True)
    assert short["pair[0]"]["ids"] == full["pair[0]"]["ids"] == [first]
    assert short["pair[0]"]["logits"]["hash"] == full["pair[0]"]["start"]["hash"]


def test_a_difference_of_the_second_step_is_seen():
    class Drawing(transformers.LlamaForCausalLM):
        n = 0

        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            self.n += 1
            if self.n == 2:
                output.logits = output.logits + torch.rand(())
            return output

    def make():
        return tiny.llama(Drawing, eos_token_id=None, pad_token_id=0)

    torch.manual_seed(5)
    model = make()
    torch.manual_seed(6)
    full, _ = decoded(model, short=False)
    model = make()
    torch.manual_seed(7)
    short, _ = decoded(model, short=True)
    assert short["pair[0]"]["logits"]["hash"] != full["pair[0]"]["start"]["hash"]


def test_a_short_forward_runs_once_and_has_the_same_layers():
    model, facts, counts = llama(), [], []
    forwards = []
    model.register_forward_hook(lambda *_: forwards.append(1))
    for short in (False, True):
        session = session_of(model, short=short)
        with torch.no_grad():
            forward_phase._observe_prompt(session, "pair", fed(), None)
        facts.append(session.signals["forward"]["pair"])
        counts.append(len(forwards))
        forwards.clear()
    assert facts[0] == facts[1]
    assert counts == [2, 1]


def test_stopping_ends_every_row_after_the_steps():
    criteria = decode.stopping(2)
    ids = torch.zeros(3, 4, dtype=torch.long)
    assert criteria(ids, None).tolist() == [False] * 3
    assert criteria(ids, None).tolist() == [True] * 3
