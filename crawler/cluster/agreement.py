"""The agreement of a job's workers: all must have the same version of the program, the same order and user functions.

A worker joins only if all three are the job's. If it is the first one at work, its own become the job's. What concerns one
machine alone, such as the number of fetches at once or the logs, may differ (`LOCAL`).
"""

from __future__ import annotations

import json
import secrets
import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, inspect

from anabranch.crawler.cluster.commands import (
    DesiredState,
    Wish,
    absent_workers,
    desired_state,
    drained_workers,
    forget_move,
    put_desired_state,
    put_wish,
    refuse_moved,
)
from anabranch.crawler.cluster.tickets import used
from anabranch.crawler.job.choosing import SharedOrder
from anabranch.crawler.job.database import (
    JobDatabase,
    copy_tables,
    execute,
    fact,
    fetch,
    free_all_shares,
    has_job,
    has_workers,
    lock_job,
    make_tables,
    put_fact,
    server_time,
)
from anabranch.crawler.job.orderfile import edited_tables, last_order_file
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import add_seeds
from anabranch.crawler.order.changes import (
    CHANGEABLE_KEYS,
    Change,
    changed_order,
    parsed_changes,
    settled_changes,
    with_changes,
)
from anabranch.crawler.order.code import functions_of
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.order.sources import kept_layer
from anabranch.crawler.outcomes.errors import (
    CrawlerError,
    ExitCode,
    JobUnfinished,
    OrderError,
    StaysAway,
    StoreLost,
    UsageError,
)
from anabranch.frontier import Counters, end_late_workers, forget_urls
from anabranch.frontier.jobfolder import ORDER_FILE
from anabranch.frontier.stores.sql.reading import job_counts

#: Keys of an order that concern one machine; and sections that have no others.
LOCAL = frozenset(
    {"job.name", "job.seeds", "job.seed_files", "job.worker", "job.modules", "frontier.store", "frontier.worker_lease"}
    | {"frontier.gates_in_memory", "frontier.checkpoint", "limits.min_free_disk", "limits.time", "write.warc_prefix"}
    | {"fetch.bind", "fetch.cookie_file", "write.compression", "write.deflate", "write.zstd_dictionary"}
    | {"write.revisit_of"}
    | {"dedup.filter", "dedup.exact", "dedup.signature", "dedup.levels", "dedup.leaf_kind", "dedup.leaf_bits"}
    | {"dedup.split_fan_out", "dedup.mapped_limit"}
)
LOCAL_SECTIONS = frozenset({"crawl", "logs", "report", "dns"})
#: Local keys that are not copied to other workers.
_NOT_PASSED_ON = (
    *("job.seeds", "job.seed_files", "job.worker", "job.modules"),
    *("frontier.store", "logs.file", "report.metrics", "write.zstd_dictionary", "write.revisit_of"),
    *("fetch.bind", "fetch.cookie_file"),
)

#: The name of the fact that has what operators changed in the order while the job lived.
_LASTING = "changes"
#: Keys that are fixed when a job begins.
_FIXED = frozenset(
    {"frontier.policy", "frontier.politeness", "frontier.shares", "politeness.group", "politeness.groups"}
)

#: Differences that are named; the others are counted.
_SHOWN = 5
_SHOWN_CHARS = 60


class OtherOrder(OrderError):
    """The job's workers crawl by another order."""


class FolderCopied(CrawlerError):
    """The worker of this folder is at work from another one: this is a copy of it, or the folder was moved to this machine."""

    exit_code = ExitCode.STORE_OR_JOB_IN_USE

    def __init__(self, line: str, until_s: float) -> None:
        super().__init__(line)
        self.until_s = until_s  #: when that worker's lease ends, unless it renews it


class Agreement(NamedTuple):
    """The version, the order and the user functions that all workers of a job agree on."""

    version: str
    order: Mapping[str, Any]  #: `section.key` -> value
    functions: Mapping[str, str]  #: user function -> digest of its module

    def differences(self, asked: Agreement) -> dict[str, str]:
        """Return the differences of another agreement: a phrase by the key, by the function, or by `version`. Pure."""
        found = (
            {} if self.version == asked.version else {"version": f"version {self.version} there, {asked.version} here"}
        )
        for key in sorted(self.order.keys() | asked.order.keys()):
            there, here = self.order.get(key), asked.order.get(key)
            if there != here:
                section, _, name = key.partition(".")
                found[key] = f"[{section}] {name} is {_shown(there)} there and {_shown(here)} here"
        for name in sorted(self.functions.keys() & asked.functions.keys()):
            if self.functions[name] != asked.functions[name]:
                found[name] = f"the module of the user function {name} differs"
        return found


def agreement_of(order: CrawlOrder) -> Agreement:
    """The agreement that an order asks for. Reads the modules of its user functions."""
    dumped = json.loads(json.dumps(order.model_dump(mode="json", by_alias=True)))
    keys: dict[str, Any] = {}
    for section, values in dumped.items():
        if isinstance(values, Mapping):
            keys |= {f"{section}.{key}": value for key, value in values.items()}
        else:
            keys[section] = values
    common = {
        key: value for key, value in keys.items() if key not in LOCAL and key.partition(".")[0] not in LOCAL_SECTIONS
    }
    names = sorted({one.name for one in functions_of(order) if f"{one.section}.{one.key}" in common})
    digests = {name: _digest(name.partition(":")[0]) for name in names}
    return Agreement(VERSION, common, {name: digest for name, digest in digests.items() if digest})


def _digest(module: str) -> str:
    """Return the digest of a module's source; empty if it has none."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return ""
    file = None if spec is None or spec.origin is None else Path(spec.origin)
    return "" if file is None or not file.is_file() else sha256(file.read_bytes()).hexdigest()


def shared_order(database: JobDatabase, directory: Path) -> SharedOrder | None:
    """The order of the job in a database, for the worker with this folder; None if there is no job of several workers.

    The worker's own order decides what concerns its machine, and what was edited in it since its last run. The order of a job
    in a file is in the job's folder. Raises: StoreUnavailable.
    """
    with database.transaction() as connection:
        text = fact(connection, "order") if has_job(connection) else None
        if text is None:
            return None
        has_seeds = bool(fetch(connection, "SELECT 1 FROM job_seed LIMIT 1"))
        changes = len(settings_of_run(connection))
        lasting = changes_in(connection)
    kept = tomllib.loads(text)
    if isinstance(database.address, Path):
        return SharedOrder((), kept["frontier"]["shares"], has_seeds, changes)
    layers = [kept_layer(_passed_on(kept), database.place)]
    own = last_order_file(directory)
    if own is not None:
        layers.insert(0, kept_layer(_local_keys(tomllib.loads(own.read_text("utf-8-sig"))), str(own)))
        layers.insert(0, kept_layer(edited_tables(directory), str(directory / ORDER_FILE)))
    return SharedOrder(layers, kept["frontier"]["shares"], has_seeds, changes, lasting)


def _passed_on(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a job's order without what concerns the machine that wrote it."""
    passed = {section: dict(table) if isinstance(table, Mapping) else table for section, table in tables.items()}
    for place in _NOT_PASSED_ON:
        section, _, key = place.partition(".")
        passed.get(section, {}).pop(key, None)
    return passed


def _local_keys(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a worker's own order that concern its machine, by section."""
    return {
        section: {
            key: value for key, value in table.items() if section in LOCAL_SECTIONS or f"{section}.{key}" in LOCAL
        }
        for section, table in tables.items()
        if isinstance(table, Mapping)
    }


class Applicant(NamedTuple):
    """A worker that wants to join."""

    name: str  #: its name; a free one is made of it unless `is_named`
    token: str  #: of its folder
    is_named: bool  #: the operator wants this name
    job: str = ""  #: the id of the job that its folder belongs to; empty: none yet
    folder: str = ""  #: machine and folder; empty: processes of one machine, which a lock keeps apart


class Joined(NamedTuple):
    """Facts that a worker gets when it joins."""

    job: str  #: the job's id
    name: str  #: the worker's
    is_first: bool  #: no other worker is at work
    now_s: float  #: by the server's clock
    round: int  #: the job's
    added: int  #: seeds that the job did not have
    absent: str = ""  #: the other workers that are to be started, if the job runs again


#: The name of the fact that has `RunBegin`.
_RUN = "run"


class RunBegin(NamedTuple):
    """The job's counts at the begin of a run: when a worker joined and no other was at work."""

    since_s: float = 0.0  #: by the server's clock
    done: int = 0
    failed: int = 0  #: those that were queued again, too
    disregarded: int = 0
    fetched_bytes: int = 0


def run_begin(connection: Connection) -> RunBegin:
    """The counts at the begin of the running run, or of the last one."""
    noted = fact(connection, _RUN)
    return RunBegin() if noted is None else RunBegin(*json.loads(noted))


def _note_begin(connection: Connection) -> None:
    begin = RunBegin(server_time(connection))
    if has_workers(connection):
        counters, fetched = job_counts(connection).counters, used(connection).fetched_bytes
        begin = RunBegin(
            begin.since_s, counters.done, counters.failed + counters.retried, counters.disregarded, fetched
        )
    put_fact(connection, _RUN, json.dumps(begin))


class Wanted(NamedTuple):
    """The requests of a worker's command."""

    order: CrawlOrder
    seeds: Sequence[Seed] = ()
    again: bool = False  #: begin another round
    has_consent: bool = False  #: even if the job is unfinished, or another scope ends queued URLs
    leads: bool = True  #: if it is the first at work, its order becomes the job's, which runs then
    changes: int | None = None  #: of the last run that the order has; later ones are added to it. None: all
    resumes: bool = False  #: the command is the operator's word: a stopped or finished job runs again


def join(database: JobDatabase, wanted: Wanted, who: Applicant) -> Joined:
    """Agree with the job's other workers on the order, and add seeds, in one transaction; the first worker decides.

    An order that lacks changes of the run agrees. A job that is stopped or finished runs again if a seed is new, with `again`
    or with `resumes`; otherwise the worker stays away.

    Raises: JobMoved, JobMoving; StaysAway; OtherOrder, naming what differs from the others' order; UsageError; JobUnfinished;
    FolderCopied; StoreUnavailable.
    """
    with database.transaction() as connection:
        if inspect(connection).has_table("crawl") and not has_job(connection):
            raise UsageError(
                f"{database.place}: holds a job of one worker; go on with it from its own folder, or name another database"
            )
    make_tables(database)
    with database.transaction() as connection:
        execute(
            connection,
            "INSERT INTO job_fact VALUES ('id', :id) ON CONFLICT (name) DO NOTHING",
            id=secrets.token_hex(8),
        )
        lock_job(connection)
        refuse_moved(database.place, connection)
        job = _job_of(database.place, connection, who)
        workers = _workers(connection)
        _take_folder(database.place, connection, who)
        name = who.name if who.is_named else _free_name(who, workers)
        added = add_seeds(connection, wanted.seeds)
        absent = _admit(database.place, connection, wanted, (who.name, name), is_added=bool(added))
        others = {name for name, token, is_live in workers if is_live and token != who.token}
        differs = _differences(connection, wanted.order, leads=wanted.leads and not others)
        if not wanted.leads:
            _follow(database.place, list(differs.values()))
        elif others:
            _follow_others(database.place, wanted, others, list(differs.values()))
        else:
            _lead(database.place, connection, wanted, differs)
            _begin_order(connection, wanted)
            put_wish(connection, Wish.RUN)
            _note_begin(connection)
        if wanted.leads:  # a process that joins late must not withdraw a stop of its job
            put_desired_state(connection, DesiredState.RUN)
        return Joined(
            job=job,
            name=name,
            is_first=not others,
            now_s=server_time(connection),
            round=int(fact(connection, "round") or "1"),
            added=len(added),
            absent=absent,
        )


def _admit(place: str, connection: Connection, wanted: Wanted, names: tuple[str, str], *, is_added: bool) -> str:
    """Check that a worker may join. Returns the other workers that are to be started, if the job runs again.

    `names`: the name that the worker asks for and the one that it gets. Processes always may: their parent has joined before.

    Raises: StaysAway if the job, or the worker of one of these names, is not to run.
    """
    if not wanted.leads:
        return ""
    if drained := {*names}.intersection(drained_workers(connection)):
        name = min(drained)
        raise StaysAway(
            f"{place}: worker {name} was drained and stays away; `anabranch resume {place} --worker {name}` lets it come back"
        )
    state = desired_state(connection)
    if state is DesiredState.RUN and not wanted.again:
        return ""
    if wanted.again or wanted.resumes or is_added:
        return absent_workers(connection, but=names[1])
    if state is DesiredState.STOPPED:
        raise StaysAway(
            f"{place}: the job is stopped, so this worker does not start; `anabranch resume {place}` lets its workers run again"
        )
    raise StaysAway(
        f"{place}: the job is finished, so this worker does not start; `anabranch add` continues it, "
        "`anabranch crawl --again` begins another round"
    )


def _take_folder(place: str, connection: Connection, who: Applicant) -> None:
    """Note from where the worker with this token crawls. Raises: FolderCopied if it is at work from elsewhere."""
    if not who.folder:
        return
    name, noted = _folder_fact(who), fact(connection, _folder_fact(who))
    if noted is not None and noted != who.folder and has_workers(connection):
        live = fetch(
            connection, "SELECT name, until_s FROM worker WHERE token = :token AND until_s > 0", token=who.token
        )
        for worker, until_s in live:
            raise FolderCopied(_copied_line(place, worker), until_s)
    put_fact(connection, name, who.folder)


def _folder_fact(who: Applicant) -> str:
    return f"folder of {who.token}"


def _copied_line(place: str, worker: str) -> str:
    return (
        f"{place}: worker {worker} is at work from another folder, and the folder of this one is a copy of that; "
        "name a folder of its own: --job FOLDER"
    )


def _differences(connection: Connection, order: CrawlOrder, *, leads: bool) -> dict[str, str]:
    """Key -> in what an order differs from the job's, in words."""
    kept = fact(connection, "agreement")
    differs = {} if kept is None else Agreement(*json.loads(kept)).differences(agreement_of(order))
    if differs and not leads and _changes_had(connection, order) is not None:
        return {}  # the job's order was changed while the worker was on its way; it follows when it has joined
    return dict(differs)


def _job_of(place: str, connection: Connection, who: Applicant) -> str:
    """The job's id. Raises: StoreLost if the worker's folder belongs to another job."""
    job = fact(connection, "id") or ""
    if who.job and who.job != job:
        raise StoreLost(
            f"{place}: holds another job than the one that this worker's folder belongs to; "
            "name another job folder, or the database of its job"
        )
    return job


def _follow(place: str, differs: Sequence[str]) -> None:
    """Go by what the job has. Raises: OtherOrder."""
    if differs:
        raise OtherOrder(f"{place}: the job has another order: {_listed(differs)}")


def _follow_others(place: str, wanted: Wanted, others: Collection[str], differs: Sequence[str]) -> None:
    """Join workers that are at work. Raises: OtherOrder, UsageError if that is not what is wanted."""
    if differs:
        raise OtherOrder(f"{place}: {len(others)} other workers crawl by another order: {_listed(differs)}")
    if wanted.again:
        raise UsageError(f"{place}: {', '.join(sorted(others))} crawl it; another round begins when they have ended")


def _lead(place: str, connection: Connection, wanted: Wanted, differs: Mapping[str, str]) -> None:
    """Be the first at work: the order may change, and another round begin. Raises: OtherOrder, UsageError, JobUnfinished."""
    if not has_workers(connection):
        return
    if fixed := [words for key, words in differs.items() if key in _FIXED]:
        raise OtherOrder(f"{place}: {'; '.join(fixed)}; that is fixed for a job, begin another one in another database")
    if not wanted.has_consent and not job_counts(connection).is_done:
        if wanted.again:
            raise JobUnfinished(
                f"{place}: the job is unfinished; add --yes to throw away its queue, or leave out --again to go on with it"
            )
        if scope := [words for key, words in differs.items() if key.startswith("scope.")]:
            raise UsageError(
                f"{place}: {'; '.join(scope[:_SHOWN])}; queued URLs that the scope does not accept would end; "
                "nothing was changed; add --yes to do it"
            )
    if wanted.again:
        _begin_again(connection)


def _begin_order(connection: Connection, wanted: Wanted) -> None:
    """The job's order is the worker's now, with what was changed since the worker read it. Raises: OrderError."""
    order, missed = wanted.order, [] if wanted.changes is None else settings_of_run(connection)[wanted.changes :]
    put_fact(connection, "settings", "[]")
    put_changes(connection, settled_changes(changes_in(connection), order))
    set_order(connection, order)
    for settings in missed:
        order, changes = changed_order(order, settings)
        set_order(connection, order, settings, changes)


def _begin_again(connection: Connection) -> None:
    """Forget all URLs; the seeds, the totals and the files of earlier rounds stay."""
    forget_urls(connection)
    execute(connection, "DELETE FROM job_worker")
    put_fact(connection, "round", str(int(fact(connection, "round") or "1") + 1))


def check_agreement(database: JobDatabase, order: CrawlOrder, number: int = 1, who: Applicant | None = None) -> int:
    """Compare the job's order and round with a worker's, once more when it has its lease: two may have joined as the first.
    A worker (`who`) whose folder was copied must not take the lease of the copy away, which then would take its own.

    Returns how many of the run's changes (`settings_of_run`) the worker's order has; it has to follow the others.
    While the server is away, this waits. Raises: OtherOrder, FolderCopied.
    """

    def look(connection: Connection) -> tuple[str | None, str | None, int | None]:
        if who is not None and who.folder and fact(connection, _folder_fact(who)) != who.folder:
            raise FolderCopied(_copied_line(database.place, who.name), 0.0)
        return fact(connection, "agreement"), fact(connection, "round"), _changes_had(connection, order)

    kept, current, had = database.do_patiently(look)
    if number != int(current or "1"):
        raise OtherOrder(f"{database.place}: another round has begun; run the command again to join it")
    if had is None:
        differs = Agreement(*json.loads(kept or "[]")).differences(agreement_of(order))
        raise OtherOrder(
            f"{database.place}: another worker has begun with another order: {_listed(list(differs.values()))}"
        )
    return had


def _changes_had(connection: Connection, order: CrawlOrder) -> int | None:
    """How many of the run's changes an order has, if with the others it is the job's; None if it is another order."""
    kept, settings = Agreement(*json.loads(fact(connection, "agreement") or "[]")), settings_of_run(connection)
    if not CHANGEABLE_KEYS.issuperset(kept.differences(agreement_of(order))):
        return None
    for had in range(len(settings), -1, -1):  # `+=` twice would be another order
        changed = order
        with suppress(OrderError):  # a value that is wrong beside those of another order
            for more in settings[had:]:
                changed, _ = changed_order(changed, more)
            if not kept.differences(agreement_of(changed)):
                return had
    return None


def set_order(
    connection: Connection, order: CrawlOrder, settings: Sequence[str] = (), changes: Sequence[Change] = ()
) -> None:
    """The job's order is now this one, made by these settings; workers at work see that they have to follow.

    The changes that the settings made hold in later runs, too, although their commands name the values from before.
    """
    lock_job(connection)
    put_fact(connection, "order", dump_order(order))
    put_fact(connection, "agreement", json.dumps(agreement_of(order)))
    if settings:
        put_fact(connection, "settings", json.dumps([*settings_of_run(connection), list(settings)]))
        put_changes(connection, with_changes(changes_in(connection), changes))


def changes_in(connection: Connection) -> list[Change]:
    """Return the changes that operators have made to the order while the job lived."""
    return parsed_changes(fact(connection, _LASTING))


def put_changes(connection: Connection, changes: Sequence[Change]) -> None:
    """Save the changes that operators have made to the order while the job lived."""
    put_fact(connection, _LASTING, json.dumps(changes))


def copy_job(connection: Connection, source: JobDatabase, order: CrawlOrder) -> Counters:
    """Copy a job into an empty database in the running transaction, to be crawled by this order. Returns its counts."""
    copy_tables(connection, source)
    free_all_shares(connection)
    forget_move(connection)
    set_order(connection, order)
    return job_counts(connection).counters


def settings_of_run(connection: Connection) -> list[list[str]]:
    """The changes of the order since the run began, the oldest first."""
    return parsed_settings(fact(connection, "settings"))


def parsed_settings(text: str | None) -> list[list[str]]:
    """Return the changes that the text of the fact `settings` holds, the oldest first; none for None. Pure."""
    found: list[list[str]] = json.loads(text or "[]")
    return found


def _workers(connection: Connection) -> list[tuple[str, str, bool]]:
    """Name, folder's token and whether its lease lasts, of every worker that ever joined. Those that are late lose it."""
    if not has_workers(connection):
        return []
    end_late_workers(connection)
    found = fetch(connection, "SELECT name, token, until_s > 0 FROM worker")
    return [(name, token, bool(is_live)) for name, token, is_live in found]


def _free_name(who: Applicant, workers: Collection[tuple[str, str, bool]]) -> str:
    """The name, or the name and a number, that no other folder's worker ever had."""
    taken = {name for name, token, _ in workers if token != who.token}
    number, name = 1, who.name
    while name in taken:
        number += 1
        name = f"{who.name}-{number}"
    return name


def _listed(differences: Sequence[str]) -> str:
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    advice = "run it with the job's order, or when no other worker is at work"
    return f"{'; '.join(differences[:_SHOWN])}{more}; {advice}"


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
