"""Which order a crawl runs by, in which folder, and which seeds it is to read.

A new job runs by what the command line, the variables and `-c FILE` say. A job that exists goes on by the order in its own
folder, which stands where a file would: the command line wins over the variables, those over it. `-c FILE` stands in for it
wholly, and `--fresh` leaves it out: the old job is moved aside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.jobs.job import job_name, order_to_go_on_by, refuse_embedded
from anabranch.crawler.jobs.opening import has_seeds
from anabranch.crawler.jobs.orderfile import order_edits
from anabranch.crawler.jobs.seeds import COMMAND_LINE, ORDER
from anabranch.crawler.orders.layers import Layer, named_in
from anabranch.crawler.orders.order import CrawlOrder, JobSection, with_sources
from anabranch.crawler.orders.sources import file_layer, job_of, order_of, read_layers
from anabranch.crawler.outcomes.errors import OrderError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a command line says of a crawl's order and job."""

    sources: tuple[str, ...]  #: seeds, seed files, "-"
    order_file: Path | None
    job: Path | None
    fresh: bool
    flags: Mapping[str, object]  #: key of the order -> value, None if not given
    settings: tuple[str, ...] = ()  #: `section.key=value`


class Named(NamedTuple):
    """What is named for seeds in one place."""

    sources: tuple[str, ...]
    place: str  #: as the seed book has it
    told: str  #: as a complaint has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a crawl runs by."""

    order: CrawlOrder  #: its seeds are all that were named for the job
    layers: Sequence[Layer]  #: what the order is of, the strongest first
    directory: Path  #: the job's folder
    named: Sequence[Named]  #: to be read for seeds
    has_seeds: bool  #: the job's seed book has some; then none need be named
    is_derived: bool  #: the folder has its name of a seed or a seed file, and nobody named it
    edits: Sequence[str] = ()  #: what people have changed in the job's own order since its last run


def choose(wanted: Wanted) -> Chosen:
    """Read the order; touches nothing. Raises: OrderError, UsageError, HostsJob, ForeignJobFormat, OrderDamaged."""
    layers = read_layers(wanted.order_file, wanted.flags, wanted.settings)
    job = job_of(layers)
    directory = _directory(wanted, job)
    refuse_embedded(directory)
    own = None if wanted.fresh or wanted.order_file is not None else order_to_go_on_by(directory)
    named = [Named(wanted.sources, COMMAND_LINE, COMMAND_LINE)] if wanted.sources else _of_order(layers, job)
    is_derived = wanted.job is None and job.name is None
    if own is not None:
        return _going_on(layers, own, directory, named, is_derived=is_derived)
    order = order_of(layers)
    return Chosen(
        order=with_sources(order, sources_of(named)) if named else order,
        layers=layers,
        directory=directory,
        named=named,
        has_seeds=not wanted.fresh and has_seeds(directory),
        is_derived=is_derived,
    )


def sources_of(named: Sequence[Named]) -> tuple[str, ...]:
    """All that is named, wherever."""
    return tuple(source for one in named for source in one.sources)


def _of_order(layers: Sequence[Layer], job: JobSection, but: Collection[str] = ()) -> list[Named]:
    """The seeds of an order `but` these, and where what it is of names them."""
    listed = {"seeds": job.seeds, "seed_files": job.seed_file_names}
    wanted = {key: tuple(source for source in sources if source not in but) for key, sources in listed.items()}
    return [Named(sources, ORDER, named_in(layers, "job", key)) for key, sources in wanted.items() if sources]


def _going_on(
    layers: Sequence[Layer], own: Path, directory: Path, named: Sequence[Named], *, is_derived: bool
) -> Chosen:
    """By the job's own order. Seeds that it was given before are in its book, and stay in its order."""
    try:
        kept = file_layer(own)
        whole = [*layers, kept]
        before, order = job_of([kept]), order_of(whole)
    except OrderError as error:
        if str(own) not in str(error):
            raise
        raise OrderError(
            f"{error} (it is the order that the job goes on by: mend it, or name another: -c FILE)"
        ) from error
    is_begun = has_seeds(directory)  # or else the first run was ended before it had written them down
    added = with_sources(order, sources_of(named)).job
    seeds = {
        "seeds": tuple(dict.fromkeys((*before.seeds, *added.seeds))),
        "seed_files": tuple(dict.fromkeys(path.absolute() for path in (*before.seed_files, *added.seed_files))),
    }
    return Chosen(
        order=order.model_copy(update={"job": order.job.model_copy(update=seeds)}),
        layers=whole,
        directory=directory,
        named=named if is_begun else [*_of_order([kept], before, but=added.sources), *named],
        has_seeds=is_begun,
        is_derived=is_derived,
        edits=order_edits(directory),
    )


def _directory(wanted: Wanted, job: JobSection) -> Path:
    """The job's folder. Raises: UsageError for a name that could not be shown or logged."""
    directory = wanted.job or Path("jobs") / job_name(job, wanted.sources)
    try:
        str(directory).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{directory!r}: the name is not UTF-8; choose another --job") from error
    return directory
