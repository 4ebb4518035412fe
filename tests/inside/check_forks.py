"""model.forks and model.load: each branch belongs to the release that runs it."""

import inspect
import sys
from unittest import mock

import torch
import transformers
from samebits_probe.model import forks, load

MAJOR = int(transformers.__version__.split(".")[0])


def test_dtype_keyword():
    assert forks.dtype_keyword() == (
        "dtype" if transformers.__version__ >= "4.57" else "torch_dtype"
    )


def test_the_cache_of_generate_has_the_name_that_the_release_passes():
    from transformers.generation import GenerationMixin

    parameters = inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    assert forks.cache_name() in parameters


def test_whether_an_empty_cache_of_generate_is_true():
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=1))
    seen = []
    see = lambda _, args, kwargs: seen.append(bool(kwargs.get(forks.cache_name())))
    llama.register_forward_pre_hook(see, with_kwargs=True)
    llama.generate(torch.tensor([[3, 4]]), max_new_tokens=1)
    assert seen == [forks.empty_cache_is_true()]


def test_a_kv_cache_is_told_from_states_by_any_name():
    config = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config, intermediate_size=8))
    mamba = transformers.MambaForCausalLM(transformers.MambaConfig(**config))
    assert forks.takes_kv_cache(llama)
    assert forks.cache_keyword(llama) == forks.cache_name()
    assert not forks.takes_kv_cache(mamba)
    assert forks.cache_keyword(mamba) in {"cache", "cache_params"}


def test_loading_info_is_sorted_text_in_every_release():
    info = {
        "missing_keys": {"b", "a"},
        "unexpected_keys": ["c"],
        "mismatched_keys": [("d", (1,), (2,))],
    }
    found = forks.loading_info(info)
    assert found["missing_keys"] == ["a", "b"]
    assert found["mismatched_keys"] == ["('d', (1,), (2,))"]


def test_a_load_with_an_adapter_has_an_info_also_where_the_release_has_none():
    for info, keys in ((None, {}), (mock.Mock(**{"to_dict.return_value": {"a": 1}}), {"a": 1})):
        with mock.patch.object(transformers.PreTrainedModel, "load_adapter", return_value=info):
            with forks.adapters_with_info():
                assert transformers.PreTrainedModel.load_adapter(None).to_dict() == keys
            assert transformers.PreTrainedModel.load_adapter(None) is info


def test_rope_settings_read_alike():
    config = transformers.LlamaConfig(rope_theta=1234.0)
    settings = forks.rope_settings(config)
    assert settings["rope_theta"] == 1234.0
    assert settings["rope_type"] == "default"


def test_effective_configs_spell_rope_alike():
    values = load.effective_config(transformers.LlamaConfig(rope_theta=1234.0))
    assert values["rope_parameters"] == {"rope_theta": 1234.0, "rope_type": "default"}
    assert "torch_dtype" not in values
    assert "transformers_version" not in values


def test_architectures_are_those_of_the_library_without_importing_it():
    import architectures
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    assert architectures.architectures() == sorted(CONFIG_MAPPING_NAMES)


def test_heads():
    assert load.head_of("GPT2LMHeadModel", encoder_decoder=False) == "causal-lm"
    assert load.head_of("BertForMaskedLM", encoder_decoder=False) == "masked-lm"
    assert load.head_of("BertModel", encoder_decoder=False) == "base"
    assert load.head_of("ReformerModelWithLMHead", encoder_decoder=False) == "causal-lm"
    assert load.head_of("MarianMTModel", encoder_decoder=True) == "seq2seq-lm"
    assert load.head_of("VisionEncoderDecoderModel", encoder_decoder=True) == "seq2seq-lm"
    generates = "ForConditionalGeneration"
    assert load.head_of(f"T5{generates}", encoder_decoder=True) == "seq2seq-lm"
    assert load.head_of(f"Llava{generates}", encoder_decoder=False) == "causal-lm"


def test_what_5_x_compiles_once_in_a_process_is_there_before_children_are_made():
    forks.prepare()
    if transformers.__version__.startswith("4."):
        assert "transformers.conversion_mapping" not in sys.modules
        return
    from transformers import conversion_mapping

    assert conversion_mapping._checkpoint_conversion_mapping_cache


def test_a_cache_is_refused_by_name_and_among_other_arguments():
    class Model:
        def __init__(self, forward, generates):
            self.forward = forward
            self.can_generate = lambda: generates

    def by_name(input_ids, use_cache=None):
        pass

    def among_others(input_ids, **kwargs):
        pass

    def neither(input_ids):
        pass

    refused = {"use_cache": False}
    assert forks.uncached(Model(by_name, False)) == refused
    assert forks.uncached(Model(among_others, True)) == refused
    assert forks.uncached(Model(among_others, False)) == {}
    assert forks.uncached(Model(neither, True)) == {}
