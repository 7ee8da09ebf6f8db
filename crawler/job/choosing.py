"""Which order a crawl runs by, in which job folder, with which seeds; and whether the command may continue the job there.

A new job runs by the command line, the variables and `-c FILE`. An existing job continues by the order in its own folder;
`-c FILE` replaces that, and `--fresh` moves the old job aside. Two crawls must not share a job by accident: a job named after a
seed or seed file continues only with its own seeds and scope; one that was named by the operator takes other seeds, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from anabranch.crawler.job.folder import job_name, order_to_resume, refuse_embedded
from anabranch.crawler.job.orderfile import changes_stamp, last_order_file, lasting_changes, order_edits
from anabranch.crawler.job.seeding import user_function_errors
from anabranch.crawler.job.seeds import COMMAND_LINE, ORDER, Seed, has_seeds, is_file, is_path, none_left, read_seeds
from anabranch.crawler.job.workerfolders import shared_file
from anabranch.crawler.order.changes import Change, changes_layer, held_changes
from anabranch.crawler.order.code import refuse_withheld
from anabranch.crawler.order.frontier import DATABASES, holds_password
from anabranch.crawler.order.loading import job_of, order_of
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import JobSection, ScopeSection
from anabranch.crawler.order.sources import Layer, job_layer, merged, named_in, read_layers
from anabranch.crawler.outcomes.errors import NoSeeds, OrderError, UsageError
from anabranch.crawler.scope.scope import blocked_by, open_scope
from anabranch.frontier import Frontier
from anabranch.frontier.jobfolder import JOBS, ORDER_FILE, STATE, STORE_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlRequest:
    """The order and job that a command line asks for."""

    sources: tuple[str, ...]  #: seeds, seed files, "-"
    order_file: Path | None
    job: Path | None
    fresh: bool
    flags: Mapping[str, object]  #: key of the order -> value, None if not given
    settings: tuple[str, ...] = ()  #: `section.key=value`
    keywords: Sequence[Layer] = ()  #: of a program, the strongest first; they win
    order: Layer | None = None  #: that a program gives in the place of an order file
    run_code: bool = False  #: user functions that only the job's own order names may run

    @property
    def layers(self) -> list[Layer]:
        """The sources of the order but the job's own, the strongest first. Raises: OrderError, UsageError."""
        read = read_layers(self.order_file, self.flags, self.settings)
        return [*self.keywords, *read, *filter(None, [self.order])]

    @property
    def names_order(self) -> bool:
        """It brings an order, which replaces the job's own."""
        return self.order_file is not None or self.order is not None


class SeedSources(NamedTuple):
    """Seeds and seed files that one place names."""

    sources: tuple[str, ...]
    place: str  #: as it is recorded with a seed
    reported_as: str  #: as an error message names it


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenJob:
    """The order and folder that a crawl runs by."""

    order: CrawlOrder  #: its seeds are all that were named for the job
    layers: Sequence[Layer]  #: the order's sources, the strongest first
    directory: Path  #: the job's folder
    named: Sequence[SeedSources]  #: where to read seeds from
    has_seeds: bool  #: the job has some recorded; then the command need not name any
    is_derived: bool  #: the folder's name was derived from a seed or a seed file
    edits: Sequence[str] = ()  #: changes that people made to the job's own order since its last run
    stamp: bytes | None = None  #: `changes_stamp` of the job when it was chosen; None: its order is in a database
    shared_changes: int = 0  #: `changes` of the `SharedOrder`


class SharedOrder(NamedTuple):
    """The order of a job that several workers crawl, for one of them."""

    layers: Sequence[Layer]  #: the strongest first; none if the job's folder has it
    shares: int
    has_seeds: bool
    changes: int = 0  #: of `anabranch set` in the job's run that the layers have
    lasting: Sequence[Change] = ()  #: what operators changed in the order while the job lived


#: A database by its URL or a file, and the worker's folder -> the job there; None if there is no job of several workers.
FindShared = Callable[[str | Path, Path], SharedOrder | None]

#: Shares of a new job in a PostgreSQL database, and of one that several processes crawl.
SHARES_OF_DATABASE = 128
SHARES_OF_PROCESSES = 16


def choose(wanted: CrawlRequest, find_shared: FindShared | None = None) -> ChosenJob:
    """Read the order; writes nothing. Raises: OrderError, UsageError, HostsJob, ForeignJobFormat, OrderDamaged."""
    layers = wanted.layers
    job = job_of(layers)
    directory = wanted.job or JOBS / job_name(job, wanted.sources)
    _check_name(directory)
    own = None if wanted.fresh or wanted.names_order else order_to_resume(directory)
    named = _sources_of(wanted, layers, job)
    is_derived = wanted.job is None and job.name is None
    shared = None if wanted.fresh else _shared(find_shared, layers, own, directory)
    if shared is not None and shared.layers:
        kept = [] if wanted.names_order else shared.layers
        return _of_shared([*layers, *kept], shared, directory, named)
    is_begun = not wanted.fresh and _has_begun(directory, shared)
    stamp = changes_stamp(directory)
    lasting = _lasting(directory, is_begun=is_begun)
    if own is not None:
        resumed = _resume(layers, own, directory, named, lasting, is_begun=is_begun, is_derived=is_derived)
        return replace(resumed, stamp=stamp)
    order, layers, notes = _with_changes(_of_new(layers, shared), layers, lasting)
    return ChosenJob(
        order=_named_in(order, named) if named else order,
        layers=layers,
        directory=directory,
        named=named,
        has_seeds=is_begun,
        is_derived=is_derived,
        edits=tuple(notes),
        stamp=stamp,
    )


def _lasting(directory: Path, *, is_begun: bool) -> list[Change]:
    """Return the changes that operators have made to the order of a job; none if it has not begun."""
    return lasting_changes(directory) if is_begun else []


def permitted(chosen: ChosenJob, *, run_code: bool) -> ChosenJob:
    """The job, all of whose code may run: the caller names it, or runs whatever the job names. Raises: CodeWithheld."""
    if run_code:
        return replace(chosen, order=chosen.order.running(None))
    refuse_withheld(chosen.order.code.withheld, chosen.directory, "this crawl")
    return chosen


def refuse_changed(chosen: ChosenJob) -> None:
    """Raises: UsageError if an operator has changed the job's order since it was chosen; the caller holds the job now."""
    if chosen.stamp is not None and chosen.has_seeds and changes_stamp(chosen.directory) != chosen.stamp:
        raise UsageError(f"{chosen.directory}: its order was changed just now; run the command again")


def _sources_of(wanted: CrawlRequest, layers: Sequence[Layer], job: JobSection) -> list[SeedSources]:
    """Return the places to read seeds from: the command line, else the order."""
    if wanted.sources:
        return [SeedSources(wanted.sources, COMMAND_LINE, COMMAND_LINE)]
    return _of_order(layers, job)


def _named_in(order: CrawlOrder, named: Sequence[SeedSources]) -> CrawlOrder:
    """The order with the seeds that these places name."""
    return with_sources(order, [source for one in named for source in one.sources])


def _has_begun(directory: Path, shared: SharedOrder | None) -> bool:
    """The job has seeds among its rows."""
    return has_seeds(directory) if shared is None else shared.has_seeds


def _of_new(layers: Sequence[Layer], shared: SharedOrder | None) -> CrawlOrder:
    """The order of a new job, or of one that is to go on by another order."""
    order = order_of(layers)
    shares = SHARES_OF_PROCESSES if order.crawl.processes > 1 else 1
    if order.frontier.is_in_database:
        shares = SHARES_OF_DATABASE
    return _with_shares(order, shares if shared is None else shared.shares)


def _with_shares(order: CrawlOrder, shares: int) -> CrawlOrder:
    """The order with so many shares, unless it names a number."""
    frontier = order.frontier
    if frontier.shares:
        return order
    return order.model_copy(update={"frontier": frontier.model_copy(update={"shares": shares})})


def named_seeds(chosen: ChosenJob, stdin: BinaryIO) -> tuple[tuple[Seed, ...], list[str]]:
    """The seeds of the named sources, each URL once, and a line for each text that is no seed.

    Both are empty if the job has seeds and no source is named. Raises: UsageError without any; NoSeeds if no text is a seed.
    """
    if not chosen.named:
        if chosen.has_seeds:
            return (), []
        raise UsageError("there is no seed; name a URL, a file of URLs, or - for standard input")
    seeds: dict[str, Seed] = {}
    reports: list[str] = []
    for sources, place, shown in chosen.named:
        found = read_seeds(sources, stdin, place)
        for seed in found.seeds:
            seeds.setdefault(seed.url, seed)
        reports += [f"{shown if bad.source == place else bad.source}: {bad.text!r}: {bad.reason}" for bad in found.bad]
    if not seeds:
        raise NoSeeds(none_left(reports))
    return tuple(seeds.values()), reports


def with_sources(order: CrawlOrder, sources: Sequence[str]) -> CrawlOrder:
    """The order with the seeds and seed files that were really used; standard input is not recorded."""
    named = [source for source in sources if source != "-"]
    files = {source: Path(source) for source in named if is_file(source) or is_path(source)}  # also one that is missing
    seeds = tuple(source for source in named if source not in files)
    job = order.job.model_copy(update={"seeds": seeds, "seed_files": tuple(files.values())})
    return order.model_copy(update={"job": job})


def _of_order(layers: Sequence[Layer], job: JobSection, but: Collection[str] = ()) -> list[SeedSources]:
    """The seeds of an order except `but`, with the places that name them."""
    listed = {"seeds": job.seeds, "seed_files": job.seed_file_names}
    wanted = {key: tuple(source for source in sources if source not in but) for key, sources in listed.items()}
    return [SeedSources(sources, ORDER, named_in(layers, "job", key)) for key, sources in wanted.items() if sources]


def _check_name(directory: Path) -> None:
    """Raises: UsageError for a folder that no job can have; HostsJob."""
    try:
        str(directory).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{directory!r}: the name is not UTF-8; name another job") from error
    refuse_embedded(directory)


def _shared(
    find_shared: FindShared | None, layers: Sequence[Layer], own: Path | None, directory: Path
) -> SharedOrder | None:
    """The job of several workers in the database that the order names, or in the file of the job's folder.

    `find_shared` None: the caller asks for none.
    """
    if find_shared is None:
        return None
    with suppress(OrderError):  # it is said when the whole order is read
        layers = layers if own is None else [*layers, job_layer(own)]
    store = merged(layers).get("frontier", {}).get("store")
    if not isinstance(store, str) or not store.startswith(DATABASES):
        return find_shared(directory / STATE / STORE_FILE, directory) if shared_file(directory) is not None else None
    if holds_password(store):
        return None  # it is refused when the whole order is read
    return find_shared(store, directory)


def _of_shared(
    layers: Sequence[Layer], shared: SharedOrder, directory: Path, named: Sequence[SeedSources]
) -> ChosenJob:
    """Join the job's workers by its order. Its seeds are rows; those that are named come in addition."""
    order, whole, notes = _with_changes(_with_shares(order_of(layers), shared.shares), layers, shared.lasting)
    return ChosenJob(
        order=_named_in(order, named),
        layers=whole,
        directory=directory,
        named=named,
        has_seeds=shared.has_seeds,
        shared_changes=shared.changes,
        is_derived=False,
        edits=(*order_edits(directory), *notes),
    )


def _resume(
    layers: Sequence[Layer],
    own: Path,
    directory: Path,
    named: Sequence[SeedSources],
    lasting: Sequence[Change],
    *,
    is_begun: bool,  # else the first run ended before it had recorded its seeds
    is_derived: bool,
) -> ChosenJob:
    """Continue by the job's own order. Its earlier seeds are recorded, and stay in its order."""
    try:
        kept = job_layer(own)
        before, order = job_of([kept]), _with_shares(order_of([*layers, kept]), 1)  # it was begun without shares
        order, whole, notes = _with_changes(order, [*layers, kept], lasting)
    except OrderError as error:
        if str(own) not in str(error):
            raise
        advice = "it is the order that the job goes on by: mend it, or name another: -c FILE"
        raise OrderError(f"{error} ({advice})") from error
    added = with_sources(order, [source for one in named for source in one.sources]).job
    seeds = {
        "seeds": tuple(dict.fromkeys((*before.seeds, *added.seeds))),
        "seed_files": tuple(dict.fromkeys(path.absolute() for path in (*before.seed_files, *added.seed_files))),
    }
    return ChosenJob(
        order=order.model_copy(update={"job": order.job.model_copy(update=seeds)}),
        layers=whole,
        directory=directory,
        named=named if is_begun else [*_of_order([kept], before, but=added.sources), *named],
        has_seeds=is_begun,
        is_derived=is_derived,
        edits=(*order_edits(directory), *notes),
    )


def _with_changes(
    order: CrawlOrder, layers: Sequence[Layer], lasting: Sequence[Change]
) -> tuple[CrawlOrder, list[Layer], list[str]]:
    """The order with what an operator changed in it while the job lived; the layers of both; a line for each such change."""
    commanded = {f"{section}.{key}" for layer in layers if layer.is_command for section, key in layer.named_keys()}
    changes = held_changes(lasting, order, commanded) if lasting else []
    if not changes:
        return order, [*layers], []
    layers = [changes_layer(changes), *layers]
    changed = order_of(layers)
    shares = order.frontier.shares
    notes = [f"{change} (`anabranch set`)" for change in changes]
    return _with_shares(changed, shares), layers, notes


_SHOWN_CHARS = 100


class JoinedJob(NamedTuple):
    """How a command continues a job."""

    added: tuple[Seed, ...] = ()  #: seeds that the job did not have
    narrows: bool = False  #: the scope differs, and may end queued URLs


class ScopeEffect(NamedTuple):
    """The number of queued URLs, and of those that a scope would end."""

    queued: int
    ended: int


def join(chosen: ChosenJob, seeds: Sequence[Seed], known: Container[str]) -> JoinedJob:
    """Compare the command with the existing job, whose seeds are `known`. Raises: UsageError if it is another crawl's job."""
    before = _scope_of(last_order_file(chosen.directory))
    added = tuple(seed for seed in seeds if seed.url not in known)
    if chosen.is_derived:
        # An edit of the job's order does not make it another crawl's.
        there, here = _scope_of(chosen.directory / ORDER_FILE) or before, chosen.order.scope.model_dump(by_alias=True)
        then = here if there is None else there.model_dump(by_alias=True)
        differences = [
            f"[scope] {key} is {_shown(then[key])} there and {_shown(value)} here"
            for key, value in here.items()
            if value != then[key]
        ]
        name = chosen.directory.name
        ways = [f"begin another job with --name OTHER, or go on with this one by --name {name}"]
        if added:
            if not differences:
                ways.insert(0, f"add seeds with `anabranch add {name} SEED`")
            more = f" and {len(added) - 1} more are" if len(added) > 1 else " is"
            differences.insert(0, f"{_shown(added[0].url)}{more} not among its seeds")
        if differences:
            words = f"{'; '.join(differences)}; {', '.join(ways)}"
            raise UsageError(f"{chosen.directory}: is another crawl's job: {words}")
    return JoinedJob(added, narrows=before != chosen.order.scope)


def scope_effect(frontier: Frontier, order: CrawlOrder, seeds: Iterable[str]) -> ScopeEffect:
    """Apply the order's scope to every queued URL (blocks); `seeds` are all seeds, in their order. 12 µs a URL.

    Raises: OrderError if a user function fails.
    """
    scope = open_scope(order.scope)
    for url in seeds:
        scope.add_seed(url)
    is_blocked = blocked_by(order.scope.block)
    queued = ended = 0
    with user_function_errors("the effect of the scope is unknown"):
        for line in frontier.operations.dump(with_ended=False):
            row = json.loads(line)
            if "url" not in row:
                continue
            queued += 1
            url = row["url"]
            ended += is_blocked(url) or not scope.accepts(url, row.get("hops", ""), row.get("via"))
    return ScopeEffect(queued, ended)


def _scope_of(order: Path | None) -> ScopeSection | None:
    """The scope of an order file; None without a file, or if it cannot be read."""
    try:
        return None if order is None else order_of([job_layer(order)]).scope
    except OrderError:
        return None


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
