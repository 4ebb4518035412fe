"""What every run begins with, and ends with: matrix and plan, stores, and the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from samebits.base.errors import shown
from samebits.base.filestate import Dependencies
from samebits.base.redaction import Redaction
from samebits.base.workfolder import keep_from_git
from samebits.matrix import load, releases
from samebits.matrix.added import with_added_packages
from samebits.matrix.levels import at_level
from samebits.matrix.plan import Plan, plan
from samebits.matrix.spec import Matrix, StackSpec
from samebits.pipeline import early, shards
from samebits.pipeline.order import Order
from samebits.pipeline.scheduler import Scheduler
from samebits.pipeline.scope import Scope
from samebits.reports import owned
from samebits.stacks.build import StackBuilder
from samebits.stacks.installer import Installer
from samebits.stacks.places import stacks_folder
from samebits.storage.objects import Objects, shown_address
from samebits.storage.objects import opened as opened_objects
from samebits.storage.shared import SharedStore
from samebits.storage.sharing import Sharing
from samebits.storage.store import Store
from samebits.terminal.progress import Progress


@asynccontextmanager
async def opened(
    order: Order,
    environ: Mapping[str, str],
    progress: Callable[[int], Progress],
    dependencies: Dependencies | None = None,
    matrix: Matrix | None = None,
) -> AsyncIterator[Scheduler]:
    """Yield the scheduler of a run, of all cells or of those of a shard; close it at the end."""
    dependencies = dependencies or Dependencies()
    matrix, whole = await planned(order, environ, progress, dependencies, matrix)
    part = whole if order.shard is None else shards.part(whole, *order.shard)
    if order.reports is not None and order.shard is None:
        owned.check(order.reports, part, order.formats)
    objects = _opened_stores(order)
    keep_from_git(order.work_folder)
    store = Store(order.work_folder)
    shown_progress = progress(len(part.cells))
    sharing = _sharing(order, objects, environ, shown_progress.note)
    store.fetch = sharing.fetch_tensor
    scheduler = Scheduler(
        Scope(
            order=order,
            matrix=matrix,
            plan=part,
            whole=whole,
            root=order.work_folder,
            store=store,
            progress=shown_progress,
            environ=environ,
            dependencies=dependencies,
            sharing=sharing,
        )
    )
    try:
        yield scheduler
    finally:
        await scheduler.close()
        shown_progress.close()


async def planned(
    order: Order,
    environ: Mapping[str, str],
    progress: Callable[[int], Progress],
    dependencies: Dependencies,
    matrix: Matrix | None = None,
    *,
    asks_hub: bool = True,
) -> tuple[Matrix, Plan]:
    """Return the matrix of a run, with the releases that it asks for, and the plan of all cells.

    ``matrix`` takes the place of the file that the order names. The hub is asked which packages the models of
    the run, or of its shard, need; unless ``asks_hub``, it is not.
    """
    matrix = with_added_packages(at_level(matrix or load.load(order.matrix), order.level), ())
    _depend_on_probes(matrix, dependencies)
    if order.merged is None:
        await _refuse(matrix, order, environ, progress)
    if order.releases or order.scan is not None:
        release_progress = progress(0)
        which = "lie between the environments" if order.releases else f"of {order.scan} fit"
        release_progress.note(f"asking which releases {which}")
        try:
            matrix = await _with_releases(matrix, order, environ, dependencies)
        finally:
            release_progress.close()
    whole = plan(matrix, order.selection)
    part = whole if order.shard is None else shards.part(whole, *order.shard)
    return with_added_packages(matrix, part.models if asks_hub else ()), whole


def shard_store(order: Order) -> str:
    """Return the store of a shard: that of the command, else a folder beside the matrix."""
    assert order.shard is not None
    number, of = order.shard
    return order.store or str(order.matrix.parent / shards.FOLDER / f"{number}-of-{of}")


def _opened_stores(order: Order) -> dict[str, Objects]:
    """Return the stores of a run by their addresses, the one to write to first."""
    own = shard_store(order) if order.shard is not None else order.store
    addresses = [*filter(None, (own,)), *(order.merged or ())]
    return {address: opened_objects(address) for address in addresses}


def _sharing(
    order: Order,
    stores: Mapping[str, Objects],
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> Sharing:
    """Return the shared stores of a run."""
    redaction = Redaction(environ)
    shared = [
        SharedStore(redaction.text(shown_address(address)), objects, say=say)
        for address, objects in stores.items()
    ]
    writes = shared and (order.shard is not None or order.store is not None)
    return Sharing(order.work_folder, shared, shared[0] if writes else None, environ)


async def _refuse(
    matrix: Matrix,
    order: Order,
    environ: Mapping[str, str],
    progress: Callable[[int], Progress],
) -> None:
    """Raise EarlyError for what the files and the package index show before anything is run."""
    with _builder(matrix, order, environ, Dependencies()) as builder:
        answers = _ShownReleases(builder, progress)
        try:
            await asyncio.to_thread(early.refuse, matrix, order, answers)
        finally:
            answers.close()


class _ShownReleases:
    """Answers about releases, with a line where the answer takes a while."""

    def __init__(self, builder: StackBuilder, progress: Callable[[int], Progress]) -> None:
        self._builder, self._progress = builder, progress
        self.newest_release = builder.newest_release
        self._shown: Progress | None = None

    def may_know(self, spec: StackSpec, name: str) -> bool:
        """Return the builder's answer."""
        self._shown = self._shown or self._progress(0)
        self._shown.note(f"asking transformers {spec.transformers} whether it knows {shown(name)}")
        return self._builder.may_know(spec, name)

    def close(self) -> None:
        """End the progress, if there is any."""
        if self._shown is not None:
            self._shown.close()


async def _with_releases(
    matrix: Matrix, order: Order, environ: Mapping[str, str], dependencies: Dependencies
) -> Matrix:
    """Return the matrix with the releases between its stacks, or with those of the scanned package."""
    with _builder(matrix, order, environ, dependencies) as builder:
        if order.scan is not None:
            return await asyncio.to_thread(releases.scanned, matrix, order.scan, builder)
        patches = order.releases == "all"
        return await asyncio.to_thread(releases.widened, matrix, builder, patches=patches)


@contextmanager
def _builder(
    matrix: Matrix, order: Order, environ: Mapping[str, str], dependencies: Dependencies
) -> Iterator[StackBuilder]:
    root = order.work_folder
    installer = Installer(
        environ,
        exclude_newer=matrix.exclude_newer,
        upgrade=order.upgrade,
        max_age=order.lock_age,
        dependencies=dependencies,
        project=order.uv_project,
    )
    builder = StackBuilder(root, installer, stacks=stacks_folder(root, environ))
    try:
        yield builder
    finally:
        builder.end()


def _depend_on_probes(matrix: Matrix, dependencies: Dependencies) -> None:
    """Record the files of the user's probes, which the matrix holds as they were read."""
    for model in matrix.models:
        for probe, file in zip(model.probes, model.probe_files, strict=True):
            path = Path(matrix.path).parent / probe.path
            dependencies.file(path)
            if _text_or_empty(path) != file.source:
                dependencies.mark_unrepeatable(f"{probe.path} was changed during the run")


def _text_or_empty(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
