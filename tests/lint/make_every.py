"""Write samebits/lint/every.json: the names that any release since 4.48 can import from each module.

    python tests/lint/make_every.py 4.48=FOLDER 4.57=FOLDER …     (as for make_names.py)

``samebits lint`` says of a name that is not there that no known release has it. So a name counts if any statement of
the module binds it, in any branch of any release, or if a release that lies in an environment has it once it is
imported. Modules of models that runs make, such as tokenization_bert_fast in 5.x, are left out.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from make_names import read

OUT = Path(__file__).parents[2] / "samebits" / "lint" / "every.json"
OFTEN = 12
"""Modules above which a name is one that every module may have: of other packages, or of the library's utilities."""
DIRECTORY = """
import importlib, json, os, sys, warnings
warnings.simplefilter("ignore")
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
output, sys.stdout, found = sys.stdout, sys.stderr, {}
for name in json.load(sys.stdin):
    try:
        found[name] = sorted(dir(importlib.import_module(name)))
    except BaseException:
        pass
json.dump(found, output)
"""


def in_use(name):
    """Return True for a module that the table has: those of models only if no run makes them."""
    if ".models." not in name:
        return ".dummy_" not in name
    last = name.rpartition(".")[2]
    return name.count(".") == 2 or last.startswith(("modeling_", "configuration_"))


def running(python, modules):
    """Return the names that a release has once it is imported."""
    command = [python, "-c", DIRECTORY]
    done = subprocess.run(
        command, input=json.dumps(modules), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def write(modules):
    """Write the table: one line for each module, and one for the names that every module may have."""
    counts = Counter(name for names in modules.values() for name in names)
    often = {name for name, count in counts.items() if count > OFTEN}
    lines = [f'"*":{json.dumps(" ".join(sorted(often)))}']
    for module, names in sorted(modules.items()):
        if in_use(module):
            short = set() if module == "transformers" else often
            kept = sorted(n for n in names if useful(module, n) and n not in short)
            lines.append(f"{json.dumps(module)}:{json.dumps(' '.join(kept))}")
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def useful(module, name):
    """Return True for a name that code imports; a private one of a model is not looked up."""
    is_foreign = re.match(r"(?:TF|Flax)[A-Z][a-z]", name)
    return (
        name.isidentifier()
        and not is_foreign
        and not name.startswith("_" if ".models." in module else "__")
    )


def main(arguments):
    modules = {}
    for folder in (Path(a.partition("=")[2]).absolute() for a in arguments):
        for module, names in read(folder.resolve())[0].items():
            modules.setdefault(module, set()).update(names)
        python = folder.parents[3] / "bin" / "python"
        if python.exists():
            own = [m for m in modules if ".models." not in m]
            for module, names in running(python, own).items():
                modules[module].update(names)
    write(modules)


if __name__ == "__main__":
    main(sys.argv[1:])
