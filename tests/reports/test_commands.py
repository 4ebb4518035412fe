"""The commands that a report proposes are in the words that started its run."""

import shlex

import pytest

from samebits.reports.commands import compare_two, find_commit
from tests.support.sample_report import sample_report


@pytest.mark.parametrize(
    ("command", "proposed"),
    [
        (
            "nox -s matrix -- --quick",
            "nox -s matrix -- --causes --models m --environments 4.48,5.x",
        ),
        ("samebits matrix --quick", "samebits matrix --causes --models m --environments 4.48,5.x"),
        ("samebits check 'my m' --deep", "samebits check 'my m' --causes --from 4.48 --to 5.x"),
        (
            "samebits check m --package my-models --class a:B --trust-remote-code --from 5.0 --deep",
            "samebits check m --package my-models --class a:B --trust-remote-code --causes --from 4.48 --to 5.x",
        ),
        (
            "nox -s matrix -- --causes --matrix zoo.yaml",
            "nox -s matrix -- --causes --models m --environments 4.48,5.x --matrix zoo.yaml",
        ),
        (
            "samebits matrix --matrix='my zoo.yaml' --quick",
            "samebits matrix --causes --models m --environments 4.48,5.x '--matrix=my zoo.yaml'",
        ),
        (
            "samebits check m --from 5.0 --dtypes float32",
            "samebits check m --dtypes float32 --causes --from 4.48 --to 5.x",
        ),
        ("", "samebits matrix --causes --models m --environments 4.48,5.x"),
        (
            "samebits matrix --models a\\",
            "samebits matrix --causes --models m --environments 4.48,5.x",
        ),
    ],
    ids=[
        "nox",
        "installed",
        "check",
        "check of a package",
        "matrix file",
        "matrix file with =",
        "check of a dtype",
        "none",
        "no shell accepts it",
    ],
)
def test_the_words_of_the_run_are_repeated(command, proposed):
    report = sample_report().model_copy(update={"command": command})
    assert compare_two(report, "4.48", "5.x", model="m", more="--causes") == proposed


def test_a_commit_is_named_as_the_run_named_it():
    source = f"../clone@{'0123456789' * 4}"
    report = sample_report().model_copy(update={"command": f"samebits check m --to {source}"})
    assert (
        compare_two(report, "5.12", "0123456789") == f"samebits check m --from 5.12 --to {source}"
    )


@pytest.mark.parametrize("source", ["../clones/eps", "/clones/eps", "…/eps"])
def test_a_checkout_is_named_as_the_run_named_it(source):
    to = shlex.quote(source)
    report = sample_report().model_copy(update={"command": f"samebits check m --to {to}"})
    assert compare_two(report, "5.12", "eps") == f"samebits check m --from 5.12 --to {to}"


OLDER, NEWER = "0123456789" * 4, "abcdef0123" * 4


@pytest.mark.parametrize(
    ("words", "ends", "searched"),
    [
        (
            f"samebits check m --dtypes float32 --from ../clone@{OLDER} --to ../clone@{NEWER} --quick",
            (OLDER[:10], NEWER[:10]),
            f"samebits bisect m --dtypes float32 --from {OLDER} --to {NEWER} --repo ../clone",
        ),
        (
            f"samebits check m --from 5.16 --to ../clone@{NEWER}",
            ("5.16", NEWER[:10]),
            f"samebits bisect m --from 5.16 --to {NEWER} --repo ../clone",
        ),
        (
            f"samebits check m --from ../a@{OLDER} --to ../b@{NEWER}",
            (OLDER[:10], NEWER[:10]),
            "",
        ),
        ("samebits check m --from 5.16 --to ../clone", ("5.16", "clone"), ""),
        (
            f"samebits check m --from ../clone@{OLDER} --to ../clone",
            (OLDER[:10], "clone"),
            "",
        ),
        ("samebits check m --from 5.15 --to 5.16", ("5.15", "5.16"), ""),
        ("samebits matrix", ("5.15", "5.16"), ""),
    ],
    ids=[
        "two commits",
        "a release",
        "two clones",
        "a folder",
        "and a commit",
        "releases",
        "matrix",
    ],
)
def test_commits_of_one_clone_are_searched(words, ends, searched):
    report = sample_report().model_copy(update={"command": words})
    assert find_commit(report, *ends) == searched
