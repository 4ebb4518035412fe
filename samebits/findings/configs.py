"""SB2xx: rules for config fields that a release does not have."""

from __future__ import annotations

from samebits.findings.rule import RAISED, Rule, raised

_BASE_ATTRIBUTES = (
    "pad_token_id|eos_token_id|bos_token_id|sep_token_id|decoder_start_token_id"
    "|tie_word_embeddings|is_decoder|add_cross_attention|cross_attention_hidden_size"
    "|pruned_heads|torchscript|tie_encoder_decoder|prefix|task_specific_params|tf_legacy_loss"
    "|use_bfloat16|finetuning_task|tokenizer_class|use_cache|output_attentions|temperature|top_k"
    "|top_p|max_length|num_beams|do_sample"
)

RULES = (
    Rule(
        "SB201",
        raised("AttributeError", rf"'\w*Config' object has no attribute '({_BASE_ATTRIBUTES})'"),
        explains=RAISED,
    ),
    Rule(
        "SB202",
        raised("AttributeError", r"'\w*Config' object has no attribute 'rope_(theta|scaling)'"),
        explains=RAISED,
    ),
    Rule(
        "SB205",
        raised(
            "StrictDataclassFieldValidationError|StrictDataclassClassValidationError"
            "|StrictDataclassDefinitionError",
            # what a validator of a class raises otherwise is a defect of the validator
            r"\A(?!Class validation error for validator '\w+':\s+(Attribute|Index|Name|Type)Error)",
        ),
        explains=RAISED,
    ),
)
