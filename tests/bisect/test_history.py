"""Commits of a clone: which one a release is, and what lies between two."""

import pytest

from samebits.bisect.history import History, HistoryError
from tests.support.clones import FOLDER, clone, git, source

pytestmark = pytest.mark.processes


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "transformers"
    clone(
        folder,
        ("One", source("5.1.0.dev0")),
        ("Two (#12)", {f"{FOLDER}/ops.py": "A = 1\n"}),
        ("Begin 5.2", source("5.2.0.dev0")),
        ("A page", {"docs/page.md": "text"}),
        ("Three (#34)", {f"{FOLDER}/ops.py": "A = 2\n"}),
        ("Begin 5.3", source("5.3.0.dev0")),
    )
    return folder


def at(repo, title):
    return git(repo, "log", "--format=%H", f"--grep={title}")


def test_a_release_without_a_tag_is_the_last_commit_before_the_next_version(repo):
    history = History(repo)
    assert history.end("5.1").sha == at(repo, "Two")
    assert history.end("5.2.3").sha == at(repo, "Three")
    assert (history.end("5.2").release, bool(history.end("5.2").how)) == ("5.2", True)


def test_a_release_that_the_clone_does_not_reach_is_refused(repo):
    with pytest.raises(HistoryError, match=r"ends before 5\.3 was released"):
        History(repo).end("5.3")


def test_the_newest_tag_of_a_release_counts(repo):
    git(repo, "tag", "v5.1.0", at(repo, "One"))
    git(repo, "tag", "v5.1.1", at(repo, "A page"))
    git(repo, "tag", "v5.1.2rc1", at(repo, "Three"))
    assert History(repo).end("5.1").sha == at(repo, "A page")


def test_a_commit_or_a_branch_is_itself(repo):
    sha = at(repo, "Three")
    assert History(repo).end(sha[:12]).sha == sha
    assert History(repo).end("main").how == ""
    git(repo, "branch", "1234567890", sha)  # as the beginning of a commit may be
    assert History(repo).end("1234567890").sha == sha
    with pytest.raises(HistoryError, match="no commit"):
        History(repo).end("0123abcd")


def test_a_version_of_a_package_is_its_tag(repo):
    git(repo, "tag", "v0.3", at(repo, "Two"))
    history = History(repo)
    assert history.end("0.3", releases=False).how == "tag v0.3"
    assert history.end("v0.3", releases=False).how == ""
    with pytest.raises(HistoryError, match="name a tag, a branch or a commit"):
        history.end("0.4", releases=False)


def test_the_line_between_two_commits_with_what_each_changed(repo):
    history = History(repo)
    line = history.line(at(repo, "Two"), at(repo, "Three"))
    assert [commit.title for commit in line.commits[1:]] == ["Begin 5.2", "A page", "Three (#34)"]
    last = line.commits[-1]
    assert (last.pull, line.commits[2].pull) == ("34", "")
    assert last._replace(title="Merge pull request #56 from a/b").pull == "56"
    (edit,) = last.edits
    assert edit.path == f"{FOLDER}/ops.py"
    assert [history.text(blob) for blob in edit[1:]] == [b"A = 1\n", b"A = 2\n"]


def test_from_a_branch_of_a_release_the_line_begins_where_it_left(repo):
    two, three = at(repo, "Two"), at(repo, "Three")
    git(repo, "checkout", "-q", "-b", "v5.1-release", two)
    git(repo, "commit", "-q", "--allow-empty", "-m", "Release")
    line = History(repo).line(git(repo, "rev-parse", "HEAD"), three)
    assert line.commits[0].sha == two
    assert "branch of its own" in line.note


def test_ends_in_the_wrong_order_are_refused(repo):
    with pytest.raises(HistoryError, match="swap"):
        History(repo).line(at(repo, "Three"), at(repo, "Two"))


def test_ends_without_a_line_between_them_are_refused(tmp_path, repo):
    history = History(repo)
    with pytest.raises(HistoryError, match="both ends are the commit"):
        history.line(at(repo, "Two"), at(repo, "Two"))
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", str(shallow))
    with pytest.raises(HistoryError, match="shallow: git fetch --unshallow"):
        History(shallow).end(at(repo, "Two"))
    with pytest.raises(HistoryError) as raised:
        history.end("0123abcd")
    assert "shallow" not in str(raised.value)


def test_a_folder_that_is_no_clone_is_refused(tmp_path):
    with pytest.raises(HistoryError, match="is no clone: --package-repo names"):
        History(tmp_path, "--package-repo")
