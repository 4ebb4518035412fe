"""Parts of a recall run: what ended is not run again, and what was stopped begins anew."""

import pytest

from bench.recall import parts
from bench.recall.parts import Part, Progress, kept

ASKED = {"matrix": {"version": 1}}


@pytest.fixture(autouse=True)
def same_code(monkeypatch):
    monkeypatch.setattr(parts, "code", lambda *_: "code")


class Work:
    """Counts its runs; each leaves a file, as captures are left."""

    def __init__(self, folder):
        self.folder = folder
        self.seen = []

    def __call__(self):
        self.folder.mkdir(exist_ok=True)
        self.seen.append(sorted(path.name for path in self.folder.iterdir()))
        (self.folder / "capture").touch()
        return ["result", len(self.seen)]


def clock():
    yield from (10.0, 12.5, 20.0, 21.0, 30.0, 31.0)


def test_a_part_that_ended_is_kept_with_its_time(tmp_path):
    work, ticks = Work(tmp_path / "a"), clock()
    first = kept(tmp_path / "a", ASKED, work, lambda: next(ticks))
    second = kept(tmp_path / "a", ASKED, work, lambda: next(ticks))
    assert first == Part(["result", 1], 2.5, is_fresh=True, is_kept=False)
    assert second == first._replace(is_kept=True)
    assert len(work.seen) == 1


def test_another_question_uses_what_is_captured_and_is_not_fresh(tmp_path):
    work, ticks = Work(tmp_path / "a"), clock()
    kept(tmp_path / "a", ASKED, work, lambda: next(ticks))
    part = kept(tmp_path / "a", {"matrix": {"version": 2}}, work, lambda: next(ticks))
    assert (part.result, part.is_fresh, part.is_kept) == (["result", 2], False, False)
    assert "capture" in work.seen[1]


def test_other_code_runs_it_again(tmp_path, monkeypatch):
    work = Work(tmp_path / "a")
    kept(tmp_path / "a", ASKED, work)
    monkeypatch.setattr(parts, "code", lambda *_: "other code")
    assert kept(tmp_path / "a", ASKED, work).result == ["result", 2]


def test_a_part_that_was_stopped_begins_with_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "half a capture").touch()
    work = Work(tmp_path / "a")
    assert kept(tmp_path / "a", ASKED, work).is_fresh
    assert work.seen == [[]]


def test_the_time_of_a_run_is_that_of_all_parts(capsys):
    progress = Progress(2)
    progress.begin("2 cases")
    progress.end(Part([], 90.0, is_fresh=True, is_kept=True), "all named")
    progress.begin("clean pairs")
    progress.end(Part([], 30.0, is_fresh=False, is_kept=False), "none accused")
    assert (progress.seconds, progress.is_fresh) == (120.0, False)
    assert capsys.readouterr().out.splitlines() == [
        "[1/2] 2 cases …",
        "    all named (90 s in an earlier run, 1.5 min in all)",
        "[2/2] clean pairs …",
        "    none accused (30 s, 2.0 min in all)",
    ]
