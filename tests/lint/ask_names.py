"""Ask a release which names it can import; run by the interpreter of a stack, and needs nothing else.

Reads ``{module: [name, …]}`` as JSON and writes ``{module: {name: "" or the exception}}``, or in place
of the names the exception that importing the module raises. The name ``*`` stands for the module.
"""

import importlib
import json
import os
import sys
import warnings


def answers(modules):
    return {module: names_of(module, names) for module, names in modules.items()}


def names_of(module, names):
    try:
        content = importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001  a module may do anything without its packages
        return f"{type(error).__name__}: {error}"
    return {name: "" if name == "*" else failure(content, module, name) for name in names}


def failure(content, module, name):
    """Return what `from module import name` raises; empty if it works."""
    try:
        getattr(content, name)
    except BaseException as error:  # noqa: BLE001
        reason = f"{type(error).__name__}: {error}"
    else:
        return ""
    try:
        importlib.import_module(f"{module}.{name}")
    except BaseException:  # noqa: BLE001
        return reason
    return ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    output, sys.stdout = sys.stdout, sys.stderr
    json.dump(answers(json.load(sys.stdin)), output)
