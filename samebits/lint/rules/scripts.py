"""What scripts ask of transformers: arguments, attributes, tasks of pipelines, variables of the environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samebits.lint.guards import guarded
from samebits.lint.layers import instance_class
from samebits.lint.problem import LintRule, Problem
from samebits.lint.project import Class, Project, is_library_model, problem
from samebits.lint.releases import since
from samebits.lint.source import Source
from samebits.lint.syntax import (
    argument_names,
    assigned,
    is_constant,
    is_self,
    keyword,
    method_call,
)
from samebits.lint.uses import names, passed, without

_TOKENIZER = re.compile(r"\w*Tokenizer(?:Fast)?")
_FACTORIES = {"from_pretrained", "from_config", "_from_config", "for_model"}
_FAMILY = re.compile(r"(\w+?)(?:For[A-Z]\w+|PreTrainedModel|Model)$")
_MAKES_NO_TEXT = re.compile(
    r"\w*For(?:SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice|ImageClassification"
    r"|AudioClassification|ObjectDetection|SemanticSegmentation)"
)


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def _called(project: Project, source: Source, node: ast.Call) -> str:
    """Return ``Trainer`` for a call of the library's class or function, ``Trainer.train`` for a method."""
    name = source.from_library(node.func)
    if name and not name.startswith("transformers.models."):
        owner = _last(name.rpartition(".")[0])
        return f"{owner}.{_last(name)}" if owner[:1].isupper() else _last(name)
    if isinstance(node.func, ast.Attribute):
        if node.func.attr == "generate" and "transformers" in source.text:
            has_own = any(entry.method("generate") for entry in project.classes)
            return "" if has_own else _GENERATE
        held = instance_class(project, source, node.func.value)
        return f"{_last(held)}.{node.func.attr}" if held else ""
    return ""


_GENERATE = "GenerationMixin.generate"
"""It takes any keyword, and refuses those that neither it, its config nor the model knows."""


def _arguments(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        is_known = any(argument.arg in names("arguments") for argument in node.keywords)
        called = _called(project, source, node) if is_known else ""
        for argument in node.keywords if called else ():
            releases = without("arguments", called, argument.arg or "")
            if releases is None or guarded(source, node):
                continue
            yield problem(
                source,
                argument,
                f"{called}() takes no {argument.arg}: {'Value' if called == _GENERATE else 'Type'}Error",
                releases,
                _INSTEAD.get(argument.arg or "", "pass it only to a release that has it"),
            )


_INSTEAD = {
    "tokenizer": "write processing_class",
    "evaluation_strategy": "write eval_strategy",
    "no_cuda": "write use_cpu",
    "warmup_ratio": "write warmup_steps, which takes a ratio below 1 from 5.0 on",
    "logging_dir": "set the variable TENSORBOARD_LOGGING_DIR",
    "per_gpu_train_batch_size": "write per_device_train_batch_size",
    "per_gpu_eval_batch_size": "write per_device_eval_batch_size",
    "model_path": "write resume_from_checkpoint",
    "group_by_length": "write train_sampling_strategy='group_by_length'",
    "activation_checkpointing": "write gradient_checkpointing",
    "fp16_backend": "drop it",
    "half_precision_backend": "drop it",
    "overwrite_output_dir": "drop it, and remove the folder yourself",
    "save_safetensors": "drop it",
    "push_to_hub_token": "write hub_token",
    "push_to_hub_model_id": "write hub_model_id",
    "push_to_hub_organization": "write hub_model_id with the organization",
}
"""Argument -> what every release takes, or the newer ones do."""


def _images_beside_chat(project: Project) -> Iterator[Problem]:
    """Find a pipeline that is given a chat, and its images beside it."""
    for source, node in project.nodes(ast.Call):
        images, text = keyword(node, "images"), keyword(node, "text")
        if images is None or text is None or not _is_chat(source, text.value):
            continue
        made = instance_class(project, source, node.func)
        if _last(made) != "pipeline" or guarded(source, node):
            continue
        yield problem(
            source,
            images,
            "a pipeline takes the images of a chat in its messages alone: ValueError",
            since("5.0"),
            'write {"type": "image", "url": …} into the content of the message',
        )


def _untyped_tokens(project: Project) -> Iterator[Problem]:
    """Find a call with the grid of an image, and without what says which of its tokens are the image's."""
    for source, node in project.nodes(ast.Call):
        passed = {argument.arg: argument for argument in node.keywords}
        grid = passed.get("image_grid_thw") or passed.get("video_grid_thw")
        if grid is None or passed.keys() & _TYPES_OR_POSITIONS or guarded(source, node):
            continue
        model, name = method_call(node)
        called = model if model is not None and name in {"forward", "generate"} else node.func
        held = _last(instance_class(project, source, called))
        if _HAS_TYPES.match(held):
            yield problem(
                source,
                grid,
                f"a model of {held} is given {grid.arg} without mm_token_type_ids: ValueError, or positions of text",
                since("5.3"),
                "pass on all that the processor returns, or (input_ids == config.image_token_id).long()",
            )


_TYPES_OR_POSITIONS = {"mm_token_type_ids", "position_ids", None}
"""Arguments with which the rule does not apply; ``**`` has the name None."""
_HAS_TYPES = re.compile(
    r"AutoModel(?:For|$)|(?:Qwen(?:2|2_5_|3)VL|Qwen3_5|Glm4v|Glm46V|GlmOcr|PaddleOCRVL)\w*(?:Model|For)"
)
"""Classes whose forward has ``mm_token_type_ids`` since 5.3, or that load one of them."""


def _is_chat(source: Source, node: ast.expr) -> bool:
    """Return True for a list of messages, also where a variable holds nothing else."""
    if not isinstance(node, ast.Name):
        return _are_messages(node)
    values = assigned(source.function(node) or source.tree, node.id)
    return bool(values) and all(map(_are_messages, values))


def _are_messages(node: ast.expr) -> bool:
    first = node.elts[0] if isinstance(node, ast.List) and node.elts else None
    return isinstance(first, ast.Dict) and any(is_constant(key, "role") for key in first.keys)


def _ignored(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        of, called = method_call(node)
        loads = called == "from_pretrained"
        owner = _last(source.from_library(of if loads else node.func))
        for argument in node.keywords if owner else ():
            words = _no_effect(owner, argument, loads=loads)
            if words is not None and not guarded(source, node):
                yield problem(source, argument, words[0], since("5.0"), words[1])


def _no_effect(owner: str, argument: ast.keyword, *, loads: bool) -> tuple[str, str] | None:
    """Return what a call does instead of what an argument says, and the remedy."""
    name = argument.arg
    is_tokenizer = _TOKENIZER.fullmatch(owner) is not None
    if loads and is_tokenizer and name == "use_fast" and is_constant(argument.value, False):
        return (
            f"{owner}.from_pretrained() ignores use_fast=False and makes the one tokenizer that there is",
            "compare the ids, and drop the argument",
        )
    if loads and "Model" in owner and name in {"from_tf", "from_flax"}:
        if is_constant(argument.value, False):
            return None
        return (
            f"from_pretrained() ignores {name} and looks for weights of PyTorch",
            "save the checkpoint with 4.57 and load that",
        )
    if not loads and is_tokenizer and name in {"vocab_file", "merges_file"}:
        new = {"vocab_file": "vocab", "merges_file": "merges"}[name]
        return (
            f"{owner}() does not read {name}: most classes have a vocabulary of special tokens alone",
            f"call from_pretrained() with the folder, or write {new}= for 5.x",
        )
    return None


def _attributes(project: Project) -> Iterator[Problem]:
    removed = (_LOST | names("attributes")) - project.stored
    for source, node in project.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load) or node.attr not in removed:
            continue
        owner = _owner(project, source, node)
        releases = without("attributes", owner, node.attr) if owner else None
        if _is_gone(owner, node.attr):
            releases = since("5.0")
        if releases is None or guarded(source, node):
            continue
        yield problem(
            source,
            node,
            f"{owner} has no {node.attr}: AttributeError",
            releases,
            _where_now(owner, node.attr),
        )


def _where_now(owner: str, name: str) -> str:
    if owner.endswith("Config") and name not in _OF_CONFIGS:
        return f"read config.get_text_config().{name}, which every release has"
    return _MOVED.get(name, f"read it with getattr(…, {name!r}, None), and fall back")


_OF_MODELS = {"prune_heads", "to_bettertransformer", "reverse_bettertransformer"}
_OF_CONFIGS = {"from_text_vision_configs", "from_text_audio_configs"}
_LOST = {"generation_config", *_OF_MODELS, *_OF_CONFIGS}


def _is_gone(owner: str, name: str) -> bool:
    """Return True for what all models of a kind, or all configs, lost in 5.0."""
    if name == "generation_config":
        return _MAKES_NO_TEXT.fullmatch(owner) is not None
    if name in _OF_CONFIGS:
        return owner.endswith("Config")
    return name in _OF_MODELS and (
        is_library_model(f"transformers.{owner}") or owner.startswith("AutoModel")
    )


_MOVED = {
    "prune_heads": "drop it",
    "from_text_vision_configs": "pass text_config= and vision_config= to the class, as dicts",
    "language_model": "write model.model.language_model",
    "generation_config": "read it only if model.can_generate()",
}


def _owner(project: Project, source: Source, node: ast.Attribute) -> str:
    """Return the class of the library whose attribute is read: of the class, an instance, or self."""
    direct = source.from_library(node.value)
    if direct and _last(direct)[:1].isupper():
        return _last(direct) if node.attr not in _FACTORIES else ""
    if is_self(node.value):
        return _base(project, source, node)
    if isinstance(node.value, ast.Attribute) and node.value.attr == "config":
        return _config_of(_last(instance_class(project, source, node.value.value)))
    return _last(instance_class(project, source, node.value))


def _config_of(model: str) -> str:
    """Return the class of the config of a class of models, which has its name; '' for no such class."""
    family = _FAMILY.match(model)
    return f"{family[1]}Config" if family is not None else ""


def _base(project: Project, source: Source, node: ast.Attribute) -> str:
    """Return the only base in the library of the class around ``self.name`` that no own class defines."""
    owner = source.class_of(node)
    if owner is None:
        return ""
    entry = Class(source, owner)
    own = any(e.method(node.attr) or e.attribute(node.attr) for e in project.family(entry).own)
    return "" if own else _library_base(project, entry)


def _library_base(project: Project, entry: Class) -> str:
    """Return the only base of a class outside of the project, if it is the library's; else ''."""
    outside = project.family(entry).outside
    if project.makes_classes or len(outside) != 1:
        return ""
    base = next(iter(outside))
    return _last(base) if base.startswith("transformers.") else ""


def _unread_overrides(project: Project) -> Iterator[Problem]:
    """Find methods for which a release has no word: its own code called them where the class of the library had them."""
    for entry in project.classes:
        for method in entry.methods():
            name = method.name
            if name[0] != "_" or name not in names("attributes") or name in project.read:
                continue
            base = _library_base(project, entry)
            releases = without("attributes", base, name) if base else None
            if releases is not None and not guarded(entry.source, method):
                yield problem(
                    entry.source,
                    method,
                    f"{base} has no {name}, so nothing calls this method: what it does is left out",
                    releases,
                    "do it in forward, or in the method that the release calls instead",
                )


def _refusing_overrides(project: Project) -> Iterator[Problem]:
    """Find methods that refuse an argument which a release passes to the method that they override."""
    for entry in project.classes:
        owners = _overridden(project, entry)
        for method in entry.methods() if owners else ():
            is_own = f"self.{method.name}(" in entry.source.text  # a method for a loop of its own
            if is_own or method.args.kwarg is not None or guarded(entry.source, method):
                continue
            for owner in owners:
                for name in passed(owner, method.name) - argument_names(method):
                    releases = without("overrides", f"{owner}.{method.name}", name)
                    assert releases is not None
                    yield problem(
                        entry.source,
                        method,
                        f"{owner} passes {name} to {method.name}(), which takes no such argument here: TypeError",
                        releases,
                        "take **kwargs, and hand them on to super()",
                    )


def _overridden(project: Project, entry: Class) -> tuple[str, ...]:
    """Return the classes of the library whose methods a class can override, by its bases."""
    if project.is_model(entry):
        return ("PreTrainedModel", "GenerationMixin")
    base = _library_base(project, entry)
    return (base, "Trainer") if base.endswith("Trainer") and base != "Trainer" else (base,)


def _attention_names(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        argument = keyword(node, "attn_implementation")
        value = argument.value if argument is not None else None
        if method_call(node)[1] == "set_attn_implementation" and node.args:
            value = node.args[0]
        if not isinstance(value, ast.Constant) or "transformers" not in source.text:
            continue
        name = str(value.value)
        releases = without("attention", "", name)
        if releases is None or name in _registered(project) or guarded(source, node):
            continue
        yield problem(
            source,
            value,
            f"transformers has no attention named {name}: ValueError, or the one without its prefix",
            releases,
            "choose the name by the release; for generate_batch() none is needed",
        )


def _kernels(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        argument = keyword(node, "use_kernels") or keyword(node, "kernel_config")
        if argument is None or (
            isinstance(argument.value, ast.Constant) and not argument.value.value
        ):
            continue
        releases = without("kernels", "", "of the hub")
        if releases is None or method_call(node)[1] not in _FACTORIES or guarded(source, node):
            continue
        yield problem(
            source,
            argument,
            f"{argument.arg} takes kernels of the hub, of which this release names others than the release before",
            releases,
            "compare the logits of both releases on the machine that runs them",
        )


def _registered(project: Project) -> set[str]:
    """Return the names that code registers attention functions by, on whatever object."""
    calls = (node for _, node in project.nodes(ast.Call) if method_call(node)[1] == "register")
    firsts = (node.args[0] for node in calls if node.args)
    return {str(first.value) for first in firsts if isinstance(first, ast.Constant)}


def _tasks(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        if source.from_library(node.func) not in _PIPELINE:
            continue
        argument = keyword(node, "task")
        value = node.args[0] if node.args else argument.value if argument else None
        if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
            continue
        task = "translation" if value.value.startswith("translation_") else value.value
        releases = without("tasks", "", task)
        if releases is not None and not guarded(source, node):
            yield problem(
                source,
                value,
                f"pipeline() has no task {value.value}: KeyError",
                releases,
                "call tokenizer, model and generate() as the pipeline did",
            )


_PIPELINE = {"transformers.pipeline", "transformers.pipelines.pipeline"}


def _variables(project: Project) -> Iterator[Problem]:
    for source, node, name in _set_variables(project):
        releases = without("variables", "", name)
        if releases is not None and not guarded(source, node):
            yield problem(
                source,
                node,
                f"transformers does not read the variable {name}",
                releases,
                "set HF_HOME, or HF_HUB_CACHE" if "CACHE" in name else "drop it",
            )


def _set_variables(project: Project) -> Iterator[tuple[Source, ast.AST, str]]:
    """Yield what sets a variable of the environment, and its name."""
    named: list[tuple[Source, ast.expr, ast.expr]] = [
        (source, node, node.slice)
        for source, node in project.nodes(ast.Subscript)
        if isinstance(node.ctx, ast.Store) and source.dotted(node.value) == "os.environ"
    ]
    named += [
        (source, call, call.args[0])
        for source, call in project.nodes(ast.Call)
        if source.dotted(call.func) in {"os.environ.setdefault", "os.putenv"} and call.args
    ]
    for source, node, name in named:
        if isinstance(name, ast.Constant):
            yield source, node, str(name.value)


RULES = (
    LintRule("SB106", "error", _arguments),
    LintRule("SB106", "error", _images_beside_chat),
    LintRule("SB107", "warning", _ignored),
    LintRule("SB108", "error", _attributes),
    LintRule("SB109", "warning", _variables),
    LintRule("SB110", "error", _attention_names),
    LintRule("SB111", "warning", _unread_overrides),
    LintRule("SB113", "error", _refusing_overrides),
    LintRule("SB112", "note", _kernels),
    LintRule("SB864", "error", _tasks),
    LintRule("SB913", "error", _untyped_tokens),
)
