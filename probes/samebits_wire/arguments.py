"""Words by which the effects of generate()'s arguments are kept."""

OF_ANOTHER_TOKENIZER = "of another tokenizer"
"""Kind of an ``assistant_model`` whose tokens are not the model's."""
