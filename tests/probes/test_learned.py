"""What a child of a stack's process passes on to the next ones."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.model import source
from samebits_probe.process import learned


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(learned, "DIGESTS", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    source.of_code.cache_clear()


@pytest.fixture
def package(tmp_path):
    """Return the folder of a package ``grown`` that is imported, with a module that is not."""
    folder = tmp_path / "grown"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "later.py").write_text("VALUE = 3\n")
    sys.path.insert(0, str(tmp_path))
    importlib.import_module("grown")
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "grown"]:
        del sys.modules[name]


def passed_on(tmp_path, work):
    """Return what a child writes that does ``work``."""
    mark = learned.mark()
    work()
    learned.write(mark, tmp_path / "job.learned")
    return json.loads((tmp_path / "job.learned").read_text("utf-8"))


def test_a_child_that_learns_nothing_passes_nothing_on(tmp_path):
    facts = passed_on(tmp_path, lambda: None)
    assert facts == {"imports": [], "patterns": [], "digests": []}


def test_modules_of_packages_that_the_parent_has_are_imported_by_it(tmp_path, package):
    facts = passed_on(tmp_path, lambda: importlib.import_module("grown.later"))
    assert facts["imports"] == ["grown.later"]
    del sys.modules["grown.later"]
    learned.read(tmp_path / "job.learned")
    assert sys.modules["grown.later"].VALUE == 3
    assert not (tmp_path / "job.learned").exists()


def test_a_package_that_only_the_child_has_stays_with_it(tmp_path, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == "grown"]:
        del sys.modules[name]
    assert passed_on(tmp_path, lambda: importlib.import_module("grown"))["imports"] == []


def test_a_child_that_changed_the_path_passes_no_imports_on(tmp_path, package):
    def work():
        importlib.import_module("grown.later")
        sys.path.append("/elsewhere")

    assert passed_on(tmp_path, work)["imports"] == []


def test_patterns_are_compiled_before_the_next_job(tmp_path):
    text = r"samebits-[0-9]+x"
    facts = passed_on(tmp_path, lambda: re.compile(text, re.IGNORECASE))
    assert [text, int(re.IGNORECASE)] in facts["patterns"]
    re.purge()
    learned.read(tmp_path / "job.learned")
    assert (str, text, int(re.IGNORECASE)) in re._cache


def test_a_huge_pattern_stays_with_its_job(tmp_path):
    text = "|".join(map(str, range(5_000)))
    assert passed_on(tmp_path, lambda: re.compile(text))["patterns"] == []


def test_a_pattern_that_re_refuses_ends_nothing(tmp_path):
    path = tmp_path / "job.learned"
    path.write_text(json.dumps({"imports": ["no.such"], "patterns": [["(", 0]], "digests": []}))
    learned.read(path)
    assert not path.exists()


def function_in(path, line=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n" * (line - 1) + "def f(x):\n    return x + 1\n")
    return compile(path.read_text(), str(path), "exec").co_consts[0]


def test_the_digest_of_a_function_of_transformers_is_computed_once(tmp_path, monkeypatch):
    code = function_in(tmp_path / "site-packages" / "transformers" / "a.py")
    facts = passed_on(tmp_path, lambda: source.of_code(code))
    digest = source.of_code(code)
    assert facts["digests"] == [[[code.co_filename, 1, "f"], digest]]
    source.of_code.cache_clear()
    learned.DIGESTS.clear()
    learned.read(tmp_path / "job.learned")
    monkeypatch.setattr(source, "_of_code", None)
    assert source.of_code(code) == digest


def test_the_digest_of_code_that_a_job_may_change_is_not_passed_on(tmp_path):
    path = tmp_path / "modules" / "transformers_modules" / "model.py"
    code = function_in(path)
    facts = passed_on(tmp_path, lambda: source.of_code(code))
    assert facts["digests"] == []
    assert source.of_code(code)
    other = function_in(path, line=3)
    assert source.of_code(other) == source.of_code(code), "the same text at another place"


def test_a_file_that_is_missing_or_damaged_teaches_nothing(tmp_path):
    learned.read(tmp_path / "none.learned")
    (tmp_path / "half.learned").write_text('{"imports": [')
    learned.read(tmp_path / "half.learned")
    assert not learned.DIGESTS


def test_what_cannot_be_written_costs_only_time(tmp_path):
    learned.write(learned.mark(), Path(tmp_path / "no" / "folder" / "job.learned"))
