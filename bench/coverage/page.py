"""docs/coverage.md and bench/coverage.json: which types run as tiny models, in which releases, and why the others do not."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.coverage.words import NO_CLASS, NO_FORWARD, NOT_ASKED, NOT_MADE

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "bench" / "coverage.json"
PAGE = ROOT / "docs" / "coverage.md"
CONFIRMED = Path(__file__).with_name("confirmed.md")
"""What a plain script says of some verdicts; written by hand."""
ASKED = ("forward", "generation", "training step")

_INTRODUCTION = """\
Written by `nox -s coverage`, which makes a tiny model of each `model_type` as `build: {auto: true}` does, saves it
once, by the oldest release that can, and loads the same bytes in every release that knows the type."""
_PACKAGES = "The environments have {}, without which some classes cannot be made."
_IN_NUMBERS = "{} of {} types with a model class ({} %) run a forward in every release measured that knows them."
_LENGTH = 70
_SHORT = (
    (r"transformers has no model class", "no model class"),
    (rf"(\w+) {NO_FORWARD}", r"\1 has no forward"),
    (r"requires the (\w+) library|No module named '(\w+)'", r"needs \1\2"),
    (r"(\d+) million parameters", r"\1 million parameters at least"),
    (
        r"(samebits makes token ids|which samebits cannot make|samebits cannot tell)",
        "no inputs known",
    ),
    (r"samebits could not find out (how|what)", "no inputs known"),
    (r"transformers \S+ has no class (\w+)", r"no class \1"),
)
"""Pattern of a reason -> the same in short words."""


def short(reason: str) -> str:
    """Return a reason in short words."""
    for pattern, words in _SHORT:
        if found := re.search(pattern, reason):
            return found.expand(words)
    text = re.sub(r"^(NoneMade: )?heads by[^:]*images by \d+: ", "", reason).replace("|", "/")
    text = " ".join(text.split())
    if len(text) <= _LENGTH:
        return text
    # cut between words: a part of a word is none
    return f"{text[: _LENGTH + 1].rpartition(' ')[0] or text[:_LENGTH]} …"


def facts(
    known: dict[str, list[str]],
    done: dict[str, list[dict[str, Any]]],
    packages: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what is committed: for each type its class, who made it, and three answers for each release.

    ``known`` are the types of each release, oldest first, and ``done`` what its processes wrote; ``packages`` are those
    of the environments beside transformers and torch.
    """
    made: dict[str, dict[str, str]] = {}
    for release, lines in done.items():
        for line in lines:
            before = made.get(line["type"])
            if line["kind"] == "make" and (before is None or before["why"]):
                names = {"class": line.get("class", ""), "why": short(line["why"])}
                missed = [short(reason) for reason in line.get("missed", ())]
                made[line["type"]] = names | {
                    "by": "" if line["why"] else release,
                    "missed": missed,
                }
    runs = {
        (release, line["type"]): line
        for release, lines in done.items()
        for line in lines
        if line["kind"] == "run" and line["why"] != NOT_MADE
    }
    types = {
        name: facts
        | {
            "runs": {
                release: _answers(runs.get((release, name)))
                for release, names in known.items()
                if name in names and (release, name) in runs
            }
        }
        for name, facts in sorted(made.items())
    }
    unasked = {r: len(set(names) - set(types)) for r, names in known.items()}
    return {
        "known": {release: len(names) for release, names in known.items()},
        "not_asked": unasked,
        "packages": [*packages],
        "knows": {name: [r for r, names in known.items() if name in names] for name in types},
        "types": types,
    }


def _answers(line: dict[str, Any] | None) -> list[str]:
    assert line is not None, "only runs that were done are asked for"
    if line["why"]:
        return [short(line["why"]), NOT_ASKED, NOT_ASKED]
    return ["", *(short(line.get(asked, NOT_ASKED)) for asked in ("generates", "trains"))]


def has_class(fact: dict[str, Any]) -> bool:
    """Return True for a type with a model class that computes something."""
    return fact["why"] != NO_CLASS and NO_FORWARD not in fact["why"]


def runs_everywhere(name: str, all_facts: dict[str, Any]) -> bool:
    """Return True if a type's forward runs in every release that knows it."""
    runs = all_facts["types"][name]["runs"]
    return all(runs.get(r, [NOT_MADE])[0] == "" for r in all_facts["knows"][name])


def share(all_facts: dict[str, Any]) -> tuple[int, int]:
    """Return how many types run a forward in every release that knows them, of how many that have a class."""
    names = [name for name, fact in all_facts["types"].items() if has_class(fact)]
    return sum(runs_everywhere(name, all_facts) for name in names), len(names)


def text(all_facts: dict[str, Any]) -> str:
    """Return the page."""
    good, total = share(all_facts)
    types = all_facts["types"]
    packages = all_facts.get("packages", ())
    lines = [
        "# Coverage",
        "",
        _INTRODUCTION,
        *([_PACKAGES.format(", ".join(packages))] if packages else []),
        "",
        f"**{_IN_NUMBERS.format(good, total, 100 * good // max(total, 1))}**",
        "",
        *_of_releases(all_facts),
        "",
        *_if_sampled(all_facts),
        f"Of the types whose forward runs, {_without_some(all_facts)} run without an image, a video or a sound that they take.",
        "",
        *CONFIRMED.read_text("utf-8").splitlines(),
        "## Types that do not run",
        "",
        "One reason each: of the release that makes the model, or of the first release whose forward fails.",
        "",
        "| type | class | reason |",
        "|---|---|---|",
        *(
            f"| {name} | {fact['class'] or '-'} | {_reason(name, all_facts)} |"
            for name, fact in types.items()
            if not runs_everywhere(name, all_facts)
        ),
        "",
        "## All types",
        "",
        "F: forward, G: generation, T: training step; a letter that fails is small, a dot does not apply.",
        "",
        f"| type | class | {' | '.join(all_facts['known'])} |",
        f"|---|---|{'---|' * len(all_facts['known'])}",
        *(
            f"| {name} | {fact['class'] or '-'} | {' | '.join(_cells(name, all_facts))} |"
            for name, fact in types.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _if_sampled(all_facts: dict[str, Any]) -> list[str]:
    """Return what to say of a measurement that is not done."""
    left = max(all_facts["not_asked"].values(), default=0)
    if not left:
        return []
    tried = len(all_facts["types"])
    return [f"The {tried} types are a random sample: the measurement goes on where it ended.", ""]


def _without_some(all_facts: dict[str, Any]) -> int:
    """Return how many types run, but not with all kinds of inputs that they take."""
    return sum(bool(fact["missed"]) and not fact["why"] for fact in all_facts["types"].values())


def _of_releases(all_facts: dict[str, Any]) -> list[str]:
    rows = [
        "| release | types it knows | tried here | with a model class | forward | generation | training step |",
        "|---|---|---|---|---|---|---|",
    ]
    for release, n_known in all_facts["known"].items():
        names = [n for n in all_facts["types"] if release in all_facts["knows"][n]]
        with_class = [n for n in names if has_class(all_facts["types"][n])]
        counts: list[Counter[str]] = [Counter(), Counter(), Counter()]
        for name in with_class:
            answers = all_facts["types"][name]["runs"].get(
                release, [NOT_MADE, NOT_ASKED, NOT_ASKED]
            )
            for counter, answer in zip(counts, answers, strict=True):
                counter[answer if answer in {"", NOT_ASKED} else "fails"] += 1
        cells = [f"{c['']} of {c[''] + c['fails']}" for c in counts]
        rows.append(
            f"| {release} | {n_known} | {len(names)} | {len(with_class)} | {' | '.join(cells)} |"
        )
    return rows


def _reason(name: str, all_facts: dict[str, Any]) -> str:
    fact = all_facts["types"][name]
    if fact["why"]:
        return str(fact["why"])
    for release in all_facts["knows"][name]:
        answer = fact["runs"].get(release, ["not run yet"])[0]
        if answer:
            return f"{release}: {answer}"
    return ""


def _cells(name: str, all_facts: dict[str, Any]) -> list[str]:
    fact = all_facts["types"][name]
    cells = []
    for release in all_facts["known"]:
        if release not in all_facts["knows"][name]:
            cells.append("")
        elif release not in fact["runs"]:
            cells.append("f..")
        else:
            answers = fact["runs"][release]
            cells.append(
                "".join(
                    "." if answer == NOT_ASKED else letter if answer == "" else letter.lower()
                    for letter, answer in zip("FGT", answers, strict=True)
                )
            )
    return cells


def read() -> dict[str, Any]:
    """Return the committed facts."""
    facts: dict[str, Any] = json.loads(FACTS.read_text("utf-8"))
    return facts


def write(all_facts: dict[str, Any]) -> None:
    """Write the facts, one line for each type, and the page."""
    types = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(fact, separators=(',', ':'))}"
        for name, fact in all_facts["types"].items()
    )
    head = {key: all_facts[key] for key in ("known", "not_asked", "packages")}
    body = (
        json.dumps(head)[:-1]
        + f',\n "knows": {json.dumps(all_facts["knows"], separators=(",", ":"))}'
    )
    FACTS.write_text(f'{body},\n "types": {{\n{types}\n }}\n}}\n', "utf-8")
    PAGE.write_text(text(all_facts), "utf-8")
