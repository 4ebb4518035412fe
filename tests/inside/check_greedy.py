"""cell.phases.greedy: the first token is watched in the decode only where that changes no bit."""

from collections import Counter

import tiny
import torch
import transformers
from check_decode import FIELDS
from samebits_probe.cell.phases import first_token, greedy
from samebits_probe.model import decode
from samebits_probe.model.inputs import Inputs
from torch._C import _len_torch_function_stack

torch.set_num_threads(1)
FORWARDS = Counter()
"""Forwards by id of the model, which holds no count of its own, as that would be a state."""


def fed(n):
    ids = torch.arange(5, 5 + n)[None]
    return Inputs({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, None, None)


PROMPTS = {"short": fed(4), "long": fed(12)}


class Counted(transformers.LlamaForCausalLM):
    """Counts its forwards; ``changes`` doubles the logits where a forward is watched."""

    changes = False

    def forward(self, *args, **kwargs):
        FORWARDS[id(self)] += 1
        output = super().forward(*args, **kwargs)
        if self.changes and _len_torch_function_stack():
            output.logits = output.logits * 2
        return output


class Growing(Counted):
    """Scales by the longest text since a short prompt, as a dynamic rope does."""

    longest = 4

    def forward(self, *args, **kwargs):
        n = kwargs["attention_mask"].shape[1]
        self.longest = 4 if n <= 4 else max(n, self.longest)
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * self.longest
        return output


def model(kind=Counted):
    return tiny.llama(kind, **FIELDS)


def observed(made, effect="none", prompts=PROMPTS):
    session = tiny.session_of(made, prompts, greedy=5)
    session.effect = effect
    with torch.no_grad():
        greedy.observe(session)
        early = dict(session.first_tokens)
        first_token.observe(session)
    assert (session.skips, session.failures) == ([], [])
    return session, early


def expected(made):
    with torch.no_grad():
        return decode.first_token(made, PROMPTS)


def test_the_decode_tells_what_two_tokens_of_their_own_tell():
    made = model()
    session, early = observed(made)
    assert FORWARDS[id(made)] == 2 * 5 + 2
    assert session.signals["first_token"] == early == expected(made)
    plain, late = observed(model(), effect="changed the bits")
    assert late == {}
    assert plain.signals == session.signals


def test_where_watching_changes_the_bits_the_decode_is_plain():
    made = model()
    made.changes = True
    session, early = observed(made)
    assert early == {}
    assert FORWARDS[id(made)] == 2 * 5 + 2 + 2 * 2
    assert session.signals["greedy"] == observed(model())[0].signals["greedy"]
    assert session.signals["first_token"] == expected(made)


def test_a_cache_made_for_a_number_of_tokens_is_watched_on_its_own():
    made = model()
    made.generation_config.cache_implementation = "static"
    session, early = observed(made)
    assert early == {}
    assert session.signals["first_token"] == expected(made)


def test_the_check_leaves_nothing_to_the_next_prompt():
    prompts = {"short": fed(4), "long": fed(6)}
    together, early = observed(model(Growing), prompts=prompts)
    apart, late = observed(model(Growing), "changed the bits", prompts)
    assert (early.keys(), late) == (prompts.keys(), {})
    assert together.signals == apart.signals


class Streams(Counted):
    """Generates something other than rows of token ids, as MusicGen and Dia do."""

    sequences = None

    def generate(self, *args, **kwargs):
        output = super().generate(*args, **kwargs)
        output.sequences = self.sequences
        return output


class Smaller:
    """A tokenizer with less ids than the model, as of Baichuan, whose embeddings are padded."""

    def decode(self, _ids):
        message = "OUT_OF_RANGE: piece id is out of range."
        raise IndexError(message)


class Heard(Counted):
    """Requires what no prompt has."""

    def generate(self, sound, **kwargs):
        return super().generate(**kwargs, inputs_embeds=sound)


def test_what_generate_requires_and_samebits_cannot_give_is_no_failure_of_the_model():
    lacking = {name: fed._replace(not_generated_from=("sound",)) for name, fed in PROMPTS.items()}
    sessions = [tiny.session_of(model(Heard), each, greedy=5) for each in (lacking, PROMPTS)]
    with torch.no_grad():
        for session in sessions:
            greedy.observe(session)
    skipped, requires_more_than_the_release_that_chose = sessions
    assert [skip["why"] for skip in skipped.skips] == ["inputs", "inputs"]
    assert "sound" in skipped.skips[0]["reason"]
    assert not skipped.failures
    assert {f["type"] for f in requires_more_than_the_release_that_chose.failures} == {"TypeError"}


def test_ids_that_the_tokenizer_does_not_know_have_no_text():
    session = tiny.session_of(model(), PROMPTS, greedy=5)
    session.loaded.tokenizer = Smaller()
    with torch.no_grad():
        greedy.observe(session)
    assert session.failures == []
    assert [row["text"] for row in session.signals["greedy"].values()] == [None, None]


def test_a_sound_and_streams_of_ids_are_no_tokens():
    for sequences in (torch.zeros(1, 1, 99), torch.zeros(1, 9, 4, dtype=torch.long)):
        made = model(Streams)
        made.sequences = sequences
        session = tiny.session_of(made, {"short": fed(4)}, greedy=5)
        with torch.no_grad():
            greedy.observe(session)
        assert session.failures == []
        assert [skip["what"] for skip in session.skips] == ["greedy short"]


def test_other_functions_than_those_of_the_checked_prompt_are_asked_again():
    once = []

    class Once(Counted):
        def forward(self, *args, **kwargs):
            if kwargs["input_ids"].shape[1] == 1 and kwargs["attention_mask"].shape[1] > 12:
                once or once.append(transformers.utils.logging.get_verbosity())
            return super().forward(*args, **kwargs)

    session, early = observed(model(Once))
    assert (len(once), early.keys()) == (1, {"short"})
    assert session.signals["first_token"] == expected(model())
