"""usage: what the cache holds that generate() returns."""

from pathlib import Path
from unittest import mock

import tiny
import torch
from raising import raised
from samebits_probe.questions.usage import methods, returned
from samebits_probe.questions.usage.subject import Subject

torch.set_num_threads(1)
LENGTH = "len(past_key_values) of generate()"
SEEN = "get_seq_length() of the cache of generate()"
FIELDS = "fields of what generate() returns"
FORM = "keys and values in the cache of generate()"


def asked(made, prompts, head="causal-lm"):
    calls = dict(returned.calls(Subject(made, head, Path(), prompts)))
    return {LENGTH: calls[LENGTH]()}


def others(made):
    """Return the tokens that the cache has seen, None for a tuple, and the fields."""
    calls = dict(returned.calls(Subject(made, "causal-lm", Path())))
    return methods.asked(calls[SEEN]).get("gave"), calls[FIELDS]()


def test_a_cache_has_a_length_with_and_without_a_prompt_of_the_cell():
    ids = torch.arange(3, 12)[None]
    made = tiny.model()
    assert asked(made, {"short": {"input_ids": ids}}) == {LENGTH: "2"}
    assert asked(made, {}) == {LENGTH: "2"}


def test_the_fields_of_an_output_and_the_tokens_of_its_cache_are_counted_and_lost_ones_are_seen():
    made = tiny.model()
    fields = "hidden_states 3 of 3, logits 3, scores 3, sequences [1, 15]"
    assert others(made) in ((None, fields), ("14", fields))
    generate = made.generate

    def loses(*arguments, **named):
        output = dict(generate(*arguments, **named))
        output["scores"] = output["scores"][:2]
        return {name: value for name, value in output.items() if name != "hidden_states"}

    with mock.patch.object(made, "generate", loses):
        assert others(made)[1] == "logits 3, scores 2, sequences [1, 15]"
    cache = mock.Mock(spec=["get_seq_length"])
    cache.get_seq_length.return_value = 8
    with mock.patch.object(made, "generate", return_value={"past_key_values": cache}):
        assert others(made) == ("8", "")


def test_a_cache_without_a_length_and_one_that_grows_by_its_encoder_are_seen():
    made = tiny.model()
    without = mock.Mock(spec=["get", "past_key_values"])
    without.get.return_value = object()
    with mock.patch.object(made, "generate", return_value=without):
        assert "has no len()" in str(raised(TypeError, asked, made, {}))
    sound = {"sound": {"input_features": torch.linspace(-1, 1, 800).reshape(1, 8, 100)}}
    hears = tiny.whisper(
        vocab_size=128, max_source_positions=50, init_std=0.3, **tiny.halves(2, 4, 48)
    )
    assert asked(hears, sound, "seq2seq-lm") == {LENGTH: "2, 50 keys of the encoder"}
    own, crossed = torch.ones(1, 4, 3, 8), torch.ones(1, 4, 100, 8)
    grown = {"past_key_values": ((own, own, crossed, crossed),) * 2}
    with mock.patch.object(hears, "generate", return_value=grown):
        gave = asked(hears, sound, "seq2seq-lm")
    assert gave == {LENGTH: "2, 100 keys of the encoder"}


def form(made, cache):
    """Return the shapes of a cache's first keys and values; None of one that has none of each head."""
    call = dict(returned.calls(Subject(made, "causal-lm", Path())))[FORM]
    with mock.patch.object(made, "generate", return_value={"past_key_values": cache}):
        return methods.asked(call).get("gave")


def test_a_cache_of_latents_has_another_form_and_one_of_more_tokens_has_not():
    made = tiny.model()
    heads = (torch.ones(1, 4, 3, 16), torch.ones(1, 4, 3, 8))
    latents = (torch.ones(1, 1, 3, 16), torch.ones(1, 1, 3, 8))
    longer = (torch.ones(1, 4, 9, 16), torch.ones(1, 4, 9, 8))
    of_heads = "[1, 4, …, 16] and [1, 4, …, 8]"
    assert [form(made, (layer,)) for layer in (heads, longer)] == [of_heads] * 2
    assert form(made, (latents,)) == "[1, 1, …, 16] and [1, 1, …, 8]"
    with_layers = mock.Mock(spec=["layers"], layers=[mock.Mock(keys=heads[0], values=heads[1])])
    lists = mock.Mock(spec=["key_cache", "value_cache"], key_cache=[[], heads[0]])
    lists.value_cache = [[], heads[1]]
    assert [form(made, cache) for cache in (with_layers, lists)] == [of_heads] * 2
    encoded = mock.Mock(spec=["self_attention_cache"], self_attention_cache=lists)
    assert form(made, encoded) == of_heads
    assert form(made, (torch.ones(1, 3, 8),)) is None
    assert form(made, mock.Mock(spec=["layers"], layers=[mock.Mock(spec=["states"])])) is None


def test_the_cache_of_a_model_has_its_heads():
    made = tiny.model()
    config = made.config
    size = config.hidden_size // config.num_attention_heads
    call = dict(returned.calls(Subject(made, "causal-lm", Path())))[FORM]
    of_each = f"[1, {config.num_key_value_heads}, …, {size}]"
    assert call() == f"{of_each} and {of_each}"
