"""Makes and runs tiny models of many types in one release: ``STACK/bin/python inside.py JOB.json``.

The job has ``probes`` (the folder of the probes), ``folder`` (a checkpoint and its inputs for each type), ``kind``
(make or run), ``types``, ``seconds`` (of this call) and ``out`` (lines of JSON, one for each type that is done). A child does
one type after the other, as imports cost more than most types. It has limits of CPU time and memory for each, and the
next child goes on behind the type that ended one.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

JOB = json.loads(Path(sys.argv[1]).read_text("utf-8"))
sys.path.insert(0, JOB["probes"])

import torch
import words  # type: ignore[import-not-found]  # beside this file, which no package imports
from samebits_probe.jobs import auto
from samebits_probe.model import build, choice, load, media_way, outputs
from samebits_probe.process import vision
from samebits_probe.process.failure import in_one_line
from samebits_probe.questions.training import batches

CPU_SECONDS = 30.0
MEMORY = 8 << 30
TYPES_PER_CHILD = 40
TOKENS = 3
NOT_ASKED, NOT_MADE = str(words.NOT_ASKED), str(words.NOT_MADE)
SEED = 1
GREEDY = {"do_sample": False, "num_beams": 1, "max_new_tokens": TOKENS}


class TookTooLongError(BaseException):
    """A type took more CPU time than it may; no handler of Exception is to see it."""


def main() -> None:
    """Do all types that are not done, until the time is over."""
    end = time.monotonic() + JOB["seconds"]
    out = Path(JOB["out"])
    lines = out.read_text("utf-8").splitlines() if out.exists() else []
    done = {(line["kind"], line["type"]) for line in map(json.loads, lines)}
    todo = [(JOB["kind"], name) for name in JOB["types"] if (JOB["kind"], name) not in done]
    with out.open("a", encoding="utf-8") as file:
        while todo and time.monotonic() < end:
            for facts in answers(todo[:TYPES_PER_CHILD], end):
                todo.remove((facts["kind"], facts["type"]))
                file.write(json.dumps(facts) + "\n")
                file.flush()


def answers(tasks: list[tuple[str, str]], end: float) -> Any:
    """Yield what a child says of tasks; of the one during which it ended, that it did."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        child(tasks, end, writing)
    os.close(writing)
    begun = None
    with os.fdopen(reading, encoding="utf-8") as pipe:
        for line in pipe:
            facts = json.loads(line)
            begun = facts if "begun" in facts else None
            if begun is None:
                yield facts
    os.waitpid(pid, 0)
    if begun is not None:
        yield {**begun, "why": "the process ended"}


def child(tasks: list[tuple[str, str]], end: float, pipe: int) -> None:
    """Do tasks in this process, and end it."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGVTALRM, too_long)
    for kind, name in tasks:
        if time.monotonic() > end:
            break
        head = {"kind": kind, "type": name}
        os.write(pipe, (json.dumps({**head, "begun": True}) + "\n").encode())
        os.write(pipe, (json.dumps(head | limited(kind, name)) + "\n").encode())
    os._exit(0)


def too_long(*_: Any) -> None:
    """End what takes too long."""
    raise TookTooLongError


def limited(kind: str, name: str) -> dict[str, Any]:
    """Return what came of one type, within its limits."""
    started = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
        facts = KINDS[kind](name)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except TookTooLongError:
        facts = {"why": f"more than {CPU_SECONDS:.0f} s"}
    except BaseException as error:  # noqa: BLE001  whatever a class does is its answer
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        facts = {"why": in_one_line(error, 300)}
    return facts | {"seconds": round(time.process_time() - started, 2)}


def make(name: str) -> dict[str, Any]:
    """Make the checkpoint of a type, and choose its inputs."""
    made = auto.make(name, SEED)
    facts = {"class": type(made.model).__name__, "plan": made.plan, "extras": made.extras}
    facts["missed"] = list(made.missed)
    if made.refused:
        return facts | {"why": made.refused}
    folder = Path(JOB["folder"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    build.save_seeded(made.model, folder, SEED, 1.0)
    torch.save([*made.prompts], folder / "prompts.pt")
    return facts | {"why": ""}


def run(name: str) -> dict[str, Any]:
    """Run a type's forward, generation and training step; each has its reason, '' where it runs."""
    folder = Path(JOB["folder"]) / name
    if not (folder / "prompts.pt").exists():
        return {"why": NOT_MADE}
    model_source: Any = {"source": str(folder), "revision": None, "trust_remote_code": False}
    variant: Any = {"dtype": "float32", "attention": "default", "device": "cpu"}
    source = load.Source.of(model_source, variant)
    cls = load.class_of(load.load_config(source), source)
    model, _ = load.from_pretrained(cls, source, SEED)
    stored = torch.load(folder / "prompts.pt", weights_only=False)
    prompts = {name: fitting(kwargs, model) for name, kwargs in stored}
    with torch.no_grad():
        for kwargs in prompts.values():
            numbers(model(**kwargs))
    facts = {"why": "", "class": cls.__name__}
    for asked, function in (("generates", generates), ("trains", trains)):
        try:
            facts[asked] = function(model, prompts)
        except Exception as error:  # noqa: BLE001  whatever a class does is its answer
            facts[asked] = in_one_line(error, 300)
    return facts


def fitting(kwargs: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return the arguments that this release takes, as model.feed has them."""
    signature = choice.signature_of(model.forward)
    here = [name for name in choice.IMAGE_NAMES if signature.takes(name)]
    renamed = {
        here[0] if here and name in choice.IMAGE_NAMES and name not in here else name: value
        for name, value in kwargs.items()
    }
    fitted = {name: v for name, v in renamed.items() if signature.takes(name)}
    kinds = media_way.TOKEN_TYPES
    grids = [kind for kind in media_way.TYPES if f"{kind}_grid_thw" in fitted]
    if kinds in signature.names and grids:
        fitted.setdefault(kinds, kinds_of(fitted[choice.TOKENS], grids, model.config, signature))
    return fitted


def kinds_of(
    ids: torch.Tensor, grids: list[str], config: Any, signature: choice.Signature
) -> torch.Tensor:
    """Return 1 for tokens of an image, 2 for those of a video: processors give them since forwards ask for them.

    A video may stand at the tokens of images, as GLM-4V's does.
    """
    kinds = torch.zeros_like(ids)
    for kind, value in media_way.TYPES.items():
        shown = value if kind in grids else media_way.TYPES[grids[0]]
        kinds[ids == media_way.placeholder(kind, config, signature)] = shown
    return kinds


def numbers(output: Any) -> None:
    """Raise unless an output has numbers."""
    if not outputs.has_numbers(output):
        raise ValueError("no finite numbers")


def generates(model: Any, prompts: dict[str, Any]) -> str:
    """Generate a few tokens from the first prompt."""
    if not getattr(model, "can_generate", lambda: False)():
        return NOT_ASKED
    kwargs = {k: v for k, v in next(iter(prompts.values())).items() if k != choice.DECODER}
    model.generate(**kwargs, **GREEDY)
    return ""


def trains(model: Any, prompts: dict[str, Any]) -> str:
    """Compute a loss and its gradients."""
    head = load.head_of(type(model).__name__, encoder_decoder=load.is_encoder_decoder(model))
    try:
        batch = batches.batches(model, head, prompts)[0]
    except (batches.NoLoss, choice.DoesNotApply):
        return NOT_ASKED
    with batches.problem_of(model, batch):
        loss = model.train()(**batch.kwargs).loss
    if loss is None:
        return NOT_ASKED
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if not gradients or not all(bool(torch.isfinite(g).all()) for g in gradients):
        return "no finite gradients"
    return ""


KINDS = {"make": make, "run": run}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    vision.make_importable()
    main()
