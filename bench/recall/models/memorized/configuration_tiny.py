"""The config of a small decoder whose code comes with its checkpoint."""

from transformers import PretrainedConfig


class TinyConfig(PretrainedConfig):
    """What the model is made of.

    Every field that the model's code reads is set here: what the base class sets differs between
    releases. Rope is kept as one dict, ``rope_parameters``, whichever way a file writes it:
    ``rope_theta`` and ``rope_scaling`` up to 4.57, ``rope_parameters`` from 5.0 on.
    """

    model_type = "tiny_custom"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size=64,
        hidden_size=24,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        hidden_act="silu",
        max_position_embeddings=128,
        rms_norm_eps=1e-6,
        attention_bias=True,
        attention_dropout=0.0,
        mlp_bias=True,
        initializer_range=0.02,
        use_cache=True,
        rope_theta=10000.0,
        rope_scaling=None,
        rope_parameters=None,
        pad_token_id=None,
        bos_token_id=1,
        eos_token_id=None,
        tie_word_embeddings=True,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.hidden_act = hidden_act
        self.max_position_embeddings = max_position_embeddings
        self.rms_norm_eps = rms_norm_eps
        self.attention_bias = attention_bias
        self.attention_dropout = attention_dropout
        self.mlp_bias = mlp_bias
        self.initializer_range = initializer_range
        self.use_cache = use_cache
        written = rope_parameters or rope_scaling or {}
        self.rope_parameters = {"rope_type": "default", "rope_theta": rope_theta, **written}
        super().__init__(
            pad_token_id=pad_token_id,
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            tie_word_embeddings=tie_word_embeddings,
            **kwargs,
        )
