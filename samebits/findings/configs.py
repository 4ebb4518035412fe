"""SB2xx: what a config holds, what code expects of it, and what is lost when another release saves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.finding import RuleText
from samebits.findings.rule import Rule, Seen, raised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.crossing import Crossing
    from samebits.findings.case import Case

_BASE_ATTRIBUTES = (
    "pad_token_id|eos_token_id|bos_token_id|sep_token_id|decoder_start_token_id"
    "|tie_word_embeddings|is_decoder|add_cross_attention|cross_attention_hidden_size"
    "|pruned_heads|torchscript|tie_encoder_decoder|prefix|task_specific_params|tf_legacy_loss"
    "|use_bfloat16|finetuning_task|tokenizer_class|use_cache|output_attentions|temperature|top_k"
    "|top_p|max_length|num_beams|do_sample"
)
_MOST = 6
_ROPE_FIELD = re.compile(r"\brope_(?:theta|scaling|parameters)\b|\brope\b")


_CLAMP = "clamp() received an invalid combination"


def _named_loss(crossing: Crossing) -> str:
    """Return what kind of loss a crossing is: ``rope``, ``tie``, ``infinity`` or ``other``."""
    if crossing.failure is not None and _CLAMP in crossing.failure.message:
        return "infinity"
    if crossing.outcome == "differs" and any(map(_ROPE_FIELD.search, crossing.config)):
        return "rope"
    if any(field.startswith("tie_word_embeddings:") for field in crossing.config):
        return "tie"
    return "other"


def _lost(kind: str) -> Callable[[Case], Iterator[Seen]]:
    """Return a check for crossings, from one release to another, that lose this."""

    def check(case: Case) -> Iterator[Seen]:
        for crossing in case.crossings:
            between = crossing.saver != crossing.loader and crossing.is_loss
            if between and _named_loss(crossing) == kind:
                yield Seen(f"saved by {crossing.saver}", tuple(_evidence(crossing)))

    return check


def _evidence(crossing: Crossing) -> Iterator[str]:
    yield f"saved by {crossing.saver}, loaded by {crossing.loader}: {crossing.outcome}"
    if crossing.config:
        yield f"config: {'; '.join(crossing.config[:_MOST])}"
    if crossing.keys:
        yield f"loading: {_some(crossing.keys)}"
    if crossing.tensors:
        yield f"other bytes than from the original: {_some(crossing.tensors)}"
    if crossing.logits_max_abs is not None:
        yield f"logits differ by up to {crossing.logits_max_abs:.2g}"
    if crossing.failure is not None:
        yield f"{crossing.failure.type}: {crossing.failure.message.partition(chr(10))[0]}"
    elif crossing.reason:
        yield crossing.reason


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more}"


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
            looks_for="a rope field of the loader's config that another release's save_pretrained "
            "changed, with other tensors, config or logits than from the original checkpoint",
            cause="5.x writes rope_parameters; 4.x does not know that key, ignores it and falls "
            "back to rope_theta 10000 and no scaling. Among 5.x releases settings are lost where "
            "one reads or writes them per layer type and the other does not (olmo3).",
            remedy="Write the flat rope_theta and rope_scaling beside rope_parameters in "
            "config.json before the checkpoint goes to users of 4.x.",
            example='{"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},\n'
            ' "rope_theta": 500000.0, "rope_scaling": null}',
            releases="saved by 5.0.0 and later, loaded by 4.x; single models between 5.x releases",
            references=("https://github.com/vllm-project/vllm/issues/42624",),
        ),
        _lost("rope"),
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
        _lost("infinity"),
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
        _lost("tie"),
    ),
    Rule(
        RuleText(
            code="SB207",
            name="what one release saves does not come back in another",
            kind="silent",
            looks_for="a checkpoint saved by another release that fails to load or run, or comes "
            "back with other tensors, config values or logits, and for which no narrower rule "
            "speaks",
            cause="The releases read the config otherwise, or the saver leaves out or renames "
            "tensors that the loader needs.",
            remedy="Distribute the checkpoint as the original release saved it; do not save again "
            "with a newer one for users of an older.",
            releases="differs by model",
            references=(),
        ),
        _lost("other"),
    ),
)
