"""usage.ways: generate() is run with logits from a table, and a planted change is seen where it is."""

import importlib
import tempfile
from pathlib import Path

import torch
import transformers
from planting import plant
from raising import raised
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.questions.usage import processors, table, ways
from samebits_probe.questions.usage.subject import NoMeaning, Subject

for name in ("transformers.modeling_utils", "transformers.generation"):
    importlib.import_module(name)
torch.set_num_threads(1)
DIGEST = "24e2d7c51ac09d61e9ccabd2d878c939ef5fd123a7b827191a709b6fa1edee3c"


def model(seed=0):
    torch.manual_seed(seed)
    config = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 1, "eos_token_id": None}
    config |= {"num_attention_heads": 2, "intermediate_size": 16, "num_key_value_heads": 2}
    config = transformers.AutoConfig.for_model("llama", **config)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def ask(made):
    with torch.no_grad():
        return ways.generation(Subject(made, "causal-lm", Path(tempfile.mkdtemp())))


def test_all_values_of_a_row_are_distinct_and_the_same_everywhere():
    for vocabulary in (64, 32000, 128256):
        row = table.logits_row(17, 3, vocabulary)
        assert len(row.unique()) == vocabulary
    # the bytes are the same in every release
    digest = tensor_hash(table.logits_row(17, 3, 128256))
    assert digest == DIGEST, digest


def test_every_way_works_and_the_weights_do_not_matter():
    answer = ask(model())
    refused = {name: way["refused"] for name, way in answer["ways"].items() if "refused" in way}
    # older releases look for an end in prompt lookup where there is none
    lookup = refused.pop("prompt lookup without an end", "TypeError: isin()")
    assert lookup.startswith("TypeError: isin()"), lookup
    assert refused == {}, refused
    assert len(answer["ways"]) == 14
    n_greedy, n_stopped = (
        len(answer["ways"][n]["tokens"][0]) for n in ("greedy", "stopping criteria")
    )
    assert n_greedy - n_stopped == ways.STEPS - ways.STEPS // 2
    assert len(answer["ways"]["beams"]["tokens"]) == 2
    assert answer["ways"]["sampling"]["drew"]
    assert not answer["ways"]["greedy"]["drew"]
    assert ask(model(seed=1)) == answer


def test_the_config_is_read_before_the_ways_and_nothing_stays():
    made = model()
    made.generation_config.temperature = 0.25
    made.generation_config.do_sample = True
    made.generation_config.eos_token_id = 77
    before = made.generation_config.to_dict()
    answer = ask(made)
    assert answer["config"]["temperature"] == 0.25
    assert answer["config"]["eos_token_id"] == 77
    assert answer["ways"]["defaults"]["drew"]
    assert made.generation_config.to_dict() == before
    assert not made._forward_hooks


def test_a_refusal_is_an_answer():
    made = model()

    def generate(plain, *args, **kwargs):
        if kwargs.get("num_beams") == 3:
            raise ValueError("no beams here")
        return plain(*args, **kwargs)

    with plant(made, "generate", generate):
        answer = ask(made)["ways"]
    assert answer["beams"]["refused"] == "ValueError: no beams here"
    assert "refused" not in answer["penalties"]


def test_another_processor_is_seen_in_the_way_and_alone():
    clean = ask(model())
    kind = transformers.generation.logits_process.RepetitionPenaltyLogitsProcessor

    def call(plain, self, input_ids, scores):
        return plain(self, input_ids, scores) + 0.5 * (scores > 0)

    with plant(kind, "__call__", call):
        planted = ask(model())
    differing = {k for k, v in clean["processors"].items() if planted["processors"][k] != v}
    assert differing == {"RepetitionPenaltyLogitsProcessor"}, differing
    differing = {k for k, v in clean["ways"].items() if planted["ways"][k] != v}
    assert differing == {"penalties"}, differing


def test_every_processor_can_be_made():
    answers = processors.processors()
    assert {name for name, answer in answers.items() if "refused" in answer} == set(), answers
    assert {name.partition("(")[0] for name in answers} == processors.PROCESSORS.keys()


def test_a_filter_that_keeps_fewer_tokens_than_it_is_to_is_seen():
    kind = transformers.generation.logits_process.TopPLogitsWarper
    clean = processors.processors()

    def call(plain, self, input_ids, scores):
        kept, self.min_tokens_to_keep = self.min_tokens_to_keep, 1
        try:
            return plain(self, input_ids, scores)
        finally:
            self.min_tokens_to_keep = kept

    with plant(kind, "__call__", call):
        planted = processors.processors()
    differing = {name for name, answer in clean.items() if planted[name] != answer}
    assert differing == {"TopPLogitsWarper(min_tokens_to_keep=32)"}
    assert processors.processors() == clean


def test_what_does_not_generate_has_no_meaning():
    made = model()
    made.can_generate = lambda: False
    reason = raised(NoMeaning, ask, made)
    assert "does not generate" in str(reason)


class Outer(transformers.LlamaForCausalLM):
    """Its generate() is that of a part, as that of Florence-2's own code."""

    by_embeddings = False

    def generate(self, input_ids, **kwargs):
        self.part.generation_config.min_length = 1 + (self.part.generation_config.min_length or 0)
        if self.by_embeddings:
            embeddings = self.part.get_input_embeddings()(input_ids)
            return self.part.generate(inputs_embeds=embeddings, **kwargs)
        return self.part.generate(input_ids, **kwargs)


def outer(seed=0, **settings):
    part = model(seed)
    made = Outer(part.config).eval()
    made.part = part
    for name, value in settings.items():
        setattr(part.generation_config, name, value)
    return made


def test_where_a_part_generates_its_settings_and_its_forward_count():
    plain, changed = ask(outer(seed=1)), ask(outer(repetition_penalty=1.5))
    # of a part with other weights: the logits are those of the table
    assert plain["ways"] == ask(model())["ways"]
    assert (plain["config"] | changed["config"])["repetition_penalty"] == 1.5
    assert plain["config"].get("repetition_penalty") != 1.5
    assert changed["ways"]["greedy"]["scores"] != plain["ways"]["greedy"]["scores"]


def test_of_a_part_that_is_fed_embeddings_only_the_settings_are_compared():
    made = outer(no_repeat_ngram_size=3)
    made.by_embeddings = True
    before = made.part.generation_config.to_dict()
    answer = ask(made)
    assert (answer["ways"], answer["config"]["no_repeat_ngram_size"]) == ({}, 3)
    assert made.part.generation_config.to_dict() == before
