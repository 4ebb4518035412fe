"""SB2xx: rules for config fields: missing ones, and losses when another release saves the model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.crossing import Crossing

_BASE_ATTRIBUTES = (
    "pad_token_id|eos_token_id|bos_token_id|sep_token_id|decoder_start_token_id"
    "|tie_word_embeddings|is_decoder|add_cross_attention|cross_attention_hidden_size"
    "|pruned_heads|torchscript|tie_encoder_decoder|prefix|task_specific_params|tf_legacy_loss"
    "|use_bfloat16|finetuning_task|tokenizer_class|use_cache|output_attentions|temperature|top_k"
    "|top_p|max_length|num_beams|do_sample"
)
_MAX_NAMES = 6
_MAX_WORDS = 40
"""Words of a message that are shown. torch names the mismatching tensor on its second line."""
_ROPE_FIELD = re.compile(
    r"(?:^|_)rope_(?:theta|scaling|parameters|local_base_freq)\b|^rotary_(?:pct|emb_base)\b|^rope\b"
)
"""Start of a config line of a crossing. modernbert calls the field ``global_rope_theta``."""
_CLAMP_ERROR = "clamp() received an invalid combination"


def _losses(crossing: Crossing) -> set[str]:
    """Return the losses of a crossing: ``rope``, ``tie``, ``infinity``, ``other``.

    ``other`` is added to a named loss if loading also missed keys, which that does not explain.
    """
    if crossing.failure is not None and _CLAMP_ERROR in crossing.failure.message:
        return {"infinity"}
    losses = set()
    if crossing.outcome != "load failed" and any(map(_ROPE_FIELD.search, crossing.config)):
        losses.add("rope")
    if any(field.startswith("tie_word_embeddings:") for field in crossing.config):
        losses.add("tie")
    return losses | {"other"} if crossing.keys or not losses else losses


def _is_lossy(crossing: Crossing) -> bool:
    """Return True if another stack saved the model and this stack did not load it unchanged.

    A save that failed is a finding of the saver (SB307). A process that died gives no cause.
    """
    if crossing.saver == crossing.loader or crossing.outcome == "save failed":
        return False
    died = crossing.failure is not None and crossing.failure.may_be_the_machine
    return crossing.is_loss and not died


def _loses(kind: str) -> Callable[[Case], Iterator[Sighting]]:
    """Return a check for crossings between releases with this kind of loss."""

    def check(case: Case) -> Iterator[Sighting]:
        for crossing in case.crossings:
            if _is_lossy(crossing) and kind in _losses(crossing):
                where = f"saved by {crossing.saver}"
                yield Sighting(where, tuple(_evidence(crossing)), saver=crossing.saver)

    return check


def _evidence(crossing: Crossing) -> Iterator[str]:
    yield f"saved by {crossing.saver}, loaded by {crossing.loader}: {crossing.outcome}"
    if crossing.config:
        yield f"config: {'; '.join(crossing.config[:_MAX_NAMES])}"
    if crossing.keys:
        yield f"loading: {_first_names(crossing.keys)}"
    if crossing.tensors:
        yield f"other bytes than from the original: {_first_names(crossing.tensors)}"
    if crossing.logits == "same bits":
        yield "the logits hold the same bits"
    elif crossing.logits_max_abs is not None:
        yield f"logits differ by up to {crossing.logits_max_abs:.2g}"
    if crossing.failure is not None:
        yield f"{crossing.failure.type}: {' '.join(crossing.failure.message.split()[:_MAX_WORDS])}"
    elif crossing.reason:
        yield crossing.reason


def _first_names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


RULES = (
    Rule(
        RuleText(
            code="SB201",
            name="the base config no longer has this attribute",
            kind="crash",
            looks_for="AttributeError on a …Config object for an attribute that "
            "PretrainedConfig.__init__ used to set (token ids, tie_word_embeddings, is_decoder, "
            "generation parameters …)",
            cause="5.0 removed these attributes from the base class: each config declares what its "
            "model uses, and generation parameters live in generation_config alone.",
            remedy="Declare the attribute in the custom config's __init__, with the default that "
            "4.x gave it; read generation parameters from model.generation_config.",
            example="class MyConfig(PretrainedConfig):\n"
            "    def __init__(self, *, pad_token_id=None, tie_word_embeddings=True, **kwargs):\n"
            "        super().__init__(**kwargs)\n"
            "        self.pad_token_id = pad_token_id\n"
            "        self.tie_word_embeddings = tie_word_embeddings",
            releases="5.0.0 and later",
            references=(
                "https://github.com/huggingface/transformers/issues/43572",
                "transformers/configuration_utils.py",
            ),
        ),
        raised("AttributeError", rf"'\w*Config' object has no attribute '({_BASE_ATTRIBUTES})'"),
    ),
    Rule(
        RuleText(
            code="SB202",
            name="`config.rope_theta` is now `config.rope_parameters['rope_theta']`",
            kind="crash",
            looks_for="AttributeError on a …Config object for rope_theta or rope_scaling",
            cause="5.0 gathers rope_theta, rope_scaling and the partial factor in one dict, "
            "rope_parameters. A config of the library has no rope_theta any more; one that sets "
            "self.rope_theta itself keeps it.",
            remedy="Read rope_parameters where it is there, and the flat field where it is not. Do "
            "not use getattr with a default: a silent 10000 is worse than the exception.",
            example='rope = getattr(config, "rope_parameters", None) or {}\n'
            'theta = rope["rope_theta"] if "rope_theta" in rope else config.rope_theta',
            releases="5.0.0 and later",
            references=(
                "https://github.com/huggingface/transformers/issues/39847",
                "https://github.com/huggingface/transformers/issues/42255",
            ),
        ),
        raised("AttributeError", r"'\w*Config' object has no attribute 'rope_(theta|scaling)'"),
    ),
    Rule(
        RuleText(
            code="SB203",
            name="rope settings are lost between the release that saves and the one that loads",
            kind="silent",
            looks_for="a rope field of the loader's config (rope_theta, rope_scaling, "
            "rope_parameters, rotary_pct) that another release's save_pretrained changed, in a "
            "checkpoint that loads",
            cause="5.x writes rope_parameters; 4.x does not know that key, ignores it and falls "
            "back to the default of its config class: rope_theta 10000 in most of them, and no "
            "scaling. Among 5.x releases settings are lost where one reads or writes them per layer "
            "type and the other does not (olmo3), or where a default of the loader overrides what "
            "rope_parameters says (gpt_neox's partial_rotary_factor in 5.2).",
            remedy="Write the flat fields of the older release (rope_theta and rope_scaling, for some "
            "models rotary_pct, global_rope_theta …) beside rope_parameters in config.json before the "
            "checkpoint goes to its users.",
            example='{"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},\n'
            ' "rope_theta": 500000.0, "rope_scaling": null}',
            releases="saved by 5.0.0 and later, loaded by 4.x; single models between 5.x releases",
            references=("https://github.com/vllm-project/vllm/issues/42624",),
        ),
        _loses("rope"),
    ),
    Rule(
        RuleText(
            code="SB204",
            name="an infinite config value is saved as a dict",
            kind="crash",
            looks_for="clamp() being handed a dict when a checkpoint saved by another release is "
            "loaded",
            cause="Newer releases write infinities as {'__float__': 'Infinity'}; older ones read "
            "the dict back as it is (mamba2's time_step_limit).",
            remedy="Save with a finite limit, or write the number into config.json by hand.",
            releases="saved by 5.2.0 or 5.23.0, loaded by 4.48 or 4.57, as measured here",
            references=("transformers/configuration_utils.py",),
        ),
        _loses("infinity"),
    ),
    Rule(
        RuleText(
            code="SB205",
            name="the config fails strict validation",
            kind="crash",
            looks_for="StrictDataclassFieldValidationError or StrictDataclassClassValidationError",
            cause="Configs of newer releases are strict dataclasses (huggingface_hub.dataclasses): "
            "a field of another type, or sizes that do not divide, are refused when the config is "
            "made.",
            remedy="Write the value in the type that the field declares (a number, not a string). "
            "A custom config that derives from a library config inherits its checks.",
            releases="not in 5.2.0; 5.6.2 and later",
            references=("huggingface_hub/dataclasses.py",),
        ),
        raised(
            "StrictDataclassFieldValidationError|StrictDataclassClassValidationError"
            "|StrictDataclassDefinitionError",
            "",
        ),
    ),
    Rule(
        RuleText(
            code="SB206",
            name="tie_word_embeddings changes between the release that saves and the one that loads",
            kind="silent",
            looks_for="tie_word_embeddings in the loader's config having another value than from the "
            "original checkpoint",
            cause="The saver writes another value than it loaded, or leaves the field out where the "
            "loader's default differs (t5 saved by 5.x says true for an untied model; 4.x then "
            "ties, and the head is lost).",
            remedy="Set tie_word_embeddings in config.json by hand after saving, and compare the "
            "head's weight.",
            releases="t5: saved by 5.2 or 5.23, loaded by 4.48 or 4.57, as measured here",
            references=("transformers/models/t5/configuration_t5.py",),
        ),
        _loses("tie"),
    ),
    Rule(
        RuleText(
            code="SB207",
            name="what one release saves does not come back in another",
            kind="silent",
            looks_for="a checkpoint saved by another release that fails to load or run, or comes "
            "back with other tensors, config values or logits, and that no narrower rule explains; "
            "silent where saving itself failed (SB307 of the saver) or a process died. A config field "
            "alone is told, too, with what the logits did",
            cause="The releases read the config otherwise; or the saver did not take a tensor of "
            "the original itself and wrote down what it had (roberta by 4.48, see SB308), or it leaves "
            "out or renames tensors that the loader needs.",
            remedy="Distribute the checkpoint as the original release saved it; do not save again "
            "with a newer one for users of an older.",
            releases="differs by model",
            references=(),
        ),
        _loses("other"),
    ),
)
