"""GitHub Actions on this machine: the steps of a workflow or an action, run as they are written.

``run:`` steps run in bash as the runner does it. ``uses:`` steps are only noted, but for an action of
this repository. What the service does around them (contexts, files of a step, ``if``) is here.
"""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SELF = "./.samebits-action"
"""Where the reusable workflow has its own repository."""

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_TOKEN = re.compile(r"'(?:[^']|'')*'|[A-Za-z_][\w.-]*(?:\(\))?|&&|\|\||==|!=|!|[()]|\S")

FAKE_UV = """\
import os, subprocess, sys
words = sys.argv[1:]
assert words[:3] == ["tool", "run", "--from"] and words[4] == "samebits", words
assert (os.path.exists(os.path.join(words[3], "action.yml"))), words[3]
with open(os.environ["FAKE_LOG"], "a") as log:
    print(repr(words[5:]), file=log)
program = os.environ["FAKE_SAMEBITS"].split(os.pathsep)
sys.exit(subprocess.run([*program, *words[5:]]).returncode)
"""

FAKE_GH = """\
import argparse, json, os, sys
store = os.environ["FAKE_ISSUES"]
issues = json.load(open(store)) if os.path.exists(store) else {"labels": [], "issues": []}
assert os.environ["GH_TOKEN"] and os.environ["GH_REPO"] == "someone/project"
if sys.argv[1:2] == ["api"]:
    words = sys.argv[2:]
    method = words.pop(words.index("--method") + 1) if "--method" in words else "GET"
    comments = issues.setdefault("comments", [])
    place = next(word for word in words if word.startswith("repos/"))
    start = "repos/someone/project/issues/"
    if os.environ.get("FAKE_REFUSED") == method:
        sys.exit("gh: Resource not accessible by integration (HTTP 403)")
    if method == "GET":
        assert place == start + "5/comments?per_page=100" and {"--paginate", "--slurp"} <= {*words}
        print(json.dumps([comments[:1], comments[1:]]))
        sys.exit()
    field, _, path = words[words.index("--field") + 1].partition("=@")
    body = open(path).read()
    assert field == "body" and len(body) < 65536
    if method == "POST":
        assert place == start + "5/comments"
        new = {"id": len(comments) + 1, "user": {"login": "github-actions[bot]"}, "body": body}
        comments.append(new)
    else:
        assert method == "PATCH"
        (found,) = [c for c in comments if place == start + f"comments/{c['id']}"]
        found["body"] = body
        found["updated"] = found.get("updated", 0) + 1
    json.dump(issues, open(store, "w"))
    sys.exit()
parser = argparse.ArgumentParser(allow_abbrev=False)
kinds = parser.add_subparsers(dest="kind", required=True)
issue = kinds.add_parser("issue").add_subparsers(dest="what", required=True)
listed = issue.add_parser("list", allow_abbrev=False)
for name in ("--label", "--state", "--limit", "--json"):
    listed.add_argument(name, required=True)
created = issue.add_parser("create", allow_abbrev=False)
for name in ("--title", "--label", "--body-file"):
    created.add_argument(name, required=True)
for name, option in (("edit", "--body-file"), ("close", "--comment")):
    changed = issue.add_parser(name, allow_abbrev=False)
    changed.add_argument("number", type=int)
    changed.add_argument("--title")
    changed.add_argument(option, required=True)
label = kinds.add_parser("label").add_subparsers(dest="what", required=True)
made = label.add_parser("create", allow_abbrev=False)
made.add_argument("name")
made.add_argument("--description")
made.add_argument("--force", action="store_true")
asked = parser.parse_args()
if asked.kind == "label":
    issues["labels"] = sorted({*issues["labels"], asked.name})
elif asked.what == "create":
    assert asked.label in issues["labels"], "gh: could not add label: not found"
    body = open(asked.body_file).read()
    assert len(body) < 65536
    new = {"title": asked.title, "body": body, "state": "OPEN", "label": asked.label}
    new |= {"stateReason": None, "number": len(issues["issues"]) + 1}
    issues["issues"].append(new)
    print("https://github.com/someone/project/issues/1")
elif asked.what in ("edit", "close"):
    (found,) = [i for i in issues["issues"] if i["number"] == asked.number]
    if asked.what == "edit":
        found |= {"title": asked.title, "body": open(asked.body_file).read()}
    else:
        found |= {"state": "CLOSED", "stateReason": "COMPLETED", "comment": asked.comment}
else:
    assert asked.state == "all"
    fields = asked.json.split(",")
    found = [i for i in issues["issues"] if i["label"] == asked.label][: int(asked.limit)]
    print(json.dumps([{f: i[f] for f in fields} for i in found]))
json.dump(issues, open(store, "w"))
"""


class StepFailed(Exception):  # noqa: N818  the runner's word
    """A step ended with another code than 0."""

    def __init__(self, name, code, output):
        super().__init__(f"{name}: exit code {code}\n{output}")
        self.name, self.code, self.output = name, code, output


class Service:
    """What GitHub has between two runs: issues, and the folders of one project."""

    def __init__(self, folder, program, **environ):
        self.workspace = folder / "workspace"
        self.temporary = folder / "temporary"
        self.summary = folder / "summary.md"
        self.log = folder / "commands.log"
        self.store = folder / "issues.json"
        bin = folder / "bin"
        for path in (self.workspace, self.temporary, bin):
            path.mkdir(parents=True, exist_ok=True)
        for name, text in (("uv", FAKE_UV), ("gh", FAKE_GH)):
            path = bin / name
            path.write_text(f"#!{sys.executable}\n{text}")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (self.workspace / SELF).symlink_to(ROOT, target_is_directory=True)
        self.environ = {
            "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temporary),
            "RUNNER_OS": "Linux",
            "RUNNER_ARCH": "X64",
            "FAKE_LOG": str(self.log),
            "FAKE_ISSUES": str(self.store),
            "FAKE_SAMEBITS": os.pathsep.join(program),
        } | environ

    @property
    def issues(self):
        return json.loads(self.store.read_text())["issues"] if self.store.exists() else []

    @property
    def comments(self):
        return json.loads(self.store.read_text()).get("comments", []) if self.store.exists() else []

    def close_issues(self):
        stored = json.loads(self.store.read_text())
        for issue in stored["issues"]:
            issue["state"] = "CLOSED"
        self.store.write_text(json.dumps(stored))

    @property
    def commands(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


class Run:
    """One run of a workflow or an action."""

    def __init__(self, service, *, matched_key="", event=None, job="samebits"):
        self.service = service
        self.event = event or {}
        self.job = job
        self.used = []
        """``uses:`` of other repositories, with what they got."""
        self.output = ""
        self.matched_key = matched_key

    def action(self, **inputs):
        """Run action.yml; return its outputs."""
        return self._composite(inputs)

    def workflow(self, **inputs):
        """Run the job of the reusable workflow; return its outputs."""
        document = read(ROOT / ".github" / "workflows" / "samebits.yml")
        declared = document["on"]["workflow_call"]["inputs"]
        (job,) = document["jobs"].values()
        context = {"inputs": _filled(declared, inputs), "steps": {}, **self._contexts()}
        self._steps(job["steps"], context)
        return {name: _text(value, context) for name, value in job["outputs"].items()}

    def _composite(self, inputs):
        document = read(ROOT / "action.yml")
        # the inputs of an action are texts
        filled = {k: str(v) for k, v in _filled(document["inputs"], inputs).items()}
        context = {"inputs": filled, "steps": {}, **self._contexts()}
        self._steps(document["runs"]["steps"], context)
        return {name: _text(o["value"], context) for name, o in document["outputs"].items()}

    def _contexts(self):
        return {
            "github": {
                "action_path": str(self.service.workspace / SELF),
                "token": "secret",
                "repository": "someone/project",
                "server_url": "https://github.com",
                "run_id": "7",
                "workflow": "newest",
                "job": self.job,
                "event": self.event,
            },
            "job": {"workflow_repository": "owner/samebits", "workflow_sha": "0" * 40},
        }

    def _steps(self, steps, context):
        failure = None
        for step in steps:
            condition = str(step.get("if", "success()"))
            if "always()" not in condition and failure is not None:
                continue
            if not _value(condition.removeprefix("${{").removesuffix("}}"), context):
                continue
            try:
                outputs = self._step(step, context)
            except StepFailed as error:
                failure = failure or error
                outputs = {}
            if "id" in step:
                context["steps"][step["id"]] = {"outputs": outputs}
        if failure is not None:
            raise failure

    def _step(self, step, context):
        if "run" in step:
            return self._run(step, context)
        given = {k: _text(v, context) for k, v in step.get("with", {}).items()}
        if step["uses"] == SELF:
            return self._composite(given)
        self.used.append((step["uses"].partition("@")[0], given))
        is_cache = step["uses"].startswith("actions/cache/restore")
        return {"cache-matched-key": self.matched_key} if is_cache else {}

    def _run(self, step, context):
        """Run a step in bash; return its outputs."""
        assert "${{" not in step["run"], "a value in a script could be a command: use env"
        script = self.service.temporary / "script.sh"
        outputs = self.service.temporary / "outputs"
        script.write_text(step["run"])
        outputs.write_text("")
        own = {name: _text(value, context) for name, value in step.get("env", {}).items()}
        files = {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(self.service.summary)}
        assert step["shell"] == "bash"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.service.workspace / _text(step.get("working-directory", "."), context),
            env=self.service.environ | own | files,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.output += done.stdout
        if done.returncode:
            raise StepFailed(step["name"], done.returncode, done.stdout)
        return dict(line.split("=", 1) for line in outputs.read_text().splitlines())


def read(path):
    """Return a YAML file as GitHub reads it: ``on`` is a key, and no truth value."""
    document = yaml.safe_load(path.read_text("utf-8"))
    return {("on" if key is True else key): value for key, value in document.items()}


def _filled(declared, inputs):
    assert set(inputs) <= set(declared), f"no such input: {set(inputs) - set(declared)}"
    return {name: inputs.get(name, d.get("default", "")) for name, d in declared.items()}


def _text(template, context):
    """Return a text with its expressions filled in."""

    def filled(match):
        value = _value(match[1], context)
        return str(value).lower() if isinstance(value, bool) else str(value)

    return _EXPRESSION.sub(filled, str(template))


def _value(expression, context):
    """Return the value of an expression; a property that is not there is empty."""
    words = []
    for token in _TOKEN.findall(expression):
        if token in ("always()", "success()"):
            words.append("True")
        elif token[0] == "'" or token in ("(", ")", "==", "!="):
            words.append(token)
        elif token in ("&&", "||", "!"):
            words.append({"&&": "and", "||": "or", "!": "not"}[token])
        else:
            words.append(repr(_property(token, context)))
    return eval(" ".join(words), {"__builtins__": {}})


def _property(path, context):
    first, *rest = path.split(".")
    assert first in context, f"no such context: {path}"
    value = context[first]
    for part in rest:
        value = value.get(part, "") if isinstance(value, dict) else ""
    return value
