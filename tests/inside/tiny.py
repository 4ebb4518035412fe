"""A small language model with seeded weights, which the checks of training learn with."""

import torch
import transformers


def model(architecture="llama", **changed):
    """Return it in evaluation mode; ``changed`` are fields of its config."""
    torch.manual_seed(0)
    fields = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": None}
    fields |= {"num_attention_heads": 4, "intermediate_size": 48, "num_key_value_heads": 2}
    config = transformers.AutoConfig.for_model(architecture, **(fields | changed))
    made = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.25)
    return made
