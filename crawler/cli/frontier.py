"""Dumps and journals as files: written whole or not at all, read whatever they are."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from anabranch.crawler.cli.command import find_job, guarded, opened, put
from anabranch.crawler.cli.console import consents, say
from anabranch.crawler.cli.tables import explained, gate_line, listing, queue_line
from anabranch.crawler.job.folder import is_embedded
from anabranch.crawler.job.inspection import Snapshot, open_embedded, readable_job, refuse_unwritable
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.outcomes.errors import ExitCode, UsageError, storage_error, storage_errors
from anabranch.crawler.processes.folders import shares_of, unfinish_job_of
from anabranch.crawler.processes.stopped import opened_job
from anabranch.crawler.report.table import escaped
from anabranch.crawler.run.control import ask
from anabranch.crawler.run.crawl_verbs import removal_log
from anabranch.crawler.run.explain import ABOUT_URLS, open_explainer
from anabranch.crawler.run.verbs import WHATEVER_KEY, Arguments, Facts, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer, KeyOf
from anabranch.crawler.urls.parsing import canonical
from anabranch.dedup.files.durable import UNFINISHED, descriptor, sync_file, sync_folder
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.inspect.dump import load_dump
from anabranch.frontier.inspect.load import LoadReport
from anabranch.frontier.inspect.recovery import RecoveryJournal, load_journal
from anabranch.frontier.records import Head, QueueKey
from anabranch.frontier.times import clock_words, counted

_GZIP = b"\x1f\x8b"
#: The beginning of a line of Heritrix's journal.
_JOURNAL = re.compile(rb"(?:F[+sdefri]|T|E) ")
#: So much of a file is looked at to tell what it is.
_HEAD_BYTES = 4096
_TORN = (EOFError, zlib.error, gzip.BadGzipFile)


def write_dump(lines: Iterable[str], file: Path | None) -> None:
    """Write the lines to standard output, or to a file, compressed if its name ends in `.gz`.

    The file appears when it is whole and on the disk; what was there before stays until then. A link is followed; a pipe or a
    device is written to as it is. Raises: StorageError; BrokenPipeError.
    """
    if file is None:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
        return
    with _output_errors(file):
        is_gzip = file.suffix == ".gz"
        if file.exists() and not file.is_file():
            with _writing(file, is_gzip=is_gzip) as out:
                out.writelines(lines)
            return
        _replace(Path(os.path.realpath(file)), lines, is_gzip=is_gzip)


def _replace(file: Path, lines: Iterable[str], *, is_gzip: bool) -> None:
    unfinished = file.with_name(file.name + UNFINISHED)
    try:
        with _writing(unfinished, is_gzip=is_gzip) as out:
            out.writelines(lines)
        with descriptor(unfinished, os.O_RDWR) as fd:
            sync_file(fd)
        unfinished.replace(file)
        sync_folder(file.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def _output_errors(file: Path) -> Iterator[None]:
    """As `storage_errors`; that nobody reads a pipe any more stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, file, "--output") from error


def is_journal(file: Path) -> bool:
    """It is Heritrix's recovery journal; False: it is a dump. Raises: UsageError for what is neither, and for no file."""
    try:
        with file.open("rb") as plain:
            head = _plain(plain.read(_HEAD_BYTES)).lstrip()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"{file}: cannot be read: {words.lower()}") from error
    if head.startswith(b"{"):
        return False
    if _JOURNAL.match(head):
        return True
    raise UsageError(f"{file}: neither a dump nor a Heritrix recovery journal; nothing was loaded")


def load_file(frontier: Frontier, file: Path, key: KeyOf, *, failures: bool, disregarded: bool) -> LoadReport:
    """Load a dump, which has its keys for dedup, or a journal, whose URLs are made canonical and get them (blocks).

    Raises: UsageError, DumpDamaged, FormatMismatch, StorageError, StoreUnavailable.
    """
    if is_journal(file):
        journal = RecoveryJournal([file], failures=failures, disregarded=disregarded, canonical=canonical, key=key)
        with storage_errors(file, "FILE"):
            return load_journal(journal, frontier.operations.loading)
    if failures or disregarded:
        raise UsageError("--failures and --disregarded are for Heritrix's journal; a dump says how each URL ended")
    with storage_errors(file, "FILE"), _opened(file) as lines:
        return load_dump(_up_to_the_tear(lines), frontier.operations.loading, name=file.name)


def _plain(head: bytes) -> bytes:
    """The beginning of a file, decompressed as far as it goes; empty if it cannot be."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head)
    except zlib.error:
        return b""


@contextmanager
def _writing(file: Path, *, is_gzip: bool) -> Iterator[IO[str]]:
    with gzip.open(file, "wt", encoding="ascii") if is_gzip else file.open("w", encoding="ascii") as out:
        yield out


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    with file.open("rb") as plain:
        is_gzip = plain.read(len(_GZIP)) == _GZIP
        plain.seek(0)
        if is_gzip:
            with gzip.open(plain) as inner:
                yield inner  # type: ignore[misc]
        else:
            yield plain


def _up_to_the_tear(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file whose compressed stream may end too early; the reader notices that its end is missing."""
    try:
        yield from lines
    except _TORN:
        return


#: Verbs that change nothing, so that a job which cannot be written will do.
_READING = frozenset({"ls", "show", "why", "dump"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierCommand:
    """The parsed command line."""

    verb: str
    job: str  #: a folder, or a name below `jobs`
    arguments: Arguments  #: of the verb
    as_json: bool = False


def run_frontier(command: FrontierCommand) -> int:
    """Run it. A foreseeable error becomes one line on standard error and its exit code."""
    return guarded(lambda: _run(command))


def _run(command: FrontierCommand) -> int | None:
    directory = find_job(command.job)
    if is_embedded(directory):
        return _run_embedded(command, directory)
    facts = ask(directory / "state", command.verb, command.arguments)
    if facts is not None:
        _show(command, facts, is_running=True)
        return None
    reads = command.verb in _READING
    if not reads:
        refuse_unwritable(directory)
    # What is changed is never a copy.
    to_be_opened = readable_job(directory) if reads else nullcontext(directory)
    if shares_of(directory):
        with to_be_opened as place, opened_job(place) as stopped:
            _show(command, stopped.answer(command.verb, command.arguments), is_running=False)
        return None
    prepared = _prepared(command, directory)
    with to_be_opened as place, opened(place) as (frontier, order):
        if not reads:
            unfinish_job_of(place)
        if prepared is not None:
            return prepared(frontier, order)
        _show(command, _answered(command, place, frontier, order), is_running=False)
    return None


def _run_embedded(command: FrontierCommand, directory: Path) -> int | None:
    """On the job of a host program, which is looked at by a snapshot while the host holds it."""
    prepared = _prepared(command, None)
    reads = command.verb in _READING
    if not reads:
        refuse_unwritable(directory)
    with open_embedded(directory, reads=reads) as (frontier, order, snapshot):
        if snapshot is not None:
            say(_told(directory, snapshot))
        if prepared is not None:
            return prepared(frontier, order)
        facts = answer(frontier, command.verb, {**command.arguments, WHATEVER_KEY: True})
        _show(command, facts, is_running=snapshot is not None)
    return None


def _told(directory: Path, snapshot: Snapshot) -> str:
    holder = "another process" if snapshot.process is None else f"process {snapshot.process}"
    unknown = "" if snapshot.in_flight is not None else "; what is in flight is not known"
    taken = clock_words(snapshot.taken_s, snapshot.taken_s)
    return f"anabranch: {directory}: {holder} runs it; this is a snapshot of what was durable at {taken}{unknown}"


def _answered(command: FrontierCommand, directory: Path, frontier: Frontier, order: CrawlOrder) -> Facts:
    if command.verb not in ABOUT_URLS:
        return answer(frontier, command.verb, command.arguments)
    with open_explainer(directory, order) as explainer:
        return explainer.explained(
            command.verb, answer(frontier, command.verb, explainer.with_key(command.verb, command.arguments))
        )


# Verbs that take their time


def _prepared(command: FrontierCommand, job: Path | None) -> Callable[[Frontier, CrawlOrder], int | None] | None:
    """What to do with the Frontier, for verbs that a running crawl refuses; whatever can fail before has been tried. `job` is
    the folder with the crawl's logs, if it is a crawl's.
    """
    arguments = command.arguments
    if command.verb == "dump":
        return lambda frontier, order: _dump(frontier, order, arguments["file"])
    if command.verb == "load":
        is_journal(Path(arguments["file"]))
        return lambda frontier, order: _load(frontier, order, arguments)
    if command.verb == "rm":
        matches = _pattern(arguments["url"])
        return lambda frontier, order: _remove(frontier, order, arguments, matches, job)
    return None


def _dump(frontier: Frontier, order: CrawlOrder, file: str | None) -> None:
    lines = frontier.operations.dump({"policy": order.frontier.policy, "program": f"anabranch {VERSION}"})
    if file is not None:
        write_dump(lines, Path(file))
        return
    try:
        write_dump(lines, None)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, Path("standard output")) from error


def _load(frontier: Frontier, order: CrawlOrder, arguments: Arguments) -> int:
    file = Path(arguments["file"])
    report = load_file(
        frontier,
        file,
        Canonicalizer(order.urls.canonicalization).key,
        failures=arguments["failures"],
        disregarded=arguments["disregarded"],
    )
    for line in not_loaded(report):
        say(f"anabranch: {escaped(line)}")
    put(loaded_line(report))
    is_cut = bool(report.cuts) and not is_journal(file)  # a journal ends as Heritrix was killed
    return ExitCode.NO_SEED_ANSWERED if is_cut else ExitCode.DONE


def not_loaded(report: LoadReport) -> Iterator[str]:
    """What was left out, and why; what other shares take in one line, since it may be most of the file. Pure."""
    for refusal in report.refusals:
        yield f"{refusal.place}: {refusal.url}: {refusal.reason}; not loaded"
    if (first := report.first_foreign) is not None:
        more = f", and {report.foreign - 1:,} more of the kind" if report.foreign > 1 else ""
        yield f"{first.place}: {first.url}{more}: {first.reason}; load the file there"
    yield from report.cuts


def loaded_line(report: LoadReport) -> str:
    """What became of the entries, in one line."""
    parts = {
        "queued": report.queued,
        "kept as ended": report.known,
        "known before": report.seen,
        "left to the filter": report.later,
        "refused": report.refused,
        "sent to other shares": report.sent,
        "of other shares": report.foreign,
        "skipped": report.skipped,
        "not understood": report.unknown,
    }
    return "loaded: " + ", ".join(f"{number:,} {what}" for what, number in parts.items() if number or what == "queued")


def _pattern(text: str | None) -> Callable[[str], object]:
    try:
        return re.compile(text or "").search
    except re.error as error:
        raise UsageError(f"--url {text!r}: no regular expression: {error}") from error


def _remove(
    frontier: Frontier, order: CrawlOrder, arguments: Arguments, matches: Callable[[str], object], job: Path | None
) -> None:
    queue = None if arguments["queue"] is None else QueueKey(arguments["queue"])
    operations = frontier.operations
    if queue is not None:
        operations.view(queue)  # an unknown queue is told, not taken for an empty one
    found = operations.matching(lambda url: bool(matches(url)), queue)
    if found and not arguments["yes"] and not consents(f"remove {counted(found, 'queued URL')}? [y/N] "):
        raise UsageError("nothing was removed; add --yes to remove without being asked")
    removed = 0
    if found:
        noted = (
            nullcontext(_unnoted) if job is None else removal_log(job, frontier.now_s, extra_info=order.logs.extra_info)
        )
        with noted as note:
            removed = operations.remove(lambda url: bool(matches(url)), queue, note)
    put(f"removed {counted(removed, 'URL')}")


def _unnoted(_: Sequence[Head]) -> None:
    """A program that embeds the Frontier has no log of ours."""


# What is shown


def _show(command: FrontierCommand, facts: Facts, *, is_running: bool) -> None:
    if command.as_json:
        put(json.dumps(_finite(facts), indent=2))
    elif command.verb == "ls":
        put(listing(facts, is_running=is_running))
    elif "explanation" in facts:
        put(explained(facts))
    elif command.verb in {"block", "unblock"}:
        put(gate_line(facts))
    else:
        put(queue_line(facts))


def _finite(value: Any) -> Any:
    """The same without infinity, which JSON does not have: None in its place."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if value == math.inf else value
