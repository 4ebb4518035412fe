"""Clones of a tiny transformers, with a commit for each state of its files."""

import subprocess

FOLDER = "src/transformers"


def git(folder, *words):
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def source(version="5.16.0.dev0", **files):
    """Return the files of a transformers, by path; ``files`` are modules of it."""
    needed = 'deps = {"numpy": "numpy>=1.17", "tokenizers": "tokenizers>=0.22,<0.24"}\n'
    checked = 'pkgs_to_check_at_runtime = ["python", "numpy"]\n'
    package = {
        "__init__.py": f'__version__ = "{version}"\n',
        "dependency_versions_table.py": needed,
        "dependency_versions_check.py": checked,
        **{f"{name}.py": text for name, text in files.items()},
    }
    return {f"{FOLDER}/{path}": text for path, text in package.items()}


def write(folder, files):
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")


def clone(folder, *commits):
    """Make a clone with commits, each a title and the files that it writes; return their shas."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    shas = []
    for title, files in commits:
        write(folder, files)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", title)
        shas.append(git(folder, "rev-parse", "HEAD"))
    return shas
