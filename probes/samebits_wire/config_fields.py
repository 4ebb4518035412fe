"""Fields of a config that change no number of a forward on a CPU."""

from __future__ import annotations

WITHOUT_EFFECT = (
    r"output_\w+|use_cache|torchscript|gradient_checkpointing|problem_type|summary_\w+|is_decoder|is_encoder_decoder"
    r"|chunk_size_feed_forward|use_bfloat16|return_dict|tf_\w+|_\w+|\w*dropout\w*|\w*labels?\w*|\w*(flash|kernel|fused|compile)\w*"
)
"""Pattern of their names, to which a caller adds more."""
