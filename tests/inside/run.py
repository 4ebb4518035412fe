"""Runs the checks of one file inside a stack, which has no pytest.

``python run.py check_x.py`` calls every ``test_*`` function of that file, each in its own
forked process (probes change process-wide state), and prints name -> '' or traceback.
"""

import gc
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def outcome(function):
    with tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            try:
                # as in the process of a job
                importlib.import_module("samebits_probe.process.threads").recreate_pool()
                function()
            except BaseException:
                said.write(traceback.format_exc())
                said.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        said.seek(0)
        return said.read() or ("" if status == 0 else f"died with status {status}")


if __name__ == "__main__":
    marks = importlib.import_module("samebits_probe.process.marks")
    marks.MARKS.install()  # as a stack's process does before transformers is imported
    module = load(sys.argv[1])
    gc.freeze()
    tests = {name: f for name, f in vars(module).items() if name.startswith("test_")}
    print(json.dumps({name: outcome(function) for name, function in tests.items()}))
