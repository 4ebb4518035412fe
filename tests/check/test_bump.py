"""What a pull request moves: planted bumps, clean twins, and what states no version."""

import json
import re
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from samebits.check import bump, pins
from samebits.matrix import load, yamltext
from samebits.reports.json import render
from tests.support.clones import clone, git
from tests.support.sample_report import sample_report

OLD, NEW = "4.57.1", "5.2.0"


def text_of(path, version):
    """Return the content of a file that states a version of transformers, and more."""
    return {
        "requirements.txt": f"# what runs\n-r base.txt\ntransformers[torch]=={version} \\\n  --hash=sha256:00\nnumpy\n",
        "requirements/ci.in": f"transformers=={version} ; python_version >= '3.10'  # pinned\n",
        "pyproject.toml": f'[project]\nname = "x"\nversion = "1"\ndependencies = ["transformers=={version}"]\n',
        "a/pyproject.toml": f'[dependency-groups]\nci = ["Transformers == {version}", {{include-group = "x"}}]\nx = []\n',
        "b/pyproject.toml": f'[tool.poetry.group.ci.dependencies]\ntransformers = {{version = "{version}"}}\n',
        "uv.lock": f'version = 1\n[[package]]\nname = "x"\n[[package]]\nname = "transformers"\nversion = "{version}"\n',
        "poetry.lock": f'[[package]]\nname = "transformers"\nversion = "{version}"\n',
        "pylock.toml": f'[[packages]]\nname = "transformers"\nversion = "{version}"\n',
        "Pipfile.lock": json.dumps({"default": {"transformers": {"version": f"=={version}"}}}),
        "environment.yml": f"dependencies:\n- python=3.12\n- pip:\n  - transformers=={version}\n",
        "setup.cfg": f"[options]\ninstall_requires =\n    transformers=={version}\n    numpy\n[options.extras_require]\nx = y\n",
        "a/setup.py": f"deps = ['transformers=={version}', 'numpy']\nsetup(keywords=['transformers'], install_requires=deps)\n",
        "conda/environment-ci.yaml": f"dependencies: [conda-forge::transformers={version}]\n",
        "b/environment.yml": f"dependencies: ['conda-forge::transformers=={version}']\n",
        "c/environment.yml": f"dependencies: [transformers {version}]\n",
        "Pipfile": f'[requires]\ntransformers = "1"\n[packages]\ntransformers = "=={version}"\n',
        "requirement.txt": f"transformers=={version}\n",
        "requirements/gpu/base.txt": f"transformers=={version}\n",
        "pdm.lock": f'[[package]]\nname = "transformers"\nversion = "{version}"\n',
        "c/pyproject.toml": f'[tool.hatch.envs.ci]\nextra-dependencies = ["transformers=={version}"]\n',
        "d/pyproject.toml": f'[project.optional-dependencies]\nx = ["transformers=={version}"]\n',
        "e/pyproject.toml": f'[tool.poetry.dependencies]\ntransformers = [{{version = "{version}", python = "*"}}]\n',
        "b/setup.py": f'"""torch is used."""\nV = "{version}"\nsetup(install_requires=[f"transformers=={{V}}"])\n',
        "c/setup.py": f'setup(install_requires="""\n    transformers=={version}\n    numpy""")\n',
        "d/setup.py": f'deps = {{"transformers": "transformers==" + "{version}"}}\n',
    }[path]


FILES = (
    "requirements.txt",
    "requirements/ci.in",
    "pyproject.toml",
    "a/pyproject.toml",
    "b/pyproject.toml",
    "uv.lock",
    "poetry.lock",
    "pylock.toml",
    "Pipfile.lock",
    "environment.yml",
    "setup.cfg",
    "a/setup.py",
    "conda/environment-ci.yaml",
    "b/environment.yml",
    "c/environment.yml",
    "Pipfile",
    "requirement.txt",
    "requirements/gpu/base.txt",
    "pdm.lock",
    "c/pyproject.toml",
    "d/pyproject.toml",
    "e/pyproject.toml",
    "b/setup.py",
    "c/setup.py",
    "d/setup.py",
)


@pytest.mark.parametrize("path", FILES)
def test_a_pin_or_a_lock_states_one_version(path):
    assert pins.is_read(path)
    bumped = pins.stated(path, text_of(path, NEW).encode())
    assert {(one.package, one.version) for one in bumped} == {("transformers", NEW)}


@pytest.mark.parametrize("path", ["my_setup.py", "README.txt", "package-lock.json", "x/main.lock"])
def test_other_files_are_not_read(path):
    assert not pins.is_read(path)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("transformers==4.57", "4.57.0"),
        ("transformers===4.57.1", OLD),
        ("transformers>=4.40,==4.57.1", OLD),
        ("transformers==5.0.0rc1", "5.0.0rc1"),
        ("torch==2.6.0+cpu", "2.6.0+cpu"),
        *((f"transformers{text}", "") for text in (">=4.57", "~=4.57.1", "==4.57.*", "<5", "")),
        ("transformers===nightly", ""),
        ("transformers==4.57..1", ""),
        ("transformers @ git+https://me:secret@host/x", ""),
    ],
)
def test_a_range_states_no_version(line, version):
    (one,) = pins.stated("requirements.txt", f"{line}\n".encode())
    assert one.version == version


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_requirements_of_powershell_are_read_as_pip_reads_them(encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (one,) = pins.stated("requirements.txt", f"{mark}transformers==4.57.1\n".encode(encoding))
    assert one.version == OLD


@pytest.mark.parametrize("text", ["pytorch>=2.6", "pytorch=2.6", "pytorch=2.6.*"])
def test_a_prefix_of_conda_is_a_range(text):
    (one,) = pins.stated("environment.yml", f"dependencies: ['{text}']".encode())
    assert (one.package, one.version) == ("torch", "")


def test_a_build_of_conda_is_exact():
    (one,) = pins.stated("environment.yml", b"dependencies: [pytorch=2.6=py3_cpu]")
    assert (one.package, one.version) == ("torch", "2.6.0")


@given(st.sampled_from(FILES), st.binary(max_size=200) | st.text().map(str.encode))
def test_any_content_is_read_or_refused(path, content):
    try:
        bumped = pins.stated(path, content)
    except pins.UnreadableError:
        return
    assert {one.package for one in bumped} <= set(pins.PACKAGES)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.sampled_from(FILES))
def test_an_exact_version_comes_back_with_three_numbers(numbers, path):
    version = ".".join(map(str, numbers))
    (one,) = pins.stated(path, text_of(path, version).encode())
    if not path.startswith("conda/") or len(numbers) > 2:  # = alone is a prefix
        assert one.version == ".".join(map(str, [*numbers, 0, 0][: max(3, len(numbers))]))


def judged(before, after):
    """Return what moves between two sets of files, given by what each states."""

    def read(side, path):
        return pins.stated(path, side[path].encode()) if path in side else frozenset()

    paths = sorted(p for p in {*before, *after} if before.get(p) != after.get(p))
    changes = {p: (read(before, p), read(after, p)) for p in paths}
    return bump.judged(changes, {p: read(after, p) for p in after})


R, P, L = "requirements.txt", "pyproject.toml", "uv.lock"


def pinned(version, package="transformers"):
    return f"{package}=={version}\n"


@pytest.mark.parametrize("path", FILES)
def test_a_planted_bump_is_found_and_its_clean_twin_is_not(path):
    bumped = judged({path: text_of(path, OLD)}, {path: text_of(path, NEW)})
    assert bumped.moves == (bump.Move("transformers", OLD, NEW, (path,)),)
    assert bumped.problems == ()
    more = " " if path == "Pipfile.lock" else "\n# touched\n"
    twin = judged({path: text_of(path, OLD)}, {path: text_of(path, OLD) + more})
    assert twin == bump.Statements(pins={"transformers": OLD})


def test_the_same_version_in_other_words_does_not_move():
    bumped = judged({R: pinned("4.57")}, {R: "transformers[torch]==4.57.0\n"})
    assert (bumped.moves, bumped.problems) == ((), ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (">=4.57", ">=5.2"),
        ("==4.57.1", ">=5.2"),
        (">=4.57", "==5.2.0"),
        ("~=4.57.1", "~=5.2.0"),
        ("", ">=5"),
        ("==4.57.1", " @ https://me:secret@host/x.whl"),
    ],
)
def test_a_range_is_said_and_not_resolved(before, after):
    bumped = judged({R: f"transformers{before}"}, {R: f"transformers{after}"})
    assert bumped.moves == ()
    (problem,) = bumped.problems
    assert "state one with ==" in problem
    assert "secret" not in problem


GIT_LOCK = '[[package]]\nname = "transformers"\nversion = "5.16.0.dev0"\n{}\n'
UV_PROJECT = """\
[project]
dependencies = ["transformers==5.2.0"]
[tool.uv.sources]
transformers = {{ git = "https://host/x", rev = "{}" }}
"""
ADDRESSES = {
    "an address alone": (R, "git+https://me:secret@github.com/huggingface/transformers.git@{}\n"),
    "an archive": (R, "https://github.com/huggingface/transformers/archive/{}.zip\n"),
    "an editable one": (R, "-e git+https://host/a/b@{}#egg=transformers\n"),
    "a wheel": (R, "https://host/x/transformers-{}-py3-none-any.whl\n"),
    "uv.lock": (L, GIT_LOCK.format('source = {{ git = "https://host/x#{}" }}')),
    "poetry.lock": (
        "poetry.lock",
        GIT_LOCK.format('[package.source]\ntype = "git"\nresolved_reference = "{}"'),
    ),
    "pdm.lock": ("pdm.lock", GIT_LOCK.format('revision = "{}"')),
    "pylock.toml": (
        "pylock.toml",
        GIT_LOCK.replace("package", "packages").format('vcs = {{commit-id = "{}"}}'),
    ),
    "a source of uv": (P, UV_PROJECT),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_an_address_that_moves_is_said_and_its_clean_twin_is_not(name):
    path, text = ADDRESSES[name]
    old, new = (text.format(commit) for commit in ("0123abc", "4567def"))
    bumped = judged({path: old}, {path: new})
    (problem,) = bumped.problems
    assert (bumped.moves, "secret" in problem) == ((), False)
    assert "from a range or an address no version follows" in problem
    assert judged({path: old}, {path: f"{old}\n# touched\n"}).problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "https://host/transformers/numpy-{}-py3-none-any.whl\n",
        "git+https://host/a/transformers-extras@{}\n",
        "--find-links https://host/transformers/{}\n",
    ],
)
def test_an_address_of_another_package_is_none_of_ours(text):
    assert judged({R: text.format(OLD)}, {R: text.format(NEW)}) == bump.Statements()


def test_an_index_beside_the_usual_one_is_no_address():
    lock = '[[package]]\nname = "torch"\nversion = "{}"\n[package.source]\ntype = "legacy"\nurl = "x"\n'
    bumped = judged({"poetry.lock": lock.format("2.6.0")}, {"poetry.lock": lock.format("2.7.0")})
    assert bumped.moves == (bump.Move("torch", "2.6.0", "2.7.0", ("poetry.lock",)),)


def test_the_projects_own_version_in_its_lock_is_no_bump():
    lock = '[[package]]\nname = "accelerate"\nversion = "{}"\nsource = {{ editable = "." }}\n'
    assert judged({L: lock.format("1.0.0")}, {L: lock.format("1.1.0")}) == bump.Statements()


def test_builds_of_one_version_are_one():
    lock = '[[package]]\nname = "torch"\nversion = "{0}"\n[[package]]\nname = "torch"\nversion = "{0}+cpu"\n'
    project = '[project]\ndependencies = ["torch=={}"]\n'
    before, after = (
        {L: lock.format(v), P: project.format(v), R: pinned(f"{v}+cu126", "torch")}
        for v in ("2.6.0", "2.7.0")
    )
    bumped = judged(before, after)
    assert bumped == bump.Statements((bump.Move("torch", "2.6.0", "2.7.0", (P, R, L)),))
    assert judged(before, before | {P: f"{before[P]}# x\n"}).pins == {"torch": "2.6.0"}
    (move,) = judged({R: pinned("2.6.0+cpu", "torch")}, {R: pinned("2.6.0+cu126", "torch")}).moves
    assert (move.before, move.after) == ("2.6.0+cpu", "2.6.0+cu126")


def test_a_lock_says_what_a_range_leaves_open():
    before = {P: text_of(P, OLD).replace("==", ">="), L: text_of(L, OLD)}
    after = {P: text_of(P, NEW).replace("==", ">="), L: text_of(L, NEW)}
    bumped = judged(before, after)
    assert bumped.moves == (bump.Move("transformers", OLD, NEW, (L,)),)
    assert bumped.problems == ()


def test_files_that_move_to_other_versions_disagree():
    bumped = judged({R: pinned(OLD), L: text_of(L, OLD)}, {R: pinned(NEW), L: text_of(L, "5.1.0")})
    assert bumped.moves == ()
    assert "disagree" in bumped.problems[0]
    assert R in bumped.problems[0]
    assert L in bumped.problems[0]


def test_a_file_that_stays_behind_is_named():
    bumped = judged({R: pinned(OLD), L: text_of(L, OLD)}, {R: pinned(NEW), L: text_of(L, OLD)})
    assert bumped.moves == (bump.Move("transformers", OLD, NEW, (R,)),)
    assert bumped.notes == ("`uv.lock` still states transformers 4.57.1.",)


def test_two_versions_in_one_file_are_not_chosen_between():
    forked = (
        "transformers==5.2.0; python_version>='3.10'\ntransformers==5.1.0; python_version<'3.10'\n"
    )
    bumped = judged({R: pinned(OLD)}, {R: forked})
    assert bumped.moves == ()
    assert len(bumped.problems) == 1
    one_of_two = judged({R: forked}, {R: forked.replace(NEW, "5.3.0")})
    assert one_of_two.moves == (bump.Move("transformers", NEW, "5.3.0", (R,)),)


def test_a_deleted_and_a_new_file_move_nothing():
    assert judged({R: pinned(OLD)}, {}).notes == (
        "transformers is no longer stated in `requirements.txt`.",
    )
    (note,) = judged({}, {R: pinned(OLD)}).notes
    assert "no earlier version" in note


def test_a_renamed_file_is_the_same_file():
    name = "requirements/main.txt"
    assert judged({R: pinned(OLD)}, {name: pinned(OLD)}).moves == ()
    (move,) = judged({R: pinned(OLD)}, {name: pinned(NEW)}).moves
    assert (move.before, move.after) == (OLD, NEW)


def test_a_pin_that_goes_to_another_file_is_the_same_pin():
    before = {R: pinned(OLD), P: '[project]\nname = "x"\n'}
    (move,) = judged(before, {R: "numpy\n", P: text_of(P, NEW)}).moves
    assert (move.before, move.after, move.files) == (OLD, NEW, (P, R))
    assert judged(before, {R: "numpy\n", P: text_of(P, OLD)}).moves == ()


MATRICES = {
    "flow": "environments: [4.57, 5.x]  # two\nmodels: {}\n",
    "comma": "environments: [4.57, ]\nmodels: {}\n",
    "block": "models: {}\nenvironments:\n- 4.57\n- 5.x\n",
    "indented": "environments:\n  - 4.57  # old\n  - {id: new, transformers: 5.x}\n\nmodels: {}\n",
    "none": "models: {}\n",
}


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_gets_two_environments_more(tmp_path, name):
    path = tmp_path / "matrix.yaml"
    path.write_text(MATRICES[name])
    moves = {"torch": bump.Move("torch", "2.12.0", "2.13.0", (R,))}
    sides = [
        bump._environment(id_, moves, {"transformers": OLD, "tokenizers": "0.22.1"})
        for id_ in (bump.BEFORE, bump.AFTER)
    ]
    written = yaml.safe_load(bump.with_environments(path, sides).read_text())
    before = yaml.safe_load(path.read_text())
    listed = written["environments"]
    assert listed[:2] == [
        {"id": id_, "transformers": OLD, "torch": torch, "packages": ["tokenizers==0.22.1"]}
        for id_, torch in (("before", "2.12.0"), ("after", "2.13.0"))
    ]
    assert listed[2:] == before.get("environments", [])
    assert path.read_text() == MATRICES[name]


def test_what_the_matrix_gets_is_read_by_its_loader(tmp_path):
    path = tmp_path / "matrix.yaml"
    models = "models: {a: {build: {architecture: llama}}}\nreference: '4.57'\n"
    path.write_text(f"environments: ['4.57', 4.57.1, 5.x]\n{models}")
    moves = {"transformers": bump.Move("transformers", OLD, NEW, (R,))}
    sides = [bump._environment(id_, moves, {}) for id_ in (bump.BEFORE, bump.AFTER)]
    file = bump.with_environments(path, sides)
    matrix = load.parse(yamltext.read(file), file)
    assert {"before", "after", "4.57", "4.57.1", "5.x"} == {stack.id for stack in matrix.stacks}


def moved(*moves, **pinned):
    return bump.Statements(tuple(bump.Move(*move, (R,)) for move in moves), pins=pinned)


def test_a_check_compares_releases_of_transformers_alone():
    to_run, bumped = bump._to_run(
        moved(("transformers", NEW, OLD), ("torch", "2.6.0", "2.7.0")), None
    )
    assert to_run == {"from": OLD, "to": NEW}
    assert "goes back" in bumped.notes[0]
    assert "torch is the same on both sides" in bumped.problems[0]
    assert bump._to_run(moved(("torch", "2.6.0", "2.7.0")), None)[0] == {}


def test_what_is_no_release_is_not_run():
    to_run, bumped = bump._to_run(moved(("transformers", OLD, "5.0.0rc1")), None)
    assert to_run == {}
    assert "no release" in bumped.problems[0]
    to_run, bumped = bump._to_run(moved(("torch", "2.6.0+cpu", "2.6.0+cu126")), None)
    assert to_run == {}
    assert "Only the build" in bumped.problems[0]


def test_an_unpinned_transformers_is_said(tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_text(MATRICES["flow"])
    to_run, bumped = bump._to_run(moved(("torch", "2.6.0+cpu", "2.7.0+cpu")), path)
    assert to_run["from"] == "before"
    assert "No file pins transformers" in bumped.notes[0]
    assert '"torch": "2.6.0"' in (tmp_path / bump.MATRIX).read_text()


def test_a_comment_has_the_mark_the_move_and_the_summary(tmp_path):
    report = tmp_path / "report.json"
    report.write_text(render(sample_report()))
    text = bump.comment(moved(("transformers", OLD, NEW)), report, "ci/check", has_run=True)
    assert text.startswith(
        "<!-- samebits bump of ci/check -->\n## samebits: transformers 4.57.1 → 5.2.0\n"
    )
    assert "What changed" in text
    assert len(text) < 65536


def test_a_comment_notifies_nobody():
    problem = bump.fill("@somebody said #12, and me@host")
    text = bump.comment(bump.Statements(problems=(problem,)), None, "ci", has_run=False)
    assert "@somebody" not in text
    assert "#12" not in text
    assert "me@host" in text


def test_only_an_own_comment_is_updated(tmp_path):
    file = tmp_path / "known.json"
    mine = {"id": 7, "user": {"login": bump.AUTHOR}, "body": "<!-- samebits bump of ci/one -->\nx"}
    others = [mine | {"id": 1, "user": {"login": "stranger"}}, mine | {"id": 2, "body": None}]
    file.write_text(json.dumps([others, [mine]]))
    assert bump.own_comment(file, "ci/one") == "7"
    assert bump.own_comment(file, "ci/two") == ""
    file.write_text(json.dumps([others]))
    assert bump.own_comment(file, "ci/one") == ""
    file.write_text('{"message": "Not Found"}')
    with pytest.raises(bump.BumpError, match="no list of comments"):
        bump.own_comment(file, "ci/one")


@pytest.mark.parametrize("job", ["--><script>", "a --> b", "ä\n{}", "", "--"])
def test_no_name_of_a_job_ends_the_mark(job, tmp_path):
    text = bump.comment(bump.Statements(), None, job, has_run=False)
    first = text.splitlines()[0]
    assert re.fullmatch(r"<!-- (?:(?!--|[<>]).)+ -->", first), first
    file = tmp_path / "known.json"
    file.write_text(json.dumps([{"id": 3, "user": {"login": bump.AUTHOR}, "body": text}]))
    assert bump.own_comment(file, job) == "3"


@pytest.mark.processes
def test_both_versions_are_read_from_git(tmp_path, monkeypatch):
    first, second = clone(
        tmp_path, ("one", {R: pinned(OLD), "x.py": ""}), ("two", {R: pinned(NEW), "x.py": "1"})
    )
    git(tmp_path, "checkout", "-q", "-b", "base", first)
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "later on the base")
    monkeypatch.chdir(tmp_path)
    # what the base got since is not of the pull request
    output = tmp_path / "out.txt"
    lines = bump.write_bump(bump.Options(base="base", head=second, output=output))
    assert lines == [f"transformers {OLD} -> {NEW} ({R})"]
    assert output.read_text() == f"moved=true\nrun=true\nfrom={OLD}\nto={NEW}\n"
    assert bump.write_bump(bump.Options(base=first, head="base")) == [
        "none of transformers, torch, tokenizers, accelerate moves",
        "moved=false",
        "run=false",
        "exit-code=0",
    ]


@pytest.mark.processes
def test_a_broken_file_is_no_silence(tmp_path, monkeypatch):
    clone(tmp_path, ("one", {L: text_of(L, OLD)}), ("two", {L: "[["}))
    monkeypatch.chdir(tmp_path)
    said = bump.write_bump(bump.Options())
    assert said[0] == "uv.lock cannot be read, so what it moves is not known."
    assert said[-3:] == ["moved=unknown", "run=false", "exit-code=3"]


@pytest.mark.processes
def test_a_folder_without_a_commit_names_no_depth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(bump.BumpError, match="is in no repository of git"):
        bump.write_bump(bump.Options())
    subprocess.run(["git", "init", "-q"], check=True)
    with pytest.raises(bump.BumpError, match="has no commit yet"):
        bump.write_bump(bump.Options())


@pytest.mark.processes
def test_a_commit_that_is_not_here_names_the_remedy(tmp_path, monkeypatch):
    clone(tmp_path, ("one", {}))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bump.BumpError, match="fetch-depth: 0"):
        bump.write_bump(bump.Options(base="0" * 40))
    with pytest.raises(bump.BumpError, match="no commit"):
        bump.write_bump(bump.Options(base="--all"))
