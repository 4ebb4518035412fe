"""cell.rope: the closed formulas are transformers' own to within float32, and an ulp shows."""

from types import SimpleNamespace

import torch
import transformers
from samebits_probe.cell import rope
from samebits_probe.model import forks

NEW = int(transformers.__version__.split(".")[0]) >= 5

KINDS = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + i / 10 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)],
        "original_max_position_embeddings": 32,
        "factor": 4.0,
    },
}


def model(scaling, head_dim=None):
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        rope_theta=5000.0,
        rope_scaling=scaling,
        max_position_embeddings=128,
    )
    if head_dim is not None:
        config.head_dim = head_dim  # 5.23 refuses an odd one where a config is made
    return transformers.LlamaForCausalLM(config)


class Keeper:
    def ref(self, tensor):
        return {"hash": ""}


def facts(model):
    (found,) = rope.inv_freq(model, Keeper(), None).values()
    return found


def test_formulas_agree_with_the_release_within_their_bound():
    for kind, scaling in KINDS.items():
        found = facts(model(dict(scaling) if scaling else None))
        assert found["rope_type"] == kind
        formula = found["formula"]
        assert formula["max_ulp"] is not None, (kind, formula)
        assert formula["max_ulp"] < formula["bound_ulp"], (kind, formula)


def sources_formula(dim, base=5000.0):
    """Return the frequencies as modeling_rope_utils.py writes them, from 4.48 to 5.23."""
    return 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))


def test_an_odd_dimension_and_its_even_twin():
    for dim in (15, 16, 7, 8, 1, 2):
        for scaling in (None, {"rope_type": "linear", "factor": 2.5}, KINDS["llama3"]):
            built = model(dict(scaling) if scaling else None, head_dim=dim)
            buffer = built.model.rotary_emb.inv_freq
            assert buffer.numel() == (dim + 1) // 2
            if scaling is None:
                assert torch.equal(buffer, sources_formula(dim))
            formula = facts(built)["formula"]
            assert formula["max_ulp"] <= formula["bound_ulp"], (dim, scaling, formula)
            if buffer.numel() > 2:
                # those of the other dimension with as many entries are none of this config
                buffer.copy_(sources_formula(dim - 1 if dim % 2 == 0 else dim + 1))
                formula = facts(built)["formula"]
                assert formula["max_ulp"] > formula["bound_ulp"], (dim, scaling, formula)


def test_a_share_of_the_head_can_be_an_odd_dimension():
    glm = transformers.GlmConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=20,
        pad_token_id=0,
    )
    for share, dim in ((0.75, 15), (0.7, 14)):
        if NEW:
            glm.rope_parameters = {
                "rope_type": "default",
                "rope_theta": 5000.0,
                "partial_rotary_factor": share,
            }
        else:
            glm.rope_theta, glm.partial_rotary_factor = 5000.0, share
        built = transformers.GlmForCausalLM(glm)
        assert torch.equal(built.model.rotary_emb.inv_freq, sources_formula(dim)), share
        found = facts(built)["formula"]
        assert found["max_ulp"] <= found["bound_ulp"], (share, found)


def test_a_dimension_that_the_config_does_not_name():
    class Config:
        hidden_size, num_attention_heads = 64, 2

    assert rope.rotary_dims(4, {}, Config()) == [8, 7]
    Config.qk_rope_head_dim = 7
    assert rope.rotary_dims(4, {}, Config()) == [7]
    Config.head_dim = 10
    settings = {"partial_rotary_factor": 0.8}
    assert rope.rotary_dims(4, settings, Config()) == [8, 7]
    assert rope.rotary_dims(5, settings, Config()) == [10]


def test_4_48_reads_the_wrong_length_for_yarn_and_is_told_so():
    # its _compute_yarn_parameters takes max_position_embeddings where the paper, and every
    # later release, takes original_max_position_embeddings
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    formula = facts(model(scaling))["formula"]
    old = transformers.__version__.startswith("4.48.")
    assert (formula["max_ulp"] > formula["bound_ulp"]) == old, formula


def test_a_wrong_frequency_is_far_off_the_formula():
    built = model(None)
    built.model.rotary_emb.inv_freq[3] *= 1.001
    formula = facts(built)["formula"]
    assert formula["max_ulp"] > 100 > formula["bound_ulp"]


def test_junk_has_no_distance_but_is_compared():
    built = model(None)
    built.model.rotary_emb.inv_freq.fill_(float("nan"))
    assert facts(built)["formula"]["max_ulp"] is None


class Ambiguous:
    """A config with a field for each layer, as 5.17 and later have."""

    def __init__(self, **sizes):
        names = {name for name, values in sizes.items() if isinstance(values, list)}
        self._heterogeneity_spec = SimpleNamespace(per_layer_attributes=names)
        self._sizes = sizes

    @property
    def per_layer_config(self):
        layers = range(len(self._sizes["head_dim"]))
        return [
            SimpleNamespace(**{n: v[i] for n, v in self._sizes.items() if isinstance(v, list)})
            for i in layers
        ]

    def __getattr__(self, name):
        if name in self._heterogeneity_spec.per_layer_attributes:
            raise RuntimeError(name)
        if name not in self._sizes:
            raise AttributeError(name)
        return self._sizes[name]


def test_a_field_that_each_layer_has_is_read_of_the_layers():
    config = Ambiguous(head_dim=[16, 16, 32], num_attention_heads=4, hidden_size=48)
    assert forks.values_of(config, "head_dim") == [16, 16, 32]
    assert forks.value_of(config, "head_dim") == 16
    assert forks.values_of(config, "hidden_size") == [48]
    assert forks.values_of(SimpleNamespace(), "head_dim") == [None]
    assert rope.rotary_dims(8, {}, config) == [16]
    assert rope.rotary_dims(16, {}, config) == [32]


def test_layers_of_gemma_4_have_heads_of_their_own():
    if not hasattr(transformers, "Gemma4TextConfig"):
        return
    config = transformers.Gemma4TextConfig(
        num_hidden_layers=6, head_dim=16, global_head_dim=32, num_attention_heads=2
    )
    sizes = forks.values_of(config, "head_dim")
    assert sizes in ([16], [16] * 5 + [32])
    assert rope.rotary_dims(8, {}, config) == [16]


def test_a_config_that_refuses_a_read_has_no_formula_and_fails_nothing():
    class Refusing:
        def __getattr__(self, name):
            raise RuntimeError(name)

    settings = {"rope_theta": 500.0}
    facts = rope.formula_facts("default", torch.ones(8), settings, Refusing())
    assert "RuntimeError" in facts["note"]
