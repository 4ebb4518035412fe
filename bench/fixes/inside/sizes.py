"""Sizes of tiny models, as most cases have them."""

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
"""Two heads of the queries share one of the keys and values."""
