"""Write samebits/matrix/known.json: the releases of transformers, their model types and classes.

    python tests/matrix/make_known.py FOLDER …     (each the folder "transformers" of a release)

The releases are those of PyPI, up to the one that tests/newest.txt names. Types and classes are those that the table has,
and those of all FOLDERs, from their sources alone: nothing is imported. So for a new release, which newest.txt names first,
its own FOLDER is enough. A class is any that a modeling file defines: the list has more names than can be loaded, and
lacks none.
"""

import ast
import json
import sys
import urllib.request
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[2]
OUT = ROOT / "samebits" / "matrix" / "known.json"
OLDEST = Version("4.48.0")
NEWEST = Version((ROOT / "tests" / "newest.txt").read_text("utf-8").strip().rpartition("<=")[2])
sys.path.insert(0, str(ROOT / "probes"))
from architectures import _table_keys


def releases():
    with urllib.request.urlopen("https://pypi.org/pypi/transformers/json") as answer:
        files = json.load(answer)["releases"]
    versions = sorted(Version(text) for text, uploads in files.items() if uploads)
    return [str(v) for v in versions if OLDEST <= v <= NEWEST and not v.is_prerelease]


def types(root):
    auto = root / "models" / "auto"
    tables = [auto / name for name in ("configuration_auto.py", "auto_mappings.py")]
    return {key for path in tables if path.exists() for key in _table_keys(path)}


def classes(root):
    for path in root.glob("models/**/modeling_*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield node.name
            if isinstance(node, ast.Assign):  # a second name of a class
                yield from (
                    t.id for t in node.targets if isinstance(t, ast.Name) and t.id[0].isupper()
                )


PARTS = (
    "Attention",
    "Block",
    "Config",
    "Embedding",
    "Embeddings",
    "Layer",
    "MLP",
    "Norm",
    "Output",
)


def is_loadable(name):
    return not (name.startswith("_") or name.isupper() or name.endswith(PARTS))


if __name__ == "__main__":
    folders = [Path(text) for text in sys.argv[1:]]
    table = json.loads(OUT.read_text("utf-8"))
    found_types = {t for folder in folders for t in types(folder) if t.islower()}
    found_classes = {c for folder in folders for c in classes(folder) if is_loadable(c)}
    content = {
        "releases": releases(),
        "types": sorted({*table["types"], *found_types}),
        "classes": sorted({*table["classes"], *found_classes}),
    }
    OUT.write_text(json.dumps(content, separators=(",", ":")) + "\n", "utf-8")
