"""Write samebits/lint/names.json: which names transformers has in which release, from its sources.

    python tests/lint/make_names.py 4.48=FOLDER 4.57=FOLDER …     (each the folder "transformers")

The table has every minor release from 4.48 to 5.24, with a patch release of it that lay in an environment, else
X.Y.0 from its wheel. Nothing is imported to read a release. A name counts as importable if any statement of the
module binds it, in any branch: a table made this way says "missing" only where no branch has it.
Only names that a later release lacks are kept, and those of the library's own modules (not of its
models) that an earlier one lacks.

A release also makes names while it runs: aliases such as BertTokenizerFast, whole modules such as
transformers.tokenization_utils_fast in 5.x. No statement binds those. So each FOLDER that lies in an
environment is asked, by that environment's interpreter, for every name that the table calls missing,
and a row that one of them contradicts is dropped: another release may make the same name. FOLDER of
4.48, 4.57, 5.2 and 5.24 must be that of the stack; tests/real/long_lint_names.py asks them again.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

OUT = Path(__file__).parents[2] / "samebits" / "lint" / "names.json"
SKIPPED = ("commands", "data", "benchmark", "cli", "testing_utils", "kernels", "sagemaker")
UNREAD = ("convert_", "modular_", "modeling_tf_", "modeling_flax_", "test_")
KINDS = ("modeling_", "configuration_", "tokenization_")
FOREIGN = {
    "Optional",
    "Union",
    "Tuple",
    "List",
    "Dict",
    "Set",
    "Any",
    "Callable",
    "FrozenSet",
    "Iterable",
    "Iterator",
    "Mapping",
    "Sequence",
    "OrderedDict",
    "Literal",
    "TypedDict",
    "TYPE_CHECKING",
    "ABC",
    "UserDict",
    "Enum",
    "Path",
    "F",
    "PIL",
    "abstractmethod",
    "annotations",
    "collections",
    "contextlib",
    "copy",
    "copyfile",
    "dataclass",
    "field",
    "functools",
    "importlib",
    "inspect",
    "io",
    "itertools",
    "json",
    "lru_cache",
    "math",
    "nn",
    "np",
    "os",
    "partial",
    "re",
    "shutil",
    "spm",
    "string",
    "sys",
    "tempfile",
    "torch",
    "tf",
    "jax",
    "version",
    "warnings",
    "wraps",
    "logger",
    "logging",
    "deprecate_kwarg",
}
LAYERS = ("Layer", "Block", "Attention")


def bound_names(tree):
    """Yield every name that a statement of the module binds, in any branch, and what it imports *."""
    todo = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        else:
            for inner in ast.walk(node) if not hasattr(node, "body") else ():
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id, None
            if isinstance(node, ast.Assign) and "_import_structure" in ast.unparse(node.targets[0]):
                yield from strings(node.value)
            if isinstance(node, (ast.Expr, ast.AugAssign)) and "_import_structure" in ast.unparse(
                node
            ):
                yield from strings(node)
            for field in ("body", "orelse", "finalbody"):
                todo += getattr(node, field, [])
            for handler in getattr(node, "handlers", []):
                todo += handler.body


def strings(node):
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value, None


def module_name(path, root):
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exports(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            for name, _ in strings(node.value):
                yield name


def read(root):
    """Return the names of every module of a release, and the facts of its layers."""
    modules, stars, layers, every = {}, {}, {}, set()
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0].removesuffix(".py") in SKIPPED:
            continue
        if path.name.startswith(UNREAD):
            continue
        name, tree = module_name(path, root), ast.parse(path.read_text("utf-8"))
        names = set()
        for bound, node in bound_names(tree):
            if bound == "*" and isinstance(node, ast.ImportFrom):
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                package = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                target = f"{package}.{node.module}" if node.level else node.module
                stars.setdefault(name, []).append(target)
            else:
                names.add(bound)
        modules[name] = names
        if ".models." in name:
            modules[name.rpartition(".")[0]] = modules.get(name.rpartition(".")[0], set()) | set(
                exports(tree)
            )
            every |= set(exports(tree))
        elif path.name == "__init__.py" or "generation" in name:
            modules[name] |= set(exports(tree))
        if path.name.startswith("modeling_"):
            layers |= {f"{name}.{n}": facts for n, facts in layer_facts(tree)}
    for name, targets in stars.items():
        for target in targets:
            modules[name] |= modules.get(target, set())
    modules["transformers"] |= every
    for name in list(modules):
        parent, _, own = name.rpartition(".")
        if parent:
            modules[parent].add(own)
    return modules, layers


def layer_facts(tree):
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or not node.name.endswith(LAYERS):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "forward":
                params = {a.arg for a in method.args.args + method.args.kwonlyargs}
                params |= set(former_names(method))
                returns = [n.value for n in ast.walk(method) if isinstance(n, ast.Return)]
                tensor = bool(returns) and all(
                    isinstance(value, ast.Name) and value.id in {"hidden_states", "x"}
                    for value in returns
                )
                taken = {name for name in ("past_key_value", "past_key_values") if name in params}
                yield node.name, {"layer"} | taken | ({"tensor"} if tensor else set())


def masks(facts):
    """Return for each fact of a layer the releases in which it is so, as a mask."""
    return {
        name: "".join(str(int(name in each)) for each in facts)
        for name in ("layer", "past_key_value", "past_key_values", "tensor")
    }


def former_names(method):
    """Yield the names that a decorator such as deprecate_kwarg("past_key_value", …) renames."""
    for decorator in method.decorator_list:
        if isinstance(decorator, ast.Call) and decorator.args:
            first = decorator.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def smaller(table):
    """Drop what nobody imports: names of other packages, constants of tests and documentation."""
    counts = Counter(name for rows in table["names"].values() for name in rows)
    names = {}
    for module, rows in table["names"].items():
        model = ".models." in module
        if model and not module.rpartition(".")[2].startswith(KINDS):
            continue
        useful = {
            name: mask
            for name, mask in rows.items()
            if name == "*"
            or (
                name not in FOREIGN
                and not name.startswith(("TF", "Flax", "__"))
                and not (model and (mask[0] == "0" or counts[name] > 12 or name.startswith("_")))
            )
        }
        if useful:
            names[module] = useful
    return {**table, "names": names}


def contradicted(table, folders):
    """Return (module, name) of the rows that say missing though an environment imports the name."""
    rows = set()
    for place, release in enumerate(table["releases"]):
        python = folders[release].parents[3] / "bin" / "python"
        if python.exists():
            modules = lacking(table["names"], place)
            rows |= {(m, n) for m, n, reason in ask(python, modules) if not reason}
    return rows


def lacking(names, place):
    """Return the names of each module that the table calls missing in one release."""
    modules = {
        m: [n for n, mask in rows.items() if mask[place] == "0"] for m, rows in names.items()
    }
    return {module: absent for module, absent in modules.items() if absent}


def ask(python, modules):
    """Yield (module, name, reason) for each name; the reason is empty if it can be imported."""
    command = [python, Path(__file__).with_name("ask_names.py")]
    done = subprocess.run(
        command, input=json.dumps(modules), capture_output=True, text=True, check=True
    )
    for module, names in json.loads(done.stdout).items():
        for name in modules[module]:
            yield module, name, names if isinstance(names, str) else names[name]


def without(table, rows):
    """Return the table less some rows, and less the modules that then have none."""
    names = {
        module: {n: mask for n, mask in content.items() if (module, n) not in rows}
        for module, content in table["names"].items()
    }
    return {**table, "names": {module: content for module, content in names.items() if content}}


def written(releases, table):
    """Return the table as JSON, one row of each part on a line."""
    parts = [
        f'"{part}":{{\n'
        + ",\n".join(
            f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}"
            for key, value in rows.items()
        )
        + "\n}"
        for part, rows in table.items()
    ]
    return f'{{"releases":{json.dumps(releases)},\n' + ",\n".join(parts) + "}\n"


def main(arguments):
    folders = {r: Path(folder).absolute() for r, _, folder in (a.partition("=") for a in arguments)}
    with ProcessPoolExecutor() as processes:
        found = processes.map(read, map(Path.resolve, folders.values()))
        read_out = dict(zip(folders, found, strict=True))
    marks = list(folders)
    every_module = sorted(set().union(*(modules for modules, _ in read_out.values())))
    names = {}
    for module in every_module:
        present = {r: read_out[r][0].get(module) for r in marks}
        rows = {}
        for name in sorted(set().union(*(p for p in present.values() if p))):
            mask = "".join("1" if present[r] and name in present[r] else "0" for r in marks)
            gone = "10" in mask
            if name.startswith("__") or (not gone and (".models." in module or "1" not in mask)):
                continue
            if "0" not in mask or (not gone and module == "transformers"):
                continue
            rows[name] = mask
        whole = "".join("0" if present[r] is None else "1" for r in marks)
        if set(rows.values()) == {whole} and len(rows) > 1:
            rows = {"*": whole}
        elif whole in rows.values() and "0" in whole:
            rows = {"*": whole} | {n: m for n, m in rows.items() if m != whole}
        if rows:
            names[module] = rows
    layers = {}
    for layer in sorted(set().union(*(layers for _, layers in read_out.values()))):
        facts = [read_out[r][1].get(layer, set()) for r in marks]
        if len({frozenset(each) for each in facts if each}) > 1:
            layers[layer] = masks(facts)
    table = smaller({"releases": marks, "names": names, "layers": layers})
    kept = without(table, contradicted(table, folders))
    OUT.write_text(written(kept["releases"], {p: kept[p] for p in ("names", "layers")}), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
