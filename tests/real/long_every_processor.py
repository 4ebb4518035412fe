"""Every image processor and feature extractor of two releases, by its class's defaults.

To be run after a change of the question processors: what it asks, compares or names.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from samebits.findings.case import Case
from samebits.questions.processors.records import ProcessorsSignal
from samebits.questions.registry import findings
from samebits.stacks.environment import probe_environment
from samebits.stacks.installer import Installer
from samebits.stacks.packages import PackageBuilder
from tests.support.builders import Memory, sound

ROOT = Path(__file__).parents[2]
ASK = """
import json, logging, sys, tempfile, warnings
from pathlib import Path
sys.path[1:1] = [sys.argv[1]]
sys.path.append(sys.argv[2])
from samebits_probe.questions.processors import processors, samples
from samebits_probe.model.load import Source
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES as SOUNDS
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES as IMAGES
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
pictures, sounds = samples.pictures(), samples.sounds()
samples.arrays = dict
samples.pictures = lambda: {name: pictures[name] for name in ("RGB 97 x 64", "gray", "two images")}
samples.sounds = lambda: {name: sounds[name] for name in ("1 s", "two of different lengths")}
names = {}
for model_type, classes in {**SOUNDS, **IMAGES}.items():
    classes = list(classes.values()) if isinstance(classes, dict) else classes
    classes = [classes] if isinstance(classes, str) else [name for name in classes if name]
    names[min(classes, key=len)] = model_type
for name, model_type in sorted(names.items()):
    key = "image_processor_type" if "ImageProcessor" in name else "feature_extractor_type"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": model_type}))
        (Path(folder) / "preprocessor_config.json").write_text(json.dumps({key: name}))
        facts = processors.facts(Source(folder, None, True, "float32", "default", "cpu"), 60.0)
    print(json.dumps([name, facts]))
"""
OF_OPTIONS = {"SB850", "SB859"}
"""What an option of a call does, whatever the call without it gives."""
DECIDED = {"SB832", "SB833", "SB834", "SB835", "SB836", "SB837", "SB838"}


@pytest.fixture(scope="module")
def signals(stacks, tmp_path_factory):
    """Return stack -> class -> what that release makes of a few seeded inputs."""
    root = tmp_path_factory.mktemp("every")
    builder = PackageBuilder(root / "packages", root, Installer(os.environ))
    env = probe_environment(os.environ, needs_hub=False, modules_cache=str(root / "modules"))
    observed = {}
    for stack in ("4.48", "5.x"):
        pillow = builder.extend(stacks[stack], "3.11", ["pillow"]).folder
        command = [stacks[stack].python, "-c", ASK, str(ROOT / "probes"), pillow]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stderr
        lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
        observed[stack] = {name: ProcessorsSignal.model_validate(facts) for name, facts in lines}
    return observed


def test_every_class_gives_outputs_or_a_reason(signals):
    for of_stack in signals.values():
        ran = 0
        for name, signal in of_stack.items():
            part = next(iter(signal.parts.values()))
            assert [part.class_name, part.absent, part.raised].count("") == 2, name
            assert all(
                (c.outputs is None) == bool(c.raised or c.left_out) for c in part.cases.values()
            ), name
            ran += any(case.outputs for case in part.cases.values())
        assert ran > len(of_stack) / 2


def test_most_classes_are_the_same_in_both_releases_and_what_differs_is_decided(signals):
    shared = sorted(signals["4.48"].keys() & signals["5.x"].keys())
    assert len(shared) > 60
    codes = {name: codes_of(signals, name) for name in shared}
    same = [name for name in shared if not codes[name] - {"SB832"} - OF_OPTIONS]
    assert len(same) > len(shared) / 2
    undecided = [name for name in shared if codes[name] - DECIDED - {"SB831"} - OF_OPTIONS]
    assert len(undecided) < len(shared) / 10, undecided


def codes_of(signals, name):
    case = Case(
        capture=sound(Memory(), "5.x", processors=signals["5.x"][name]),
        reference=sound(Memory(), "4.48", processors=signals["4.48"][name]),
    )
    # 5.x refuses means and deviations as arrays, whatever the class
    return {finding.code for finding in findings(case) if "=array(" not in finding.where}
