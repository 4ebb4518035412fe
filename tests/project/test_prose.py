"""Facts before words: no code outside of the reports matches the sentences that samebits writes.

A match is found in the syntax tree. It is one of these operations:

- a method that cuts or searches a string (``startswith``, ``partition``, ``split`` …) whose first
  argument holds a space: a literal, the fixed part of an f-string, or a constant of any module by its
  name. A separator of our names (`` · ``, `` → ``) holds one, too;
- ``"…" in text`` with such a literal, unless what is searched is a literal collection;
- a pattern of ``re`` with a space, if it is not verbose;
- any of these, whatever the argument, on a name or a field that holds prose (``note``, ``reason``,
  ``headline`` …), or a pattern that is applied to one.

Words of others (torch, Python, Hugging Face) have to be matched, because there is no other sign of what
happened. Such places are in ``ALLOWED``, each with its reason. Python's syntax does not tell whose words a
string holds, so a new place fails this test until somebody decides that.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "samebits"

WRITERS = {"text", "reports"}
"""Packages that make text from text, as for a narrower column."""

METHODS = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "split",
    "rsplit",
    "find",
    "rfind",
    "index",
    "count",
    "replace",
}
PATTERN_FUNCTIONS = {
    "compile",
    "match",
    "search",
    "fullmatch",
    "sub",
    "subn",
    "split",
    "findall",
    "finditer",
}
APPLIED = {"match", "search", "fullmatch", "sub", "findall", "finditer"}
"""Methods of a compiled pattern that take a text."""

PROSE = {"note", "notes", "reason", "reasons", "headline", "evidence", "remark", "where"}
"""Names of fields and variables that hold sentences."""

ALLOWED: dict[str, dict[str, str]] = {
    "base/errors.py": {
        r"""re.compile(f"OSError: \\[Errno (?:{'|'.join(map(str, sorted(MACHINE_ERRORS)))})\\]")""": "Python's own words for an OSError, as a job reports its last exception",
    },
    "base/git.py": {
        "header.endswith(' missing')": "git says it",
        "header.rpartition(' ')": "git says it",
    },
    "bisect/finder.py": {
        "tried.reason.split()": "only blanks are taken out",
    },
    "bisect/history.py": {
        "about.split(' ')": "git wrote it",
    },
    "capsules/trials.py": {
        "f'{trial.error}: {first_line(trial)}'.removesuffix(': ')": "a separator of the text that it makes",
        "raised.partition(': ')": "an exception as Python prints it: class and message",
    },
    "compare/phases.py": {
        r"re.compile(' \\(at [^()]+\\.py:[\\d*]+ in [\\w<>]+\\)')": "the place behind an exception, which two releases that raise the same need not share",
        "phase.removeprefix('trace ')": "the names of phases are keys of the probes, which are read here and nowhere else",
        "phase.removeprefix('trace ').partition(' ')": "as above",
        r"re.compile('(?<=\\btransformers )v?\\d+(?:\\.\\w+)+|(?<=\\btorch )v?\\d+(?:\\.\\w+)+')": "messages of transformers and torch",
        r"re.compile('\\bline \\d+\\b')": "messages of Python",
    },
    "compare/raised.py": {
        r"re.compile('(?:^|: )([A-Z]\\w*(?:Error|Exception)): (.*)', re.DOTALL)": "Python's words: the type and the message of an exception",
        r"re.compile(' \\(at ([^()]+\\.py):(\\d+) in ([\\w<>]+)\\)$')": "the place behind an exception, which a rule names as that of any exception",
    },
    "diagnose/bands.py": {
        "_VERSION.sub('', result.headline)": "the headline of a failure holds the message of another library; only versions are cut",
    },
    "diagnose/exit_code.py": {
        "' '.join(stack.failure.split()).removeprefix(f'environment {stack.id}: ')": "to do: StackReport.failure begins with the stack, which this line names, too",
    },
    "findings/attention.py": {
        "layout.partition(' strides')": "SdpaCall writes dtype, shape and strides of a tensor in this form",
        r"re.compile('\\[([\\d, ]+)\\]')": "the shape in the same form",
    },
    "findings/generation.py": {
        r"re.compile('assert \\w*mask is not None')": "a line of a model's own code",
    },
    "findings/loading.py": {
        "NO_KEYS in trip.reason": "the message of an exception of Python",
    },
    "findings/packages.py": {
        r"re.compile('version of PEFT you are using is not compatible, .* (?:>=|greater than) (?P<least>\\d[\\d.]*\\d)')": "the words of transformers for one that is too old",
        "re.finditer(_NAMED, message)": "the words of transformers and Python for a package that is missing",
    },
    "findings/tokenizers.py": {
        "failure.traceback.partition('During handling of the above exception')": "what Python writes between two exceptions",
        "re.search(_PACKAGE, hidden)": "transformers' words in the first one",
    },
    "findings/tying.py": {
        "NO_KEYS not in trip.reason": "the same message",
    },
    "gate/testing.py": {
        "line.startswith('model name')": "/proc/cpuinfo",
    },
    "manual.py": {
        "text.removesuffix(' (default: %(default)s)')": "argparse's words, which Python 3.11 and 3.12 add to a switch",
    },
    "matrix/yamltext.py": {
        "'expected a single document' in str(error.context)": "messages of PyYAML",
        r"""re.sub("'?<(stream|block) end>'?", 'the end of the \\1', text)""": "messages of PyYAML",
    },
    "pipeline/checkpoints.py": {
        "ended.said.partition(': ')": "the type of the exception that ended a job of the probes",
    },
    "questions/crossings/section.py": {
        "change.partition(': ')": "a changed field as the probe writes it: its name, then both values",
    },
    "questions/texts/compare.py": {
        "operation.startswith(PUT_BACK)": "an operation's name, as the probe makes it",
        "operation.removeprefix(PUT_BACK)": "the same",
    },
    "questions/texts/other_ids.py": {
        "shown_by.parts.split(', ')": "the parts in an operation's name",
    },
    "questions/usage/answers.py": {
        "text.partition(': ')": "an exception as Python prints it: class and message",
    },
    "questions/writes/values.py": {
        "re.compile('… [0-9a-f]+$')": "a long value as the probe writes it: its beginning, then a hash",
    },
    "records/capture.py": {
        "re.compile('does not appear to have a file named|^Error no file named')": "messages of transformers",
    },
    "stacks/build.py": {
        r"re.compile(f'^(class {re.escape(name)}\\b|{re.escape(name)}\\s*=)', re.MULTILINE)": "the source of transformers",
    },
    "stacks/process.py": {
        "re.compile('MemoryError|bad_alloc|annot allocate memory|failed to map segment|No space left|Disk quota|Read-only file system|Input/output error|File too large|Too many open files|Resource temporarily unavailable')": "what Python, the linker and the kernel write",
        "self.said.startswith(_STORE_FAULT)": "the name of an exception, as Python writes it",
        "self.said.removeprefix(_STORE_FAULT)": "the name of an exception, as Python writes it",
    },
    "stacks/source.py": {
        "re.findall('^Requires-Dist: (.+)$', about.decode('utf-8', 'replace'), re.MULTILINE)": "files of transformers, of its setup.py and of a wheel",
        "re.search('^install_requires = \\\\[(.*?)^\\\\]', text, re.MULTILINE | re.DOTALL)": "files of transformers, of its setup.py and of a wheel",
        "re.search('^__version__ = \"([^\"]+)\"', self.text('__init__.py'), re.MULTILINE)": "files of transformers, of its setup.py and of a wheel",
    },
    "terminal/gate.py": {
        "model.reason.split()": "its line ends become blanks",
    },
    "watch/text.py": {
        r"re.compile('^<!-- samebits watch 1: (\\{.*\\}) -->$', re.MULTILINE)": "the mark in an issue, with JSON in it, which the watch reads back from GitHub",
    },
}
"""Module -> operation -> why it is right there, or that it is still to be done."""


def constants() -> dict[str, str]:
    """Return every string that a module of samebits names, by the name."""
    named = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(
                node.value, ast.Constant
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                        named[target.id] = node.value.value
    return named


NAMED = constants()


def fixed_text(node: ast.expr) -> str:
    """Return the text of an argument that is known without running the code."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.Name):
        return NAMED.get(node.id, "")
    if isinstance(node, ast.JoinedStr):
        return "".join(map(fixed_text, node.values))
    if isinstance(node, ast.Tuple):
        return "".join(map(fixed_text, node.elts))
    if isinstance(node, ast.BinOp):
        return fixed_text(node.left) + fixed_text(node.right)
    return ""


def is_prose(node: ast.expr) -> bool:
    """Return True if a name or field, or an element of it, holds sentences."""
    if isinstance(node, ast.Subscript):
        return is_prose(node.value)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in PROSE


def is_match(node: ast.AST) -> bool:
    """Return True if an operation matches prose."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        searched = node.comparators[0]
        if isinstance(searched, (ast.Set, ast.Tuple, ast.List, ast.Dict)):
            return False
        # a constant by its name may be a key, and what is searched a set of keys
        is_literal = isinstance(node.left, (ast.Constant, ast.JoinedStr))
        return (is_literal and " " in fixed_text(node.left)) or is_prose(searched)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    method, receiver = node.func.attr, node.func.value
    if isinstance(receiver, ast.Name) and receiver.id == "re":
        is_verbose = any(ast.unparse(argument) == "re.VERBOSE" for argument in node.args[1:])
        return method in PATTERN_FUNCTIONS and (
            (" " in fixed_text(node.args[0]) and not is_verbose)
            or any(map(is_prose, node.args[1:]))
        )
    if method in METHODS and (is_prose(receiver) or " " in "".join(map(fixed_text, node.args[:1]))):
        return True
    return method in APPLIED and any(map(is_prose, node.args))


def matches(source: str) -> list[str]:
    """Return the operations of a module that match prose."""
    return [ast.unparse(node) for node in ast.walk(ast.parse(source)) if is_match(node)]


def test_no_module_matches_our_sentences():
    found = {
        (path.relative_to(ROOT).as_posix(), operation)
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in WRITERS
        for operation in matches(path.read_text("utf-8"))
    }
    allowed = {(module, operation) for module, of in ALLOWED.items() for operation in of}
    assert found - allowed == set(), "use a field of the record instead"
    assert allowed - found == set(), "these are gone: remove them from ALLOWED"
    assert all(reason for of in ALLOWED.values() for reason in of.values())


@pytest.mark.parametrize(
    "source",
    [
        'item.name.partition(" · ")',
        'item.note.startswith("dtype")',
        'text.startswith("dtype ")',
        'text.startswith(f"{prompt} · layer ")',
        '"meta device" in text',
        '"finite" in step.note',
        'item.name.split(" → ")',
        're.compile(r"^(.*) · layer (\\d+)")',
        "re.search(pattern, finding.where)",
        're.finditer("not found in (.*)", text)',
        "_LAYER.search(item.note)",
        '[r for r in reasons if not reason.endswith("has it")]',
        'finding.where.startswith(("saved", "loaded"))',
    ],
)
def test_the_forms_of_a_match(source):
    assert matches(source)


@pytest.mark.parametrize(
    "source",
    [
        'name.partition(".")',
        'skip.why == "meta device"',
        'outcome in {"not compared", "differs"}',
        "text.split()",
        'step.note or "the bytes differ"',
        'name.endswith(".inv_freq")',
        're.compile(r"\\d+")',
    ],
)
def test_what_is_no_match(source):
    assert matches(source) == []
