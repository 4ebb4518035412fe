"""Words by which the effects of arguments are kept."""

OF_ANOTHER_TOKENIZER = "of another tokenizer"
"""Kind of an ``assistant_model`` whose tokens are not the model's."""
HEEDED = "what the argument does"
"""What a forward does of which the config has a setting, and heeds it."""
FIELDS, NO_LAYERS = "fields of what generate() returns", "hidden_states 3 of none"
"""Call whose result has :data:`NO_LAYERS` where steps came without the hidden states that were requested."""
CHUNKED = "scores of generate(prefill_chunk_size=2) with a padded row"
"""Call whose result is :data:`WHOLE_PROMPT`, or :data:`OTHER_PROMPT`."""
WHOLE_PROMPT, OTHER_PROMPT = (
    "those of the whole prompt",
    "other ones than those of the whole prompt",
)
JOINED = "what a text is classified by that has the token of pads inside"
"""Call whose result is :data:`WHOLE_TEXT`, or :data:`CUT_TEXT`."""
WHOLE_TEXT, CUT_TEXT = "all of it", "what stands before that token"
OF_PADDED = "static (one row padded)"
"""Kind of cache of a batch in which one row has padding on its left."""
LOADED_IN = "from_pretrained(dtype='bfloat16')"
"""Load whose result is the dtypes of the parameters."""
STREAMS = "several streams"
"""Kind of an argument of a generate() that returns a token for each of several streams, such as codes of a sound."""
MORE_THAN_TEXT = "with more than text"
"""Kind of an argument that is given to a prompt with an image, a video or a sound."""
GATHERED = "outputs of two devices, gathered by nn.DataParallel"
"""Call of the usage question: what ``torch.nn.DataParallel`` makes of what forward returns."""
