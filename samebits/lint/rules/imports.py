"""SB1xx: names, inherited methods and keywords that a release renamed, moved or removed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samebits.lint.guards import guarded, guarded_import
from samebits.lint.names import (
    mask_of,
    modules_with,
    names_of,
    nearest,
    never,
    releases_without,
)
from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import Class, Project, asks, is_library_model, problem
from samebits.lint.releases import between, since
from samebits.lint.source import Import, Source
from samebits.lint.syntax import inside, is_name, is_super, keyword, method_call

_KWARGS = {"LossKwargs", "TransformersKwargs"}

_ELSEWHERE = {
    ("transformers.modeling_utils", "prune_linear_layer"): "transformers.pytorch_utils",
    ("transformers.modeling_utils", "apply_chunking_to_forward"): "transformers.pytorch_utils",
    (
        "transformers.modeling_utils",
        "find_pruneable_heads_and_indices",
    ): "transformers.pytorch_utils",
    ("transformers.models.llama.tokenization_llama_fast", "LlamaTokenizerFast"): "transformers",
    ("transformers.models.qwen2.tokenization_qwen2_fast", "Qwen2TokenizerFast"): "transformers",
}
"""(module, name) -> the module that has the same object in more releases, 4.48 included."""

_OTHER_FRAMEWORK = re.compile(r"(?:TF|Flax)[A-Z][a-z]")
"""Names of classes for TensorFlow and JAX, which are not in the table: 5.0 has none."""
_ACRONYM = re.compile(r"(?:TF|Flax)[A-Z]{2}\w*[a-z]")
"""The same before an acronym, such as in ``TFCLIPModel``."""

_INSTEAD = {
    "is_torch_fx_available": "drop the guard and what it guards: it only wrapped functions for torch.fx",
    "is_tf_available": "treat it as False",
    "find_pruneable_heads_and_indices": "drop prune_heads, or copy the function",
    "SequenceSummary": "copy the class",
    "no_init_weights": "fall back to transformers.initialization.no_init_weights",
    "get_parameter_dtype": "write next(model.parameters()).dtype",
    "HybridCache": "write DynamicCache(config=config), which has sliding layers from 4.57 on",
    "SlidingWindowCache": "write DynamicCache(config=config)",
    "MambaCache": "let the model make its cache: forward(use_cache=True) returns it",
    "SpecialTokensMixin": "derive from PreTrainedTokenizerBase",
    "_compute_default_rope_parameters": "compute 1 / theta ** (arange(0, dim, 2) / dim) yourself",
    "GreedySearchDecoderOnlyOutput": "write GenerateDecoderOnlyOutput",
    "SampleOutput": "write GenerateDecoderOnlyOutput",
    "BeamSearchScorer": "call generate(num_beams=…)",
    "LogitsWarper": "write LogitsProcessor",
    "AdamW": "write torch.optim.AdamW",
    "VideoInput": "fall back to transformers.video_utils",
    "modeling_attn_mask_utils": "copy the file of 4.57, and take is_torchdynamo_compiling from transformers.utils",
    "AutoModelForVision2Seq": "write AutoModelForImageTextToText",
    "AutoModelWithLMHead": "write AutoModelForCausalLM, AutoModelForMaskedLM or AutoModelForSeq2SeqLM",
    "CLIPFeatureExtractor": "write CLIPImageProcessor",
    "OnnxConfig": "use optimum.exporters.onnx",
    "symbolic_trace": "use torch.fx or torch.export directly",
    "OutputRecorder": "try transformers.utils.generic and transformers.utils.output_capturing",
    "check_model_inputs": "import it in a try, with a decorator that returns its function as fallback",
}


def _library_imports(project: Project) -> Iterator[tuple[Source, Import]]:
    for source in project.sources:
        for entries in source.imports.values():
            for entry in entries:
                root = entry.module.partition(".")[0]
                if root == "transformers" and not guarded_import(source, entry.node):
                    yield source, entry


def _is_foreign(name: str) -> bool:
    """Return True for a class for TensorFlow or JAX: ``TFBertModel``, and ``TFCLIPModel`` if a release has it."""
    if _OTHER_FRAMEWORK.match(name):
        return True
    return _ACRONYM.match(name) is not None and name in (names_of("transformers") or ())


def _kwargs(project: Project) -> Iterator[Problem]:
    for source, entry in _library_imports(project):
        if entry.name not in _KWARGS or not entry.module.startswith("transformers.utils"):
            continue
        new = entry.name == "TransformersKwargs"
        yield problem(
            source,
            entry.alias,
            f"importing {entry.name} raises ImportError where it is called "
            f"{'LossKwargs' if new else 'TransformersKwargs'}",
            between("4.48", "4.53") if new else since("4.54"),
            "try TransformersKwargs, and fall back to LossKwargs",
            _try_edits(source, entry, ("TransformersKwargs", "LossKwargs"), (entry.module,) * 2),
        )


def _try_edits(
    source: Source, entry: Import, names: tuple[str, str], modules: tuple[str, str]
) -> list[Edit]:
    """Return the edits that import a name from the first place that has it; none if not simple."""
    node = entry.node
    if not isinstance(node, ast.ImportFrom) or not source.own_lines(node):
        return []
    bound = entry.alias.asname or entry.name
    pad, line = " " * node.col_offset, source.newline
    rows = ["try:"]
    for number, (module, name) in enumerate(zip(modules, names, strict=True)):
        rows += ["except ImportError:"] if number else []
        rows.append(f"    from {module} import {name}" + (f" as {bound}" if bound != name else ""))
    text = line.join(pad + row for row in rows) + line
    end = source.line_end(node.end_lineno or node.lineno)
    if not source.text[:end].endswith(("\n", "\r")):
        text = line + text
    return [*_without(source, entry), Edit(end, end, text)]


def _without(source: Source, entry: Import) -> list[Edit]:
    """Return the edit that removes one name of an import, or the whole statement."""
    node = entry.node
    aliases = node.names
    if len(aliases) == 1:
        start = source.line_start(node.lineno)
        return [Edit(start, source.line_end(node.end_lineno or node.lineno), "")]
    place = aliases.index(entry.alias)
    if place:
        return [Edit(source.span(aliases[place - 1])[1], source.span(entry.alias)[1], "")]
    return [Edit(source.span(entry.alias)[0], source.span(aliases[1])[0], "")]


def _moved(project: Project) -> Iterator[Problem]:
    for source, entry in _library_imports(project):
        if entry.name in _KWARGS or entry.name == "*":
            continue
        module, name = entry.module, entry.name
        if not name and isinstance(entry.node, ast.Import):
            module, _, name = entry.alias.name.rpartition(".")
        mask = mask_of(module, name) if module else None
        if _is_foreign(name):
            yield problem(
                source,
                entry.alias,
                f"importing {name} from {module} raises ImportError: TensorFlow and JAX are gone",
                since("5.0"),
                "use the class for PyTorch, with a checkpoint that 4.57 saved for it",
            )
            continue
        if mask is None or "0" not in mask:
            continue
        if mask.startswith("0") and ".models." in module:
            continue  # code of a newer architecture
        place = _ELSEWHERE.get((module, name))
        remedy = (
            f"import it from {place}"
            if place
            else _INSTEAD.get(name) or _INSTEAD.get(_last(module))
        )
        edits: list[Edit] = []
        if place and len(entry.node.names) == 1 and isinstance(entry.node, ast.ImportFrom):
            start = source.span(entry.node)[0]
            begin = source.text.index(module, start)
            edits = [Edit(begin, begin + len(module), place)]
        yield problem(
            source,
            entry.alias,
            f"importing {name} from {module} raises ImportError",
            releases_without(mask),
            remedy or "import it in a try, with a fallback in `except ImportError`",
            edits,
        )


_UNREAD = ("commands", "data", "benchmark", "cli", "testing_utils", "kernels", "sagemaker")
"""Parts of the library that the tables leave out."""
_UNREAD_KINDS = ("convert_", "modular_", "modeling_tf_", "modeling_flax_", "dummy_", "test_")


def _unheard(project: Project) -> Iterator[Problem]:
    """Find imports, and attributes of modules, that no known release has: slips, and names that left before 4.48."""
    if _has_own_library(project):
        return
    for source, node, module, name in (*_imported(project), *_read_of_modules(project)):
        missing = _missing(module, name)
        if missing is not None:
            error = "AttributeError" if isinstance(node, ast.Attribute) else "ImportError"
            text = f"no known release has {missing}: {error}"
            yield problem(source, node, text, never(), _advice(module, name))


def _imported(project: Project) -> Iterator[tuple[Source, ast.alias, str, str]]:
    """Yield imports from the library: where, the module and the name; without a name for a module."""
    for source, entry in _library_imports(project):
        is_module = not entry.name and isinstance(entry.node, ast.Import)
        yield source, entry.alias, entry.alias.name if is_module else entry.module, entry.name


def _read_of_modules(project: Project) -> Iterator[tuple[Source, ast.Attribute, str, str]]:
    """Yield attributes that are read of modules of the library unguarded, and that no release is known to lack."""
    for source, node in project.nodes(ast.Attribute):
        module, _, name = source.from_library(node).rpartition(".")
        if not isinstance(node.ctx, ast.Load) or not module or names_of(module) is None:
            continue
        if guarded(source, node) or guarded_import(source, node) or asks(source, node, name):
            continue
        if (
            name in project.stored
            or not _binds_module(source, node)
            or mask_of(module, name) is not None
        ):
            continue
        yield source, node, module, name


def _missing(module: str, name: str) -> str | None:
    """Return in words the name or the module that no known release has; None if one has it, or no table covers it."""
    parts = module.split(".")
    if (parts[1:2] and parts[1] in _UNREAD) or any(p.startswith(_UNREAD_KINDS) for p in parts):
        return None
    names = names_of(module)
    if names is None:
        is_of_model = parts[1:2] == ["models"] and len(parts) > _PACKAGE
        if is_of_model and not parts[-1].startswith(("modeling_", "configuration_")):
            return None
        return f"the module {module}"
    if not name or name == "*" or name in names or name.startswith("__"):
        return None
    is_private = ".models." in module and name.startswith("_")
    if is_private or name in _UNREAD or name.startswith(_UNREAD_KINDS):
        return None
    if _OTHER_FRAMEWORK.match(name) or (module == "transformers.models"):
        return None
    return f"{name} in {module}"


_PACKAGE = 3
"""Parts of the name of a model's package: ``transformers.models.llama``."""


_CORRECT = "correct the name, or import it in a try, with a fallback in `except ImportError`"


def _advice(module: str, name: str) -> str:
    """Return where the name is, or which one is meant."""
    if names_of(module) is None:
        return _CORRECT
    if places := modules_with(name):
        place = "transformers" if "transformers" in places else min(places, key=len)
        return f"import it from {place}"
    if near := nearest(module, name):
        return f"write {near}, if that is meant"
    return _CORRECT


def _has_own_library(project: Project) -> bool:
    """Return True for code of transformers itself, or with a copy of it, whose names are its own."""
    return any(
        "transformers" in source.path.absolute().parent.parts
        and source.path.name == "modeling_utils.py"
        for source in project.sources
    )


def _binds_module(source: Source, node: ast.Attribute) -> bool:
    """Return True if the first name of a chain is an import, and nothing else in the file."""
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or root.id in source.stores:
        return False
    arguments = (a.arg for a in source.by_kind.get(ast.arg, ()))
    return len(source.imports.get(root.id, ())) > 0 and root.id not in set(arguments)


def _last(module: str) -> str:
    return module.rpartition(".")[2]


def _no_generation(project: Project) -> Iterator[Problem]:
    for entry in project.models:
        if not entry.name.endswith(("ForCausalLM", "LMHeadModel")):
            continue
        if not project.only_base_model(entry) or project.has_generation(entry):
            continue
        family = project.family(entry)
        if family.method("generate") is not None or project.subclasses(entry):
            continue
        prepares = family.method("prepare_inputs_for_generation") is not None
        if prepares and project.loaded_as(entry.source):
            continue  # auto classes add the mixin
        if project.is_part(entry):
            continue  # another model generates
        yield problem(
            entry.source,
            entry.node.bases[0],
            f"{entry.name} does not derive from GenerationMixin, so it has no generate()",
            since("4.52") if prepares else since("4.52", note="generate() of 4.51 refuses it too"),
            "derive the head from GenerationMixin, too",
            _mixin_edits(entry) if prepares else (),
        )


def _mixin_edits(entry: Class) -> list[Edit]:
    source = entry.source
    end = source.span(entry.node.bases[-1])[1]
    edits = [Edit(end, end, ", GenerationMixin")]
    if any(
        i.dotted == "transformers.GenerationMixin"
        for i in source.imports.get("GenerationMixin", ())
    ):
        return edits
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "transformers" and not node.level:
            later = [a for a in node.names if a.name > "GenerationMixin"]
            if later:
                start = source.span(later[0])[0]
                return [*edits, Edit(start, start, "GenerationMixin, ")]
            last = source.span(node.names[-1])[1]
            return [*edits, Edit(last, last, ", GenerationMixin")]
    return []


_METHODS = {
    "get_head_mask": (since("5.0"), "drop the call: without a head mask it is [None] * layers"),
    "_convert_head_mask_to_5d": (since("5.0"), "drop the head mask"),
    "prune_heads": (since("5.0"), "drop head pruning"),
    "_tie_or_clone_weights": (since("5.0"), "assign the weight: head.weight = embedding.weight"),
    "_tie_encoder_decoder_weights": (since("5.0"), "declare the ties in _tied_weights_keys"),
    "get_extended_attention_mask": (
        since("5.17"),
        "compute (1 - mask[:, None, None, :]) * torch.finfo(dtype).min yourself",
    ),
    "invert_attention_mask": (
        since("5.17"),
        "compute (1 - mask[:, None, None, :]) * torch.finfo(dtype).min yourself",
    ),
    "create_extended_attention_mask_for_decoder": (
        since("5.17"),
        "compute the causal mask yourself",
    ),
    "_extract_past_from_model_output": (
        since("4.49", note="4.48 returns its name, too"),
        "read outputs.past_key_values",
    ),
    "_validate_model_class": (since("4.52"), "drop the call"),
    "_autoset_attn_implementation": (
        since("4.54"),
        "drop the call: __init__ of PreTrainedModel chooses the attention",
    ),
    "_temporary_reorder_cache": (since("4.54"), "call past_key_values.reorder_cache(beam_idx)"),
    "_get_cache": (since("5.1"), "make the cache yourself, as DynamicCache()"),
    "_get_initial_cache_position": (
        since("5.4"),
        "count on from past_key_values.get_seq_length() with torch.arange",
    ),
    "_prepare_encoder_decoder_kwargs_for_generation": (
        since("5.18"),
        "call the encoder, and pass encoder_outputs",
    ),
}
"""Removed method of PreTrainedModel or GenerationMixin -> releases without it, and the remedy."""


def _removed_methods(project: Project) -> Iterator[Problem]:
    if project.makes_classes:
        return
    for entry in project.models:
        classes, outside = project.family(entry)
        if any(
            not n.startswith(("transformers.", "torch.", "nn.", "abc.")) for n in outside - {"ABC"}
        ):
            continue
        own = {m.name for c in classes for m in c.methods()}
        called = {_own_call(node) for c in classes for node in ast.walk(c.node)}
        for node in inside(entry.node, ast.Call):
            owner, name = method_call(node)
            on_self = bool(_own_call(node))
            if name not in _METHODS or owner is None or not (on_self or is_super(owner)):
                continue
            if (on_self and name in own) or guarded(entry.source, node):
                continue
            if not on_self and name in own - called:
                continue  # a method of the model's that only the library called
            if entry.source.class_of(node) is not entry.node:
                continue
            releases, remedy = _METHODS[name]
            yield problem(
                entry.source,
                node.func,
                f"a model has no {name}(): AttributeError",
                releases,
                remedy,
            )


def _own_call(node: ast.AST) -> str:
    """Return the name of the method in ``self.name()`` or ``cls.name()``; '' for anything else."""
    owner, name = method_call(node)
    return name if is_name(owner, "self", "cls") else ""


_KEYWORDS = {
    "dtype": (between("4.48", "4.55"), "write torch_dtype, which every release accepts"),
    "use_flash_attention_2": (since("4.53"), "write attn_implementation='flash_attention_2'"),
    "load_in_8bit": (since("5.0"), "pass quantization_config"),
    "load_in_4bit": (since("5.0"), "pass quantization_config"),
    "use_auth_token": (since("5.0"), "write token"),
}
_LOADERS = {"from_pretrained", "from_config", "_from_config"}


def _keywords(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        owner, name = method_call(node)
        if owner is None or name not in _LOADERS or not _loads_model(project, source, owner):
            continue
        for argument in node.keywords:
            if argument.arg not in _KEYWORDS or guarded(source, node):
                continue
            if name != "from_pretrained" and argument.arg != "dtype":
                continue
            if argument.arg == "dtype" and keyword(node, "torch_dtype"):
                continue
            releases, remedy = _KEYWORDS[argument.arg]
            start = source.span(argument)[0]
            edits = [Edit(start, start + len("dtype"), "torch_dtype")]
            yield problem(
                source,
                argument,
                f"{name}() passes {argument.arg}= on to __init__, which raises TypeError",
                releases,
                remedy,
                edits if argument.arg == "dtype" else (),
            )


def _loads_model(project: Project, source: Source, node: ast.expr) -> bool:
    """Return True for an auto class, a model class, or ``super()`` in a model class."""
    if is_super(node):
        owner = source.class_of(node)
        return owner is not None and project.is_model(Class(source, owner))
    entry = project.resolve(source, node)
    if entry is not None:
        return project.is_model(entry) and project.family(entry).method("from_pretrained") is None
    name = source.from_library(node)
    last = name.rpartition(".")[2]
    return is_library_model(name) or last.startswith("AutoModel")


RULES = (
    LintRule("SB101", "error", _kwargs),
    LintRule("SB102", "error", _moved),
    LintRule("SB102", "error", _unheard),
    LintRule("SB103", "warning", _no_generation),
    LintRule("SB104", "error", _removed_methods),
    LintRule("SB105", "error", _keywords),
)
