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
    "is_torch_fx_available": "it only guarded torch.fx wrapping: drop the guard and the wrap",
    "is_tf_available": "gone with `TensorFlow`: treat it as False",
    "find_pruneable_heads_and_indices": "head pruning is gone in 5.0: drop prune_heads, or copy the "
    "function",
    "prune_linear_layer": "import it from transformers.pytorch_utils",
    "apply_chunking_to_forward": "import it from transformers.pytorch_utils",
    "SequenceSummary": "copy the class: it left the library after 4.48",
    "no_init_weights": "5.x has it in transformers.initialization",
    "get_parameter_dtype": "`next(model.parameters()).dtype`",
    "HybridCache": "DynamicCache(config=config) makes sliding layers by itself from 4.57 on",
    "SlidingWindowCache": "DynamicCache(config=config); the name is back from 5.6 as an alias of "
    "StaticCache",
    "MambaCache": "let the model make its cache: forward(use_cache=True) returns it",
    "create_causal_mask": "there is no transformers.masking_utils before 4.53: build the mask "
    "yourself where the import fails",
    "SpecialTokensMixin": "derive from PreTrainedTokenizerBase",
    "LlamaTokenizerFast": "from transformers import LlamaTokenizerFast works in all releases",
    "Qwen2TokenizerFast": "from transformers import Qwen2TokenizerFast works in all releases",
    "_compute_default_rope_parameters": "compute `1 / theta ** (arange(0, dim, 2) / dim)` yourself",
    "RotaryEmbeddingConfigMixin": "5.x only: guard the import",
    "GreedySearchDecoderOnlyOutput": "GenerateDecoderOnlyOutput has been its name since 4.36",
    "SampleOutput": "GenerateDecoderOnlyOutput",
    "BeamSearchScorer": "gone: call generate(num_beams=…)",
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
    "check_model_inputs": "missing in 5.2 only: import it in a try, with the identity as fallback",
    "OutputRecorder": "`utils.generic` through 5.1, `utils.output_capturing` from 5.2: try both",
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
        lines.append(f"names like it there: {', '.join(fact.symbol.similar)}")
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
            yield Sighting(
                f"{fact.file}:{fact.line}",
                (
                    f"class {fact.name}({', '.join(fact.bases)}) has no GenerationMixin as a base",
                    *reasons,
                ),
            )


RULES = (
    Rule(
        RuleText(
            code="SB101",
            name="LossKwargs was renamed to TransformersKwargs",
            kind="crash",
            looks_for="an ImportError for one of the two names, or an unguarded import of one that "
            "this stack does not have in a model that fails to load; an import inside "
            "try/except ImportError keeps it silent",
            cause="transformers.utils.LossKwargs, the TypedDict of extra forward arguments, was "
            "extended and renamed to TransformersKwargs between 4.53 and 4.57. Neither name exists "
            "in all releases.",
            remedy="Import the new name and fall back to the old one. Both are TypedDicts that "
            "only annotate **kwargs, so which of them is used changes no bit.",
            example="try:\n    from transformers.utils import TransformersKwargs\nexcept ImportError:"
            "  # 4.53 and older\n    from transformers.utils import LossKwargs as TransformersKwargs",
            releases="LossKwargs: 4.48.0 and 4.53.3 have it, 4.57.6 and later do not. "
            "TransformersKwargs: the other way round. Read in the wheels, run by this project's "
            "tests.",
            references=("transformers/utils/generic.py",),
        ),
        _loss_kwargs,
    ),
    Rule(
        RuleText(
            code="SB102",
            name="an imported name was moved or removed",
            kind="crash",
            looks_for="an ImportError for a name of the list below, or an unguarded import of one "
            "that this stack does not have in a model that fails to load. A name that is not on the "
            "list makes no finding; the failure then shows where the stack has it now",
            cause="Releases from 4.53 on, and 5.0 above all, removed or moved about thirty names "
            "that model code imports.",
            remedy="See the table; the finding repeats the line of the name that it found.",
            instead=INSTEAD,
            releases="depends on the name; most went with 5.0.0, some flicker (check_model_inputs "
            "is missing in 5.2 alone)",
            references=("MIGRATION_GUIDE_V5.md in the transformers repository",),
        ),
        _removed_names,
    ),
    Rule(
        RuleText(
            code="SB103",
            name="a head without GenerationMixin does not generate",
            kind="api",
            looks_for="a …CausalLM class of the model's own code without GenerationMixin among its "
            "bases, on a stack where the loaded model does not generate",
            cause="Since 4.50 PreTrainedModel does not derive from GenerationMixin. Auto classes "
            "still add it to remote code that has a prepare_inputs_for_generation of its own "
            "(add_generation_mixin_to_remote_model). Without one, 4.48 inherits a generate() that "
            "refuses the class, and later releases have none; code that calls the class itself, and "
            "not an auto class, loses generate() either way.",
            remedy="Derive the head class from both. GenerationMixin exists in every release.",
            example="from transformers import GenerationMixin, PreTrainedModel\n\n"
            "class MyModelForCausalLM(MyPreTrainedModel, GenerationMixin): ...",
            releases="through auto classes all alike; by the class itself 4.48 inherits it, 4.53 and "
            "later do not",
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
            name="a helper method of PreTrainedModel is gone",
            kind="crash",
            looks_for="AttributeError for get_head_mask, get_extended_attention_mask, "
            "invert_attention_mask or create_extended_attention_mask_for_decoder",
            cause="5.0 removed get_head_mask with head masking; 5.23 removed the extended-mask "
            "helpers, which masking_utils replaces.",
            remedy="Head mask: drop it ([None] * num_hidden_layers is what it returned for None). "
            "Extended mask: compute (1 - mask[:, None, None, :]) * torch.finfo(dtype).min yourself.",
            releases="get_head_mask: through 4.57; get_extended_attention_mask and "
            "invert_attention_mask: through 5.15",
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
            name="from_pretrained does not know a keyword",
            kind="crash",
            looks_for="TypeError or ValueError for dtype, use_flash_attention_2, load_in_8bit, "
            "load_in_4bit or use_auth_token as an unexpected keyword argument",
            cause="dtype replaced torch_dtype in 4.56; use_flash_attention_2 gave way to "
            "attn_implementation, use_auth_token to token, load_in_8bit to quantization_config.",
            remedy="torch_dtype works in every release; for the others use the new keyword.",
            example="super().from_pretrained(*args, torch_dtype=dtype, **kwargs)",
            releases="dtype: unknown to 4.48 and 4.53; use_flash_attention_2: gone by 4.53; "
            "load_in_8bit and use_auth_token: gone in 5.0",
            references=("transformers/modeling_utils.py, from_pretrained",),
        ),
        raised(
            "TypeError|ValueError",
            r"unexpected keyword argument '(dtype|use_flash_attention_2|load_in_8bit|load_in_4bit"
            r"|use_auth_token)'",
        ),
    ),
)
