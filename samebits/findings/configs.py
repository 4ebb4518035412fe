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
        yield f"different bytes than from the original: {_first_names(crossing.tensors)}"
    if crossing.logits == "same bits":
        yield "the logits have the same bits"
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
            name="the base config no longer sets this attribute",
            kind="crash",
            looks_for="AttributeError on a …Config object for an attribute that "
            "PretrainedConfig.__init__ used to set (token ids, tie_word_embeddings, is_decoder, "
            "generation parameters …)",
            cause="Up to 4.57 PretrainedConfig.__init__ sets many attributes, such as "
            "pad_token_id, for every config. 5.0 removed them: each config has to declare what "
            "its model uses, and generation parameters are only in generation_config. Reading a "
            "missing one raises AttributeError. Affected: custom models whose config class does "
            "not set an attribute that the model reads.",
            remedy="Set the attribute in the custom config's __init__, with the default that "
            "4.x had. Read generation parameters from model.generation_config.",
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
            cause="5.0 moved rope_theta, rope_scaling and the partial factor into one dict, "
            "rope_parameters. A config class of the library (LlamaConfig …) no longer has "
            "config.rope_theta, so reading it raises AttributeError. A config class that sets "
            "self.rope_theta itself keeps it. Affected: custom models that read rope_theta or "
            "rope_scaling from a config of the library.",
            remedy="Read rope_parameters if the config has it, otherwise the flat field. Do "
            "not use getattr with a default: the model would then run with a wrong rope_theta of "
            "10000, without an exception (SB503).",
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
            name="rope settings are lost when one release saves and another loads",
            kind="silent",
            looks_for="a rope field in the loaded config (rope_theta, rope_scaling, "
            "rope_parameters, rotary_pct) that differs after another release's save_pretrained, "
            "in a checkpoint that loads",
            cause="5.x writes the rope settings into config.json as rope_parameters. 4.x does "
            "not know this key and ignores it. It uses the defaults of its config class: "
            "rope_theta 10000 in most of them, and no scaling. The model loads without an "
            "exception and computes wrong numbers. Affected: users of 4.x who load a checkpoint "
            "that 5.x saved. Some models lose settings between two 5.x releases too: if only one "
            "of them keeps settings per layer type (olmo3), or if the loader's default overrides "
            "rope_parameters (partial_rotary_factor of gpt_neox in 5.2).",
            remedy="Before you publish a checkpoint that 5.x saved, add the flat fields of 4.x "
            "to config.json, next to rope_parameters: rope_theta and rope_scaling, for some "
            "models rotary_pct or global_rope_theta.",
            example='{"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},\n'
            ' "rope_theta": 500000.0, "rope_scaling": null}',
            releases="Saved by 5.0.0 or later and loaded by 4.x. Some models also between 5.x "
            "releases.",
            references=("https://github.com/vllm-project/vllm/issues/42624",),
        ),
        _loses("rope"),
    ),
    Rule(
        RuleText(
            code="SB204",
            name="an infinite config value is saved as a dict",
            kind="crash",
            looks_for="an exception of clamp(), which was given a dict, when a checkpoint that "
            "another release saved is loaded",
            cause="Newer releases write an infinite config value as `{'__float__': "
            "'Infinity'}`. Older releases read this as a dict, and the model raises when it uses "
            "the value as a number. Affected: models with an infinite value in the config, such "
            "as mamba2's time_step_limit, saved by a newer release and loaded by an older one.",
            remedy="Save with a finite limit, or correct the number in config.json by hand.",
            releases="Saved by 5.2.0 or 5.23.0 and loaded by 4.48 or 4.57 (measured here)",
            references=("transformers/configuration_utils.py",),
        ),
        _loses("infinity"),
    ),
    Rule(
        RuleText(
            code="SB205",
            name="the config does not pass strict validation",
            kind="crash",
            looks_for="StrictDataclassFieldValidationError or StrictDataclassClassValidationError",
            cause="By 5.6 the config classes of the library are strict dataclasses "
            '(huggingface_hub.dataclasses). They refuse a value of the wrong type, such as "24" '
            "or 24.0 for an int, and sizes that do not divide. The exception is raised when the "
            "config is made. Affected: checkpoints with such a value in config.json, and custom "
            "configs that derive from a config of the library.",
            remedy="Write the value in config.json in the type that the field declares.",
            releases="Not in 5.2.0. 5.6.2 and later.",
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
            name="`tie_word_embeddings` changes when one release saves and another loads",
            kind="silent",
            looks_for="a value of tie_word_embeddings in the loaded config that differs from the "
            "one of the original checkpoint",
            cause="The saving release writes a different value than it loaded, or it leaves "
            "out the field and the loading release has a different default. Example: 5.x writes "
            "true for an untied t5. 4.x then ties the head to the embedding, and the trained head "
            "is lost without an exception. Affected: users who load a checkpoint that a different "
            "release saved.",
            remedy="After saving, correct tie_word_embeddings in config.json by hand. Then "
            "check that the head's weight is the one of the original.",
            releases="t5: saved by 5.2 or 5.23 and loaded by 4.48 or 4.57 (measured here)",
            references=("transformers/models/t5/configuration_t5.py",),
        ),
        _loses("tie"),
    ),
    Rule(
        RuleText(
            code="SB207",
            name="a checkpoint that one release saves is different when another loads it",
            kind="silent",
            looks_for="a checkpoint saved by another release that fails to load or to run, or "
            "that has different tensors, config values or logits after loading, if no narrower "
            "rule explains it. Not reported if the save itself failed (SB307 of the saver) or if "
            "a process died. A config field that changed is reported even if nothing else did; "
            "the evidence then says whether the logits changed",
            cause="Three causes are known. The two releases interpret the config differently. "
            "The saving release did not load a tensor of the original, and wrote its own value "
            "(roberta in 4.48, see SB308). Or it leaves out or renames tensors that the loading "
            "release needs. Affected: users who load a checkpoint that a different release saved.",
            remedy="Publish the checkpoint as the original release saved it. Do not save it "
            "again with a newer release for users of an older one.",
            releases="depends on the model",
            references=(),
        ),
        _loses("other"),
    ),
)
