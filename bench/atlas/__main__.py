"""``nox -s atlas``: compare a tiny model of each type under many releases; writes docs/atlas.md and its pages.

Each run compares some types in all releases with ``--quick``. Then each border, two neighbouring releases between
which a type does more than round, is compared once more, directly and with its cause. All runs share a folder, which
keeps every cell: a further release costs its own cells, and a run that was stopped goes on where it ended. When a rule
changed that names a cause or a side, ``--borders`` compares the borders alone; ``--only`` measures some types again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.atlas import book, pages, plan
from bench.place import WORK, Place
from bench.tiny import matrix
from samebits.records.compat import CompatFile

FOLDER = WORK / "atlas"


def main() -> None:
    """Run what is missing and write data and pages."""
    parser = argparse.ArgumentParser(prog="nox -s atlas --", description=__doc__)
    parser.add_argument("--releases", default=",".join(plan.RELEASES), help="ids, oldest first")
    parser.add_argument("--types", type=int, default=None, help="only the first so many")
    less = parser.add_mutually_exclusive_group()
    less.add_argument(
        "--borders", action="store_true", help="compare again only the borders of the data"
    )
    less.add_argument(
        "--only", metavar="TYPE,…", help="measure these types again, and put them into the data"
    )
    less.add_argument("--pages", action="store_true", help="write the pages from the data alone")
    options = parser.parse_args()
    if options.borders:
        book.write(with_causes(book.read()))
    elif options.only:
        again = measure(options.only.split(","), options.releases.split(","))
        book.write(book.with_models(book.read(), again))
    elif not options.pages:
        book.write(measure(plan.types()[: options.types], options.releases.split(",")))
    pages.write(book.read())


def measure(names: list[str], releases: list[str]) -> CompatFile:
    """Return the atlas of types in releases."""
    parts = plan.parts(names)
    atlas = book.bound(
        compare(matrix(part, releases), FOLDER / "reports" / f"{number:02}", "--quick")
        for number, part in enumerate(parts)
    )
    return with_causes(atlas)


def with_causes(atlas: CompatFile) -> CompatFile:
    """Return an atlas in which each border is compared directly."""
    releases = [release.id for release in atlas.releases]
    compared = [
        compare(
            plan.of_border(part, border, releases[: releases.index(border[1])]),
            FOLDER / "reports" / f"{'-'.join(border)}-{number}",
        )
        for border, hit in book.borders(atlas).items()
        for number, part in enumerate(plan.parts(hit))
    ]
    return book.with_returns(book.with_borders(atlas, compared))


def compare(asked: dict[str, Any], reports: Path, *options: str) -> CompatFile:
    """Return what a run of a matrix shows."""
    words = (*options, "--no-repro", "--format", "compat", "--reports", str(reports))
    took = Place(FOLDER, asked).samebits(*words)
    print(f"{reports.name}: {len(asked['models'])} types in {took.wall:.0f} s", flush=True)
    return CompatFile.model_validate_json((reports / "compat.json").read_bytes())


if __name__ == "__main__":
    main()
