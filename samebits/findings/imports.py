"""SB1xx: rules for names and inherited methods that a release renamed, moved or removed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.code import ImportFact

_KWARGS_NAMES = frozenset({"LossKwargs", "TransformersKwargs"})

INSTEAD: dict[str, str] = {
    "is_torch_fx_available": "it only guarded a wrap for torch.fx: drop the guard and the wrap",
    "is_tf_available": "removed with the support of `TensorFlow`: treat it as False",
    "find_pruneable_heads_and_indices": "removed with head pruning in 5.0: drop prune_heads, or "
    "copy the function",
    "prune_linear_layer": "import it from transformers.pytorch_utils",
    "apply_chunking_to_forward": "import it from transformers.pytorch_utils",
    "SequenceSummary": "removed after 4.48: copy the class",
    "no_init_weights": "5.x has it in transformers.initialization",
    "get_parameter_dtype": "`next(model.parameters()).dtype`",
    "HybridCache": "DynamicCache(config=config), which has sliding layers from 4.57 on",
    "SlidingWindowCache": "DynamicCache(config=config); the name is back from 5.6 as an alias of "
    "StaticCache",
    "MambaCache": "let the model make its cache: forward(use_cache=True) returns it",
    "create_causal_mask": "transformers.masking_utils exists from 4.53 on: build the mask "
    "yourself if the import fails",
    "SpecialTokensMixin": "derive from PreTrainedTokenizerBase",
    "LlamaTokenizerFast": "from transformers import LlamaTokenizerFast works in all releases",
    "Qwen2TokenizerFast": "from transformers import Qwen2TokenizerFast works in all releases",
    "_compute_default_rope_parameters": "compute `1 / theta ** (arange(0, dim, 2) / dim)` yourself",
    "RotaryEmbeddingConfigMixin": "5.x only: guard the import",
    "GreedySearchDecoderOnlyOutput": "GenerateDecoderOnlyOutput, its name since 4.36",
    "SampleOutput": "GenerateDecoderOnlyOutput",
    "BeamSearchScorer": "removed: call generate(num_beams=…)",
    "LogitsWarper": "LogitsProcessor does both since 4.46",
    "AdamW": "`torch.optim.AdamW`",
    "VideoInput": "import it from transformers.video_utils",
    "AutoModelForVision2Seq": "AutoModelForImageTextToText",
    "AutoModelWithLMHead": "AutoModelForCausalLM, AutoModelForMaskedLM or AutoModelForSeq2SeqLM",
    "CLIPFeatureExtractor": "CLIPImageProcessor",
    "OnnxConfig": "`optimum.exporters.onnx`",
    "symbolic_trace": "torch.fx or torch.export directly",
    "BertSdpaSelfAttention": "BertSelfAttention with `attn_implementation='sdpa'`",
    "is_torch_greater_or_equal_than_1_13": "True in every release that runs today: drop it",
    "check_model_inputs": "missing in some releases (4.48, 5.2): import it in a try, and use a "
    "decorator that returns its function as the fallback",
    "OutputRecorder": "`utils.generic` up to 5.1, `utils.output_capturing` from 5.2 on: try both",
}
"""Name -> what to do instead.

Checked against the wheels of 4.48.0 to 5.23.0 (docs/catalogue.md, IMP-02).
"""


def _raised_name(case: Case) -> str | None:
    """Return the name whose import from transformers raised the cell's exception."""
    imported = case.raised(
        "ImportError|ModuleNotFoundError", r"cannot import name '(\w+)' from 'tr"
    )
    if imported:
        return imported[1]
    missing_module = case.raised("ModuleNotFoundError", r"No module named '(transformers[\w.]*)'")
    return missing_module[1].rpartition(".")[2] if missing_module else None


def _missing_imports(case: Case) -> list[ImportFact]:
    """Return unguarded imports of names that this stack lacks; empty if the model runs.

    Python stops at the first one. This list has those after it, too.
    """
    if case.failure is None:
        return []
    return [fact for fact in case.imports if not fact.symbol.found and not fact.guarded]


def _sighting(case: Case, fact: ImportFact) -> Sighting:
    lines = [f"{fact.symbol.owner} of this release has no {fact.symbol.name}"]
    if fact.symbol.elsewhere:
        lines.append(f"it is in {', '.join(fact.symbol.elsewhere)}")
    elif fact.symbol.similar:
        lines.append(f"similar names there: {', '.join(fact.symbol.similar)}")
    is_raised = _raised_name(case) in (fact.symbol.name, fact.symbol.owner.rpartition(".")[2])
    lines += case.exception_lines() if is_raised else ("not reached yet: the load fails before it",)
    return Sighting(f"{fact.file}:{fact.line}", tuple(lines))


def _imports_of(names: frozenset[str], case: Case) -> Iterator[Sighting]:
    facts = [fact for fact in _missing_imports(case) if fact.symbol.name in names]
    yield from (_sighting(case, fact) for fact in facts)
    raised_name = _raised_name(case)
    reported = {part for f in facts for part in (f.symbol.name, f.symbol.owner.rpartition(".")[2])}
    if raised_name in names - reported:
        yield Sighting(case.raised_at(), case.exception_lines())


def _loss_kwargs(case: Case) -> Iterator[Sighting]:
    return _imports_of(_KWARGS_NAMES, case)


def _removed_names(case: Case) -> Iterator[Sighting]:
    for where, evidence, _ in _imports_of(frozenset(INSTEAD) | {"masking_utils"}, case):
        names = (name for name in INSTEAD if any(re.search(rf"\b{name}\b", e) for e in evidence))
        advice = tuple(f"instead of {name}: {INSTEAD[name]}" for name in names)
        yield Sighting(where, (*evidence, *advice))


def _no_generation_mixin(case: Case) -> Iterator[Sighting]:
    """Find a head class without GenerationMixin in a cell that does not generate."""
    reasons = [skip.reason for skip in case.capture.skips if skip.why == "no generation"]
    if not reasons:
        return
    load = case.capture.signals.load
    for fact in case.classes:
        bases = {base.rpartition(".")[2] for base in fact.bases}
        is_head = load is not None and fact.name == load.model_class and "CausalLM" in fact.name
        if is_head and "PreTrainedModel" in " ".join(bases) and "GenerationMixin" not in bases:
            declared = f"class {fact.name}({', '.join(fact.bases)})"
            yield Sighting(
                f"{fact.file}:{fact.line}",
                (f"{declared} does not derive from GenerationMixin", *reasons),
            )


RULES = (
    Rule(
        RuleText(
            code="SB101",
            name="`LossKwargs` was renamed to `TransformersKwargs`",
            kind="crash",
            looks_for="an ImportError for one of the two names; or, in a model that fails to "
            "load, an import of a name that this release does not have. An import with a fallback "
            "(`except ImportError`) is not reported",
            cause="Releases up to 4.53 have transformers.utils.LossKwargs. From 4.54 on it is "
            "called TransformersKwargs. No release has both names, so an import of the other one "
            "raises ImportError. Affected: custom models that import one of the two names without "
            "a fallback.",
            remedy="Import the new name and fall back to the old one. Both are TypedDicts that "
            "only annotate `**kwargs`, so the choice does not change any number.",
            example="try:\n    from transformers.utils import TransformersKwargs\nexcept ImportError:"
            "  # 4.53 and older\n    from transformers.utils import LossKwargs as TransformersKwargs",
            releases="LossKwargs: 4.48.0 to 4.53.3. TransformersKwargs: 4.57.6 and later. Read "
            "in the wheels and run by this project's tests.",
            references=("transformers/utils/generic.py",),
        ),
        _loss_kwargs,
    ),
    Rule(
        RuleText(
            code="SB102",
            name="an imported name was moved or removed",
            kind="crash",
            looks_for="an ImportError for a name of the table below; or, in a model that fails to "
            "load, an import of such a name that this release does not have. Names that are not "
            "in the table are not reported here; the failure itself then shows where this release "
            "has the name",
            cause="Since 4.53, and above all in 5.0, about thirty names that model code "
            "imports were moved or removed. `import` then raises ImportError while the model "
            "loads. Affected: custom models that import one of these names without a fallback.",
            remedy="Replace the name as the table says. The evidence of a finding repeats the "
            "row of its name.",
            instead=INSTEAD,
            releases="Depends on the name. Most were removed in 5.0.0. A few are missing in some "
            "releases only: check_model_inputs is in 4.57 and 5.23, and is missing in 4.48 and "
            "5.2.",
            references=("MIGRATION_GUIDE_V5.md in the transformers repository",),
        ),
        _removed_names,
    ),
    Rule(
        RuleText(
            code="SB103",
            name="a model head without `GenerationMixin` cannot generate",
            kind="api",
            looks_for="a …CausalLM class in the model's own code that does not derive from "
            "GenerationMixin, in a release where the loaded model cannot generate",
            cause="Up to 4.49 PreTrainedModel derives from GenerationMixin; since 4.50 it "
            "does not, and the class has no generate(). Auto classes add GenerationMixin to "
            "remote code only if the class defines prepare_inputs_for_generation "
            "(add_generation_mixin_to_remote_model). Without that method 4.48 cannot generate "
            "either: its generate() refuses the class. Affected: custom heads that derive from "
            "PreTrainedModel only.",
            remedy="Derive the head from both classes. Every release has GenerationMixin.",
            example="from transformers import GenerationMixin, PreTrainedModel\n\n"
            "class MyModelForCausalLM(MyPreTrainedModel, GenerationMixin): ...",
            releases="Loaded through an auto class: the same in all releases. Used directly: "
            "4.48 inherits generate(), 4.53 and later do not.",
            references=(
                "https://github.com/openvla/openvla/issues/348",
                "transformers/models/auto/auto_factory.py",
                "tests/custom/no-generation-mixin.diff",
            ),
        ),
        _no_generation_mixin,
    ),
    Rule(
        RuleText(
            code="SB104",
            name="a helper method of `PreTrainedModel` was removed",
            kind="crash",
            looks_for="AttributeError for get_head_mask, get_extended_attention_mask, "
            "invert_attention_mask or create_extended_attention_mask_for_decoder",
            cause="5.0 removed get_head_mask together with head masking. By 5.23 "
            "invert_attention_mask, get_extended_attention_mask and "
            "create_extended_attention_mask_for_decoder are gone too; masking_utils replaces "
            "them. A call raises AttributeError. Affected: custom models written in the style of "
            "BERT or GPT-2 that call these methods on self.",
            remedy="get_head_mask: drop the call; without a head mask it returned `[None] * "
            "num_hidden_layers`. Extended mask: compute `(1 - mask[:, None, None, :]) * "
            "torch.finfo(dtype).min` yourself.",
            releases="get_head_mask: up to 4.57. get_extended_attention_mask and "
            "invert_attention_mask: up to 5.15.",
            references=("transformers/modeling_utils.py",),
        ),
        raised(
            "AttributeError",
            r"has no attribute '(get_head_mask|get_extended_attention_mask|invert_attention_mask"
            r"|create_extended_attention_mask_for_decoder)'",
        ),
    ),
    Rule(
        RuleText(
            code="SB105",
            name="`from_pretrained` no longer knows a keyword, or does not know it yet",
            kind="crash",
            looks_for="TypeError or ValueError: unexpected keyword argument dtype, "
            "use_flash_attention_2, load_in_8bit, load_in_4bit or use_auth_token",
            cause="Keywords of from_pretrained were renamed. A release that does not know a "
            "keyword passes it on to the model's __init__, which raises TypeError. New names: "
            "dtype for torch_dtype (since 4.56), attn_implementation for use_flash_attention_2, "
            "token for use_auth_token, quantization_config for load_in_8bit and load_in_4bit. "
            "Affected: custom code that calls from_pretrained with one of them.",
            remedy="Write torch_dtype, which every release accepts. For the others write the "
            "new keyword.",
            example="super().from_pretrained(*args, torch_dtype=dtype, **kwargs)",
            releases="dtype: not in 4.48 and 4.53. use_flash_attention_2: removed by 4.53. "
            "load_in_8bit and use_auth_token: removed in 5.0.",
            references=("transformers/modeling_utils.py, from_pretrained",),
        ),
        raised(
            "TypeError|ValueError",
            r"unexpected keyword argument '(dtype|use_flash_attention_2|load_in_8bit|load_in_4bit"
            r"|use_auth_token)'",
        ),
    ),
)
