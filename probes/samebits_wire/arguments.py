"""Words by which the effects of arguments are kept."""

OF_ANOTHER_TOKENIZER = "of another tokenizer"
"""Kind of an ``assistant_model`` whose tokens are not the model's."""
HEEDED = "what the argument does"
"""What a forward does of which the config has a setting, and heeds it."""
