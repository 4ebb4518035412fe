"""Text of the script for one stack: short, because a maintainer reads it first.

The script needs only torch, transformers and the standard library. Names, messages and numbers from
a run are inserted as Python literals or as checked identifiers.
"""

from __future__ import annotations

import re
import textwrap
from pprint import pformat
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from packaging.version import Version

from samebits.capsules.files import STAND_IN
from samebits.records.capsule import script_name
from samebits.stacks.build import release_pattern
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.records.capsule import Fed, Question, Seen
    from samebits.records.ids import Variant

ZerosIn = Literal["model.safetensors", "pytorch_model.bin"]

WIDTH = 88
FOLDER = "checkpoint"
"""Folder next to the scripts with the files of the model."""


class Subject(NamedTuple):
    """The common part of a capsule's scripts."""

    model: str
    variant: Variant
    question: Question
    model_class: str
    """Name of a class in transformers."""
    hub: str | None = None
    """Hub id; None: the checkpoint is in :data:`FOLDER`."""
    revision: str | None = None
    trust_remote_code: bool = False
    class_module: str = ""
    """Module of a class that a package brings; '' for a class of transformers."""
    modules: tuple[str, ...] = ()
    """Modules to import before the load."""
    options: tuple[tuple[str, object], ...] = ()
    """Further arguments of from_pretrained."""
    logits: str | None = None
    """Name of the output that plays the part of the logits; None: the usual one."""
    zeros: ZerosIn | None = None
    """The file of zeros that a script writes in place of the weights; None: it has weights."""


class Installed(NamedTuple):
    """The packages that one script installs."""

    stack: str
    python: str
    packages: dict[str, str]
    """Name -> version of all packages of the lock; a package from git has its address there."""
    wheels: Mapping[str, str] = MappingProxyType({})
    """Name -> name of a wheel beside the script."""

    @property
    def transformers(self) -> str:
        """The release of transformers."""
        return self.packages["transformers"]


class Expectation(NamedTuple):
    """The result that a script expects, and hints for a different one."""

    sees: Seen
    other: Seen
    other_stack: str
    cpu: str
    """CPU capability of the measurement."""
    first_index: tuple[int, ...] | None = None
    """Index of the first element that differs."""


def script(subject: Subject, installed: Installed, expectation: Expectation | None = None) -> str:
    """Return the text of a script. Without an expectation, for a trial, it only measures."""
    blocks = [
        header(installed),
        _docstring(subject, installed),
        *_imports(subject, expectation),
        _constants(subject, expectation),
        _threads(subject.question.threads),
    ]
    functions = [_measure(subject, installed)]
    feed = subject.question.feed.values()
    functions[:0] = [_SEEDED] if any(fed.seed is not None for fed in feed) else []
    functions[:0] = [_TENSOR] if any(fed.data for fed in feed) else []
    if subject.zeros is not None:
        functions.insert(0, _WRITE_WEIGHTS[subject.zeros])
    if expectation is not None:
        functions += (
            [_main(subject, expectation)]
            if expectation.sees.error
            else [_SHA256, _main(subject, expectation)]
        )
    text = "\n\n".join(blocks) + "\n\n\n" + "\n\n\n".join(functions)
    return f"{text}\n"


def _threads(number: int) -> str:
    """Return the lines that set the threads, as probes/samebits_probe/process/threads.py does."""
    if number == 1:
        return "torch.set_num_threads(1)  # more threads sum in a different order"
    return "\n".join(
        [
            f"torch.set_num_threads({number})  # another number sums in a different order",
            "# else several threads add to one element in a random order",
            "torch.use_deterministic_algorithms(True, warn_only=True)",
            "torch.utils.deterministic.fill_uninitialized_memory = False",
        ]
    )


def header(installed: Installed) -> str:
    """Return the inline metadata (PEP 723) with the whole lock, torch and transformers first.

    A local build such as ``+cpu`` is not on a public index, so its public version is pinned.
    """
    pins = {name: _pin(name, version) for name, version in installed.packages.items()}
    first = [pins.pop(name) for name in ("torch", "transformers")]
    rest = " ".join(pin for _, pin in sorted(pins.items()) if "://" not in pin)
    # a line must not end inside of an address
    addresses = [pin for _, pin in sorted(pins.items()) if "://" in pin]
    lines = [
        "/// script",
        f'requires-python = "=={release_pattern(installed.python)}"',
        "dependencies = [",
        *(f"    {pin}" for pin in first),
        "    # and the other packages of the measured environment:",
        *(f"    {line}" for line in textwrap.wrap(rest, WIDTH - 6, break_on_hyphens=False)),
        *(f"    {pin}" for pin in addresses),
        "]",
        *(["", "[tool.uv.sources]"] if installed.wheels else []),
        *(f'{name} = {{ path = "{wheel}" }}' for name, wheel in sorted(installed.wheels.items())),
        "///",
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _pin(name: str, version: str) -> str:
    if "://" in version:
        return f'"{name} @ {version}",'
    return f'"{name}=={_public_version(version)}",'


def _literal(text: str) -> str:
    """Return an ASCII Python literal, in double quotes if they need no escape."""
    literal = ascii(text)
    if literal[0] == '"' or '"' in literal:
        return literal
    body = literal[1:-1]
    return f'"{body}"'


def _public_version(version: str) -> str:
    return Version(version).public


def _docstring(subject: Subject, installed: Installed) -> str:
    question = subject.question
    computed = {
        "forward": "the logits of one forward",
        "generate": f"the logits of {plural(question.steps, 'greedy step')} with the KV cache",
        "parameter": "a parameter after loading",
        "buffer": "a buffer after loading",
    }
    return (
        f'"""{subject.model} under transformers {installed.transformers}: '
        f"{computed[question.kind]}.\n\n"
        f"Run it with `uv run {script_name(installed.stack)}`. It exits with 0 if the result is "
        'as expected, else with 1.\n"""'
    )


def _imports(subject: Subject, expectation: Expectation | None) -> list[str]:
    standard = ["import hashlib", "import sys"] if expectation else []
    if expectation and expectation.sees.error:
        standard = ["import sys", "import traceback"]
    if expectation and _is_unstable(expectation):
        standard += ["import os", "import subprocess"]
    if any(fed.seed is not None for fed in subject.question.feed.values()):
        standard += ["import hashlib", "import math"]
    if any(fed.data for fed in subject.question.feed.values()):
        standard += ["import base64"]
    if subject.zeros is not None:
        standard += ["import json", "import os", "import tempfile"]
    local = ["from pathlib import Path"] if subject.hub is None else []
    foreign = ["import torch", "import transformers"]
    own = [f"import {name}  # registers the model" for name in subject.modules]
    if subject.class_module:
        own.append(f"from {subject.class_module} import {subject.model_class}")
    blocks = [[*sorted(set(standard)), *local], foreign, own]
    return ["\n".join(block) for block in blocks if block]


def _constants(subject: Subject, expectation: Expectation | None) -> str:
    where = f'Path(__file__).parent / "{FOLDER}"' if subject.hub is None else _literal(subject.hub)
    lines = [f"CHECKPOINT = {where}"]
    for key, fed in subject.question.feed.items():
        if fed.is_rows:
            lines.append(_assignment(_name(key), [list(row) for row in fed.rows]))
        elif fed.data:
            lines.append(_text_assignment(_name(key), fed.data))
    if subject.question.real is not None:
        lines.append(
            _assignment("REAL", list(subject.question.real))
            + "  # range of positions of each row that are not padding"
        )
    if subject.question.before:
        earlier = [{key: _rows(fed) for key, fed in f.items()} for f in subject.question.before]
        lines.append(_assignment("EARLIER", earlier))
    if expectation is not None:
        lines += _expected_constants(expectation)
    return "\n".join(lines)


def _rows(fed: Fed) -> list[list[int]]:
    return [list(row) for row in fed.rows]


def _expected_constants(expectation: Expectation) -> list[str]:
    if expectation.sees.error:
        message = (
            [f"MESSAGE = {_literal(expectation.sees.message)}"] if expectation.sees.message else []
        )
        return [f"EXPECTED = {_literal(expectation.sees.error)}", *message]
    if expectation.sees.unstable:
        return ['EXPECTED = "different bits for different content of unwritten memory"']
    assert expectation.sees.sha256
    other_hash = "" if expectation.other.unstable else expectation.other.sha256
    lines = [f'EXPECTED = "{expectation.sees.sha256}"']
    name = script_name(expectation.other_stack)
    return [*lines, f'OTHER = "{other_hash}"  # the result of {name}'] if other_hash else lines


def _assignment(name: str, value: object) -> str:
    text = pformat(value, width=WIDTH - 4, compact=True)
    if "\n" not in text and len(name) + 3 + len(text) <= WIDTH:
        return f"{name} = {text}"
    return f"{name} = {text[0]}\n    {text[1:-1].replace(chr(10), chr(10) + '   ')},\n{text[-1]}"


def _measure(subject: Subject, installed: Installed) -> str:
    question = subject.question
    lines = [
        "def measure():",
        f'    """Return {_result_words(question)}."""',
        *(["    write_weights()"] if subject.zeros is not None else []),
        "    torch.manual_seed(0)",
        *_load(subject, installed),
    ]
    body = {"forward": _forward, "generate": _generate}.get(question.kind, _tensor)
    return "\n".join([*lines, *body(subject)])


def _result_words(question: Question) -> str:
    if question.kind == "forward":
        return (
            "the logits"
            if question.real is None
            else "the logits of the positions that are not padding"
        )
    if question.kind == "generate":
        return "the logits of every step, [steps, vocabulary]"
    return f"the {question.kind}"


def _load(subject: Subject, installed: Installed) -> list[str]:
    keyword = "dtype" if Version(installed.transformers) >= Version("4.57") else "torch_dtype"
    arguments = ["CHECKPOINT", f"{keyword}=torch.{subject.variant.dtype}"]
    if subject.revision is not None:
        arguments.insert(1, f"revision={_literal(subject.revision)}")
    if subject.variant.attention != "default":
        arguments.append(f"attn_implementation={_literal(subject.variant.attention)}")
    if subject.trust_remote_code:
        arguments.append("trust_remote_code=True")
    for name, value in subject.options:
        assert name.isidentifier()
        arguments.append(f"{name}={_literal(value) if isinstance(value, str) else ascii(value)}")
    assert subject.model_class.isidentifier()
    owner = "" if subject.class_module else "transformers."
    call = f"    model = {owner}{subject.model_class}.from_pretrained("
    tail = ").eval()"
    line = f"{call}{', '.join(arguments)}{tail}"
    if len(line) <= WIDTH:
        return [line]
    return [call, f"        {', '.join(arguments)}", f"    {tail}"]


def _output(subject: Subject) -> str:
    """Return the expression behind forward's call that takes the logits out of its result."""
    if subject.logits is None:
        has_head = "For" in subject.model_class or "Head" in subject.model_class
        return ".logits" if has_head else "[0]"
    first, *path = re.findall(r"\w+", subject.logits)
    return "".join(f"[{part}]" if part.isdigit() else f'["{part}"]' for part in (first, *path))


def _forward(subject: Subject) -> list[str]:
    question = subject.question
    output = _output(subject)
    lines = ["    with torch.no_grad():"]
    if question.before:
        lines += _earlier_forwards(subject)
    lines += _call(f"        {'logits =' if question.real else 'return'} model(", subject, output)
    if question.real is not None:
        lines.append(
            "    return torch.cat([logits[i, start:stop] for i, (start, stop) in enumerate(REAL)])"
        )
    return lines


def _earlier_forwards(subject: Subject) -> list[str]:
    assert all(fed.is_rows for feed in subject.question.before for fed in feed.values())
    return [
        "        for fed in EARLIER:",
        "            model(**{key: torch.tensor(rows) for key, rows in fed.items()})",
    ]


def _generate(subject: Subject) -> list[str]:
    question = subject.question
    lines = ["    with torch.no_grad():", *_earlier_forwards(subject)] if question.before else []
    options = [
        f"max_new_tokens={question.steps}",
        "do_sample=False",
        "num_beams=1",
        "output_logits=True",
        "return_dict_in_generate=True",
    ]
    return [
        *lines,
        "    output = model.generate(",
        *(f"        {argument}," for argument in _arguments(subject)),
        f"        {', '.join(options[:3])},",
        f"        {', '.join(options[3:])},",
        "    )",
        f"    return torch.stack([step[{question.row}] for step in output.logits])",
    ]


def _tensor(subject: Subject) -> list[str]:
    name = _literal(subject.question.tensor)
    return [f"    return model.get_{subject.question.kind}({name}).detach()"]


def _call(start: str, subject: Subject, end: str) -> list[str]:
    arguments = _arguments(subject)
    line = f"{start}{', '.join(arguments)}){end}"
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(start) - len(start.lstrip()))
    return [start, *(f"{indent}    {argument}," for argument in arguments), f"{indent}){end}"]


def _arguments(subject: Subject) -> list[str]:
    return [f"{key}={_value(key, fed, subject)}" for key, fed in subject.question.feed.items()]


def _value(key: str, fed: Fed, subject: Subject) -> str:
    if fed.constant:
        return fed.constant
    if fed.data:
        return f"tensor({_name(key)}, torch.{fed.dtype}, {list(fed.shape)})"
    if fed.seed is None:
        return f"torch.tensor({_name(key)})"
    cast = "" if subject.variant.dtype == "float32" else f".to(torch.{subject.variant.dtype})"
    return f"seeded({_literal(fed.seed)}, {list(fed.shape)}){cast}"


def _name(key: str) -> str:
    """Return the constant of an argument, which is none of the script's own."""
    return f"{key.upper()}_" if key.upper() in _OWN_NAMES else key.upper()


def _text_assignment(name: str, text: str) -> str:
    width = WIDTH - 6
    chunks = [text[start : start + width] for start in range(0, len(text), width)]
    return "\n".join([f"{name} = (", *(f'    "{chunk}"' for chunk in chunks), ")"])


_OWN_NAMES = frozenset({"CHECKPOINT", "EARLIER", "EXPECTED", "FIRST", "MESSAGE", "OTHER", "REAL"})

_TENSOR = '''\
def tensor(data, dtype, shape):
    """Return the tensor whose bytes are in base64."""
    return torch.frombuffer(bytearray(base64.b64decode(data)), dtype=dtype).reshape(shape)'''

_SEEDED = '''\
def seeded(name, shape):
    """Return numbers in -1..1 made from hashes of a name, 24 bits of each word."""
    n = math.prod(shape)
    blocks = (hashlib.sha256(f"{name}:{i}".encode()).digest() for i in range(-(-n // 8)))
    words = torch.frombuffer(bytearray(b"".join(blocks)), dtype=torch.int32)[:n]
    return ((words >> 8).float() / 2**23).reshape(shape)'''

_WRITE_WEIGHTS: dict[ZerosIn, str] = {
    "model.safetensors": f'''\
def write_weights():
    """Write zeros in place of the weights, because their values do not matter here."""
    header = (CHECKPOINT / "{STAND_IN}").read_bytes()
    tensors = json.loads(header).items()
    n_bytes = max(entry["data_offsets"][1] for name, entry in tensors if name != "__metadata__")
    with tempfile.NamedTemporaryFile(dir=CHECKPOINT, delete=False) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + n_bytes)  # sparse: it takes no space on most disks
    os.replace(file.name, CHECKPOINT / "model.safetensors")''',
    "pytorch_model.bin": f'''\
def write_weights():
    """Write zeros in place of the weights, because their values do not matter here."""
    dtypes = {{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}}
    dtypes |= {{"I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}}
    tensors = json.loads((CHECKPOINT / "{STAND_IN}").read_text("utf-8"))
    zeros = {{
        # the file holds one number for each tensor
        name: torch.zeros((), dtype=getattr(torch, dtypes[entry["dtype"]])).expand(entry["shape"])
        for name, entry in tensors.items()
        if name != "__metadata__"
    }}
    with tempfile.NamedTemporaryFile(dir=CHECKPOINT, delete=False) as file:
        torch.save(zeros, file)
    os.replace(file.name, CHECKPOINT / "pytorch_model.bin")''',
}
"""Two scripts may share the folder, so the complete file is moved into place."""

_SHA256 = '''\
def sha256(tensor):
    """Return the hash of dtype, shape and bytes."""
    dtype, shape = str(tensor.dtype).removeprefix("torch."), ",".join(map(str, tensor.shape))
    data = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"samebits-tensor-1\\0{dtype}\\0{shape}\\0".encode() + data).hexdigest()'''

_VERSIONS = """\
    print(
        f"transformers {transformers.__version__}, torch {torch.__version__}, "
        f"CPU capability {torch.backends.cpu.get_cpu_capability()}"
    )"""


def _is_unstable(expectation: Expectation) -> bool:
    return expectation.sees.unstable or expectation.other.unstable


def _main(subject: Subject, expectation: Expectation) -> str:
    if expectation.sees.error:
        return _failure_main(expectation)
    if _is_unstable(expectation):
        return _instability_main(expectation)
    name = subject.question.what
    prints = [] if expectation.first_index is None else [_print_elements(expectation.first_index)]
    if subject.question.kind == "generate":
        prints.append('    print("tokens", result.argmax(-1).tolist())')
    if_other = (
        [
            "    if digest == OTHER:",
            f'        sys.exit("unexpected: these are the bits of {_other_script(expectation)}")',
        ]
        if expectation.other.ref is not None
        else []
    )
    return "\n".join(
        [
            'if __name__ == "__main__":',
            _VERSIONS,
            "    result = measure()",
            "    digest = sha256(result)",
            f'    print({_literal(name)}, result.dtype, list(result.shape), "sha256", digest)',
            *prints,
            *if_other,
            "    if digest != EXPECTED:",
            *_hint(expectation),
            '    print("as expected")',
        ]
    )


def _other_script(expectation: Expectation) -> str:
    return script_name(expectation.other_stack)


def _hint(expectation: Expectation) -> list[str]:
    return [
        "        sys.exit(",
        '            "unexpected bits: they also depend on the CPU\'s instructions "',
        f"            {_literal(f'(measured with {expectation.cpu}) and on the build of torch')}",
        "        )",
    ]


def _print_elements(index: tuple[int, ...]) -> str:
    """Return the line that prints some elements, starting at the first that differs."""
    *outer, last = index
    place = ", ".join([*map(str, outer), f"{last}:{last + 4}"])
    return f'    print("[{place}] =", result[{place}].tolist())'


def _failure_main(expectation: Expectation) -> str:
    same = "type(error).__name__ == EXPECTED"
    if expectation.sees.message:
        same += " and MESSAGE in str(error)"
    return "\n".join(
        [
            'if __name__ == "__main__":',
            _VERSIONS,
            "    try:",
            "        measure()",
            "    except Exception as error:",
            "        traceback.print_exc()",
            f"        if {same}:",
            '            print("as expected:", EXPECTED)',
            "            sys.exit(0)",
            '        sys.exit(f"unexpected: a different exception; expected {EXPECTED}")',
            '    sys.exit(f"unexpected: no exception; expected {EXPECTED}")',
        ]
    )


def _instability_main(expectation: Expectation) -> str:
    """Return a main that measures three times in new processes, twice with one heap pattern.

    The bytes are those of probes/samebits_probe/model/heap.py. A glibc tunable replaces its call of
    mallopt.
    """
    verdict = (
        ["    if first == other:", '        sys.exit("unexpected: the same bits both times")']
        if expectation.sees.unstable
        else ["    if {first, other} != {EXPECTED}:", *_hint(expectation)]
    )
    return "\n".join(
        [
            _FILLED,
            "",
            "",
            'if __name__ == "__main__":',
            '    if sys.argv[1:] == ["once"]:',
            "        print(sha256(measure()))",
            "        sys.exit(0)",
            _VERSIONS,
            "    first, again, other = filled(0x3F), filled(0x3F), filled(0xC0)",
            '    print("unwritten memory filled with 0x3f:", first)',
            '    print("unwritten memory filled with 0x3f:", again)',
            '    print("unwritten memory filled with 0xc0:", other)',
            "    if first != again:",
            '        sys.exit("unexpected: different bits for the same content of unwritten memory")',
            *verdict,
            '    print("as expected")',
        ]
    )


_FILLED = '''\
def filled(byte):
    """Return the hash that a new process gets if malloc fills memory with ``byte``."""
    # glibc fills with the complement; blocks of its thread cache would stay unfilled
    tunables = f"glibc.malloc.perturb={byte ^ 0xFF}:glibc.malloc.tcache_count=0"
    tunables += ":glibc.malloc.mmap_max=0"  # mapped memory is always zero
    command = [sys.executable, __file__, "once"]
    environment = os.environ | {"GLIBC_TUNABLES": tunables}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.split()[-1]'''
