"""Write samebits/lint/uses.json: what scripts use of transformers by another way than an import, by release.

    python tests/lint/make_uses.py 4.48=FOLDER 4.57=FOLDER …     (each the folder "transformers", as for make_names.py)

arguments: what a public class or function, or train() of a Trainer, refuses in some release. overrides: what a method of a public class gets of the library by name, and did not in some release ("0": it does). attributes: parts and methods that a
class of models no longer holds itself, what a decorator sets on layers, and fields that a config keeps in its text_config.
methods: what the base of all tokenizers has in some release, and no tokenizer in another. rotary: embeddings whose forward needs the kind of layer. attention: names of implementations. kernels: releases that take the same ones of the hub as the release before. tasks: names of pipelines. variables: what a release
no longer reads of its environment. A class that takes any keyword refuses none, one with a ``__getattr__`` of its own lacks
none, and a release without the class says nothing.
"""

import ast
import re
import sys
from pathlib import Path

from make_names import LAYERS, SKIPPED, UNREAD, bound_names, module_name, written

OUT = Path(__file__).parents[2] / "samebits" / "lint" / "uses.json"
VARIABLE = re.compile(r"[\"']((?:PYTORCH_)?(?:PRETRAINED_|TRANSFORMERS_|HF_)\w+)[\"']")
OPEN = {"__getattr__", "__getattribute__"}
CLASS = re.compile(r"^(?:@[^\n]*\n)*class \w+.*?(?=^\S)", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"(?:@[^\n]*\n)*class (\w+)\s*(?:\((.*?)\))?\s*:", re.DOTALL)
DECORATOR = re.compile(r"^@(\w+)", re.MULTILINE)
TOKENIZER = re.compile(r"Tokenizer(Base|Fast)?$")
OF_ALL = re.compile("PreTrainedTokenizerBase$")
BY_KIND = re.compile(
    r"def forward\([^)]*\blayer_type\b[^)]*\).*?:\n(?:.*\n)?.*getattr\(self, f\"\{layer_type\}_inv"
)
PARTS = {"language_model", "vision_tower", "multi_modal_projector"}
OUTSIDE = {"attention_visualizer.py"}
"""Tools that call models, and that no model calls."""
WHOLE = ("ForConditionalGeneration", "ForCausalLM")
"""Attributes of a class are read from the lines of its file: only those of a model's parts are certain enough."""
NO_FIELDS = ("_", "base_", "attribute_map", "sub_configs", "model_type", "keys_to_ignore")
BASE_CONFIGS = {"PretrainedConfig", "PreTrainedConfig"}


class Found:
    """What one class of a release has itself."""

    def __init__(self, node, module):
        self.module, self.name, self.decorators = module, node.name, ()
        self.bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        made = " ".join(map(ast.unparse, node.decorator_list))
        self.is_dataclass = (
            "dataclass" in made and "strict" not in made
        )  # which lets any keyword pass
        self.methods = {n.name: taken(n) for n in node.body if isinstance(n, ast.FunctionDef)}
        asked = set(re.findall(r"signature\(self\.(\w+)\)", ast.unparse(node)))
        self.passed = {}  # but to methods that are asked for what they take
        for call in filter(of_self, ast.walk(node)):
            if call.func.attr not in asked:
                names = {argument.arg for argument in call.keywords}
                self.passed.setdefault(call.func.attr, set()).update(names)
        self.fields = [
            n.target.id
            for n in node.body
            if isinstance(n, ast.AnnAssign)
            and isinstance(n.target, ast.Name)
            and "ClassVar" not in ast.unparse(n.annotation)
        ]
        self.names = {*self.methods, *self.fields}
        for inner in ast.walk(node):
            is_stored = isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
            if is_stored and isinstance(inner.value, ast.Name) and inner.value.id == "self":
                self.names.add(inner.attr)
        for statement in node.body:
            for target in statement.targets if isinstance(statement, ast.Assign) else ():
                if isinstance(target, ast.Name):
                    self.names.add(target.id)
                    if target.id == "attribute_map" and isinstance(statement.value, ast.Dict):
                        self.names |= {k.value for k in statement.value.keys if k is not None}


class Model:
    """What one class of a model's module has itself, by the lines of its text: parsing all models takes minutes."""

    is_dataclass, fields, passed = False, (), {}

    def __init__(self, block, module):
        header = HEADER.match(block)
        self.module, self.name = module, header[1]
        self.decorators = DECORATOR.findall(header[0])
        words = re.findall(r"[\w.]+", re.sub(r"\w+\s*=\s*\S+", "", header[2] or ""))
        self.bases = [word.rpartition(".")[2] for word in words]
        self.methods = dict.fromkeys(
            re.findall(r"^    def (\w+)", block, re.MULTILINE), (None, set())
        )
        self.names = {*self.methods, *re.findall(r"^    (\w+)\s*[:=]", block, re.MULTILINE)}
        self.by_kind = BY_KIND.search(block) is not None
        self.names |= set(re.findall(r"^\s+self\.(\w+)\s*(?::[^=\n]+)?=(?!=)", block, re.MULTILINE))
        mapped = re.search(r"^    attribute_map = \{(.*?)\}", block, re.MULTILINE | re.DOTALL)
        self.names |= set(re.findall(r"[\"'](\w+)[\"']\s*:", mapped[1])) if mapped else set()


class Release:
    """The classes, functions, tasks and variables of one release."""

    def __init__(self, root):
        self.classes, self.functions, self.variables, self.tasks = {}, {}, set(), set()
        self.attention, self.kernels = set(), set()
        self.words, self.of_module, self.decorators = set(), {}, {}
        self.public, twice = set(), set()
        for path in sorted(root.rglob("*.py")):
            if path.relative_to(root).parts[0].removesuffix(".py") in SKIPPED:
                continue
            if path.name.startswith(UNREAD):
                continue
            text, module = path.read_text("utf-8"), module_name(path, root)
            if ".models." not in module and path.name not in OUTSIDE:
                self.words |= set(re.findall(r"\w+", text))
            if ".integrations." in module:
                self.decorators |= dict(decorators(text))
                if path.name == "hub_kernels.py":
                    self.kernels = set(kernels(ast.parse(text)))
                continue
            self.variables |= variables(text)
            if ".models." in module:
                self.of_module[module] = set(re.findall(r"\w+", text))
                blocks = filter(HEADER.match, CLASS.findall(f"{text}\n#"))
                found = [Model(block, module) for block in blocks]
                listed = text.partition("__all__ = [")[2]
                self.public |= set(re.findall(r"[\"'](\w+)[\"']", listed))
                self.public |= {own.name for own in found if own.name.endswith(LAYERS)}
            elif path.name.startswith("dummy_"):
                continue
            else:
                found = self.core(path, ast.parse(text), root)
            for own in found:
                twice |= {own.name} & self.classes.keys()
                self.classes[own.name] = own
        for name in twice:
            del self.classes[name]
        self.callers = {}
        for own in self.classes.values():
            for method in own.passed:
                self.callers.setdefault(method, []).append(own)

        self._families = {}

    def core(self, path, tree, root):
        """Take what a module of the library's own has, and return its classes."""
        if path == root / "__init__.py":
            self.public |= {name for name, _ in bound_names(tree)}
        if path == root / "pipelines" / "__init__.py":
            self.tasks = set(tasks(tree))
        if path == root / "modeling_utils.py":
            self.attention = set(attention_names(tree))
        self.functions |= {n.name: taken(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
        module = module_name(path, root)
        return [Found(node, module) for node in tree.body if isinstance(node, ast.ClassDef)]

    def family(self, name):
        """Return a class and its ancestors in transformers."""
        if name not in self._families:
            found, todo = [], [name]
            while todo:
                own = self.classes.get(todo.pop(0))
                if own is not None and own not in found:
                    found.append(own)
                    todo += own.bases
            self._families[name] = found
        return self._families[name]

    def attributes(self, name):
        """Return the names of a class; None if it has any, or does not exist."""
        if name not in self.classes:
            return None
        names = set()
        for own in self.family(name):
            if OPEN & own.methods.keys() and own not in map(self.classes.get, BASE_CONFIGS):
                return None
            names |= own.names
            names |= set().union(*(self.decorators.get(d, set()) for d in own.decorators))
        return names

    def own_methods(self, name):
        """Return the methods that a class has of modules of models."""
        family = [own for own in self.family(name) if ".models." in own.module]
        return {method for own in family for method in own.methods}

    def names(self, name, method):
        """Return True if a class has a method, or a word of it is where the release could call it."""
        held = self.attributes(name)
        if held is None or method in held or method in self.words:
            return True
        return any(method in self.of_module.get(own.module, ()) for own in self.family(name))

    def methods(self, pattern):
        """Return the public methods that any class of some names has."""
        families = (self.family(name) for name in self.classes if pattern.search(name))
        found = {method for family in families for own in family for method in own.methods}
        return {method for method in found if method[0] != "_"}

    def of_generate(self):
        """Return the arguments of generate(), and the fields of a generation config."""
        fields = (
            self.attributes("GenerationConfig") - self.classes["GenerationConfig"].methods.keys()
        )
        return self.classes["GenerationMixin"].methods["generate"][1] | fields

    def passes(self, name, method):
        """Return the arguments that a class of the library's own passes its own method by name; None: no such method."""
        own = self.classes.get(name)
        if own is None or ".models." in own.module or method not in own.methods:
            return None
        others = (f for f in self.callers.get(method, ()) if own in self.family(f.name))
        callers = (*self.family(name), *others)
        return own.methods[method][1] & set().union(*(c.passed.get(method, set()) for c in callers))

    def needs_kind(self, name):
        """Return True for a rotary embedding whose forward needs the kind of layer."""
        return getattr(self.classes.get(name), "by_kind", False)

    def accepted(self, name, method=None):
        """Return what a call may name, and what a call names that is not refused; None: no such call, or any name."""
        if method is None and name in self.functions and name not in self.classes:
            return self.functions[name]
        family = self.family(name)
        own = next((f for f in family if (method or "__init__") in f.methods), None)
        if own is not None:
            return own.methods[method or "__init__"]
        if method is None and family and family[0].is_dataclass:
            fields = {field for f in family for field in f.fields}
            return fields, fields
        return None, set()


def of_self(node):
    """Return True for the call of a method of the object, or the class, itself."""
    owner = (
        node.func.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        else None
    )
    return isinstance(owner, ast.Name) and owner.id in {"self", "cls"}


def taken(node):
    """Return the names that a function takes, None for any, and those that it names.

    A decorator that renames arguments takes their former names, and ``kwargs.pop`` names what it takes.
    """
    names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and "deprecate_kwarg" in ast.unparse(decorator.func):
            names |= {a.value for a in decorator.args if isinstance(a, ast.Constant)}
    names -= {"self", "cls"}
    if node.args.kwarg is None:
        return names, names
    return None, names | {
        inner.args[0].value
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in {"pop", "get"}
        and isinstance(inner.func.value, ast.Name)
        and inner.func.value.id == node.args.kwarg.arg
        and inner.args
        and isinstance(inner.args[0], ast.Constant)
    }


def decorators(text):
    """Yield each function that decorates classes, and what their instances get of it."""
    for outer in ast.parse(text).body if "setattr(self, " in text else ():
        if not isinstance(outer, ast.FunctionDef):
            continue
        names = {
            call.args[1].value
            for call in ast.walk(outer)
            if isinstance(call, ast.Call)
            and ast.unparse(call.func) == "setattr"
            and ast.unparse(call.args[0]) == "self"
            and isinstance(call.args[1], ast.Constant)
        }
        if names:
            yield outer.name, names


OF_HUB = {"HF_ENDPOINT"}
"""Variables that huggingface_hub reads, so that they have an effect where transformers does not read them itself."""


def variables(text):
    """Return the names of variables of the environment that a file has as strings."""
    return {match[1] for match in VARIABLE.finditer(text)} - OF_HUB


def tasks(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {
            "SUPPORTED_TASKS",
            "TASK_ALIASES",
        }:
            yield from (key.value for key in node.value.keys)


def attention_names(tree):
    """Yield the keys of the dict of the library's attention functions; eager is a model's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            named = dict(zip(map(ast.unparse, filter(None, node.keys)), node.values, strict=False))
            if ast.unparse(named.get("'sdpa'", node)) == "sdpa_attention_forward":
                yield from map(ast.literal_eval, named)


def kernels(tree):
    """Yield the kernels of the hub that stand in for layers and functions, as the source writes them."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and node.keywords
        if is_call and ast.unparse(node.func).endswith("Repository"):
            yield ast.unparse(node)


def as_before(every):
    """Return one character for each release: 0 where its kernels are not those of the release before."""
    before = [every[0], *every[:-1]]
    return "".join("01"[r.kernels == b.kernels] for r, b in zip(every, before, strict=True))


def mask(values, name):
    """Return one character for each release: 0 where it lacks the name."""
    return "".join("0" if names is not None and name not in names else "1" for names in values)


def rows(values, candidates, pattern):
    found = {name: mask(values, name) for name in sorted(candidates)}
    return {name: bits for name, bits in found.items() if pattern in bits}


def of_text_config(name, release):
    """Return the fields that the text_config of a config has in a release."""
    if not name.endswith("Config"):
        return set()
    names = release.attributes(f"{name.removesuffix('Config')}TextConfig") or set()
    return {field for field in names if not field.startswith(NO_FIELDS)}


def unnamed_methods(name, every):
    """Return the methods that a class of models lost for good, with no word of them where a release could call them."""
    if not any(".models." in r.classes[name].module for r in every if name in r.classes):
        return {}
    bases = [r.classes[base] for r in every for base in ("PreTrainedModel", "GenerationMixin")]
    methods = set().union(*(r.own_methods(name) for r in every))
    methods -= set().union(*(base.methods for base in bases))  # SB104 has those
    methods = {method for method in methods if not method.startswith("__")}
    now = [method for method in sorted(methods) if not every[-1].names(name, method)]
    lost = {method: "".join("01"[r.names(name, method)] for r in every) for method in now}
    return {method: bits for method, bits in lost.items() if "1" in bits and "01" not in bits}


def of_generate(every):
    """Return what generate() takes by name in some release, and in another one neither it nor any model has a word of."""
    candidates = set().union(*(release.of_generate() for release in every))
    candidates -= set().union(*every[-1].of_module.values())
    names = {name for name in candidates if name.isidentifier() and name[0] != "_"}
    values = [names & (release.of_generate() | release.words) for release in every]
    return {"GenerationMixin.generate": rows(values, names, "0")}


def overridden(name, every):
    """Yield each method of a class with the arguments that it got since 4.48, and that the newest release passes it."""
    methods = every[-1].classes[name].methods if name in every[-1].classes else ()
    for method in sorted({*methods} - {*NAMED_BY_OTHERS}):
        answers = [r.passes(name, method) for r in every]
        if answers[-1]:
            older = [a for a in answers if a is not None]
            new = {argument for argument in answers[-1] if any(argument not in a for a in older)}
            if passed := {
                a: "".join("10"[a in (names or ())] for names in answers) for a in sorted(new)
            }:
                yield f"{name}.{method}", passed


NAMED_BY_OTHERS = ("tie_weights",)
"""SB403 says it."""


def calls(name, every):
    """Yield None for the call of a class or function of the library's own modules, and ``train`` of a Trainer."""
    found = [r.classes[name] for r in every if name in r.classes]
    if any(".models." in one.module for one in found):
        return
    yield None
    if name.endswith("Trainer"):
        yield "train"


def main(pairs):
    folders = {r: Path(folder).resolve() for r, _, folder in (p.partition("=") for p in pairs)}
    every = [Release(folder) for folder in folders.values()]
    called, held, overrides = {}, {}, {}
    decorated = set().union(*(names for r in every for names in r.decorators.values()))
    for name in sorted(set().union(*(r.public for r in every))):
        for method in calls(name, every):
            answers = [r.accepted(name, method) for r in every]
            found = rows([v for v, _ in answers], set().union(*(n for _, n in answers)), "0")
            if found := {n: bits for n, bits in found.items() if "1" in bits and n[0] != "_"}:
                called[f"{name}.{method}" if method else name] = found
        overrides |= dict(overridden(name, every))
        values = [r.attributes(name) for r in every]
        candidates = set().union(*(v for v in values if v is not None))
        parts = PARTS if name.endswith(WHOLE) else of_text_config(name, every[-1])
        lost = rows(values, parts & candidates, "10")
        is_config = name.endswith("Config")  # 4.53 gave back what 4.52 had moved, up to 5.0
        lost = {n: b for n, b in lost.items() if b[-1] == "0" and (is_config or "01" not in b)}
        lost |= rows(values, decorated & candidates, "10")
        lost |= unnamed_methods(name, every)
        if lost:
            held[name] = lost
    called |= of_generate(every)
    candidates = set().union(*(release.methods(OF_ALL) for release in every))
    methods = {"tokenizer": rows([r.methods(TOKENIZER) for r in every], candidates, "0")}
    rotary = {
        name: {"forward": "".join("01"[not r.needs_kind(name)] for r in every)}
        for name in sorted(set().union(*(r.classes for r in every)))
        if name.endswith("RotaryEmbedding") and any(r.needs_kind(name) for r in every)
    }
    words = {
        part: {
            "": rows(
                [getattr(r, part) for r in every],
                set().union(*(getattr(r, part) for r in every)),
                "0" if part == "attention" else "10",
            )
        }
        for part in ("attention", "tasks", "variables")
    }
    words["kernels"] = {"": {"of the hub": as_before(every)}}
    table = {
        "arguments": called,
        "overrides": overrides,
        "attributes": held,
        "methods": methods,
        "rotary": rotary,
        **words,
    }
    OUT.write_text(written([*folders], table), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
