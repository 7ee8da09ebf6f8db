"""`anabranch frontier` and `why`: runs a verb on a job, running or not, and reads and writes dumps and journals."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from anabranch.crawler.cli.tables import explained, gate_line, listing, queue_line
from anabranch.crawler.cli.terminal import consents, guarded, put, say
from anabranch.crawler.job.seeding import key_by
from anabranch.crawler.operate.finding import operated
from anabranch.crawler.order.loading import caller_of
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.outcomes.errors import ExitCode, UsageError, storage_error, storage_errors
from anabranch.crawler.run.verbs import READING, STOPPED_ONLY, Arguments, Facts
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.crawler.urls.parsing import canonical
from anabranch.dedup.files.durable import UNFINISHED, descriptor, sync_file, sync_folder
from anabranch.frontier import Frontier, LoadReport, RecoveryJournal, load_dump, load_journal
from anabranch.frontier.records import QueueKey
from anabranch.frontier.times import counted

_GZIP = b"\x1f\x8b"
#: The beginning of a line of Heritrix's journal.
_JOURNAL = re.compile(rb"(?:F[+sdefri]|T|E) ")
#: Bytes of a file that are read to recognize its format.
_HEAD_BYTES = 4096
_TORN = (EOFError, zlib.error, gzip.BadGzipFile)


def write_dump(lines: Iterable[str], file: Path | None) -> None:
    """Write the lines to standard output, or to a file, compressed if its name ends in `.gz`.

    The file is replaced when the new one is on the disk. A link is followed; a pipe or a device is written to as it is.
    Raises: StorageError; BrokenPipeError.
    """
    if file is None:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
        return
    with _output_errors(file, "--output"):
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
def _output_errors(file: Path, option: str) -> Iterator[None]:
    """Translate errors as `storage_errors` does, but let a `BrokenPipeError` pass."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, file, option) from error


def is_journal(file: Path) -> bool:
    """Whether the file is Heritrix's recovery journal; False: it is a dump. Raises: UsageError if it is neither."""
    try:
        with file.open("rb") as plain:
            head = plain.read(_HEAD_BYTES)
        if head.startswith(_GZIP):
            with suppress(zlib.error):
                head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head)
        head = head.lstrip()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"{file}: cannot be read: {words.lower()}") from error
    if head.startswith(b"{"):
        return False
    if _JOURNAL.match(head):
        return True
    raise UsageError(f"{file}: neither a dump nor a Heritrix recovery journal; nothing was loaded")


def load_file(frontier: Frontier, file: Path, key: KeyOf, *, failures: bool, disregarded: bool) -> LoadReport:
    """Load a dump, or a journal with `key` for dedup. Raises: UsageError, DumpDamaged, FormatMismatch, or as a store."""
    if is_journal(file):
        journal = RecoveryJournal([file], failures=failures, disregarded=disregarded, canonical=canonical, key=key)
        with storage_errors(file, "FILE"):
            return load_journal(journal, frontier.operations.loading)
    if failures or disregarded:
        raise UsageError("--failures and --disregarded are for Heritrix's journal; a dump has how each URL ended")
    with storage_errors(file, "FILE"), file.open("rb") as plain:
        is_gzip = plain.read(len(_GZIP)) == _GZIP
        plain.seek(0)
        with gzip.open(plain) if is_gzip else nullcontext(plain) as lines:
            return load_dump(_up_to_the_tear(lines), frontier.operations.loading, name=file.name)


@contextmanager
def _writing(file: Path, *, is_gzip: bool) -> Iterator[IO[str]]:
    with gzip.open(file, "wt", encoding="ascii") if is_gzip else file.open("w", encoding="ascii") as out:
        yield out


def _up_to_the_tear(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a compressed stream up to a torn end; the reader notices that the end is missing."""
    with suppress(*_TORN):
        yield from lines


def run_frontier(
    verb: str, job: str, arguments: Arguments, *, as_json: bool = False, run_code: bool = False, **named: Any
) -> int:
    """Run a verb on a job, named by its folder or below `jobs`. A foreseeable error is one line and its exit code.

    With `run_code` the user functions of its order run. `named`: the `order_file` and `settings` of the command.
    """

    def run() -> int | None:
        caller = caller_of(run_code=run_code, **named)
        found = operated(job, say, caller)
        if verb in STOPPED_ONLY:
            with found.held(verb, reads=verb in READING) as (frontier, order):
                return _prepared(verb, arguments, found.logs)(frontier, order)
        facts, is_running = found.answer(verb, arguments)
        put(_shown(verb, facts, as_json=as_json, is_running=is_running))
        return None

    return guarded(run)


# Verbs that a running crawl refuses


def _prepared(verb: str, arguments: Arguments, job: Path | None) -> Callable[[Frontier, CrawlOrder], int | None]:
    """Check the arguments, then return the verb's action on the Frontier. `job`: the folder with the crawl's logs, if any.

    Raises: UsageError.
    """
    if verb == "dump":
        return lambda frontier, order: _dump(frontier, order, arguments["file"])
    if verb == "load":
        is_journal(Path(arguments["file"]))
        return lambda frontier, order: _load(frontier, order, arguments)
    try:
        matches = re.compile(arguments["url"] or "").search
    except re.error as error:
        raise UsageError(f"--url {arguments['url']!r}: no regular expression: {error}") from error
    return lambda frontier, order: _remove(frontier, order, arguments, matches, job)


def _dump(frontier: Frontier, order: CrawlOrder, file: str | None) -> None:
    lines = frontier.operations.dump({"policy": order.frontier.policy, "program": f"anabranch {VERSION}"})
    with _output_errors(Path("standard output"), "--job") if file is None else nullcontext():
        write_dump(lines, None if file is None else Path(file))


def _load(frontier: Frontier, order: CrawlOrder, arguments: Arguments) -> int:
    file = Path(arguments["file"])
    report = load_file(
        frontier,
        file,
        key_by(order, "the job"),
        failures=arguments["failures"],
        disregarded=arguments["disregarded"],
    )
    for line in not_loaded(report):
        say(f"anabranch: {line}")
    put(loaded_line(report))
    is_cut = bool(report.cuts) and not is_journal(file)  # a journal ends as Heritrix was killed
    return ExitCode.NO_SEED_ANSWERED if is_cut else ExitCode.DONE


def not_loaded(report: LoadReport) -> Iterator[str]:
    """Yield a line for each refused entry, with the reason, and for each file that ends too early. Pure."""
    for refusal in report.refusals:
        yield f"{refusal.place}: {refusal.url}: {refusal.reason}; not loaded"
    yield from report.cuts


def loaded_line(report: LoadReport) -> str:
    """Return one line that counts the entries by their results."""
    parts = {
        "queued": report.queued,
        "kept as ended": report.known,
        "known before": report.seen,
        "left to the filter": report.later,
        "refused": report.refused,
        "skipped": report.skipped,
        "not understood": report.unknown,
    }
    return "loaded: " + ", ".join(f"{number:,} {what}" for what, number in parts.items() if number or what == "queued")


def _remove(
    frontier: Frontier, order: CrawlOrder, arguments: Arguments, matches: Callable[[str], object], job: Path | None
) -> None:
    from anabranch.crawler.run.stopped_verbs import removal_log  # noqa: PLC0415 - commands on a running crawl do not need it

    queue = None if arguments["queue"] is None else QueueKey(arguments["queue"])
    operations = frontier.operations
    if queue is not None:
        operations.view(queue)  # raises if the queue is unknown
    found = operations.matching(lambda url: bool(matches(url)), queue)
    if found and not arguments["yes"] and not consents(f"remove {counted(found, 'queued URL')}? [y/N] "):
        raise UsageError("nothing was removed; add --yes to remove without being asked")
    removed = 0
    if found:
        logged = (
            nullcontext()  # a program that embeds the Frontier has no log of ours
            if job is None
            else removal_log(job, frontier.now_s, extra_info=order.logs.extra_info)
        )
        with logged as note:
            removed = operations.remove(lambda url: bool(matches(url)), queue, note)
    put(f"removed {counted(removed, 'URL')}")


# Output


def _shown(verb: str, facts: Facts, *, as_json: bool, is_running: bool) -> str:
    if as_json:
        return json.dumps(_finite(facts), indent=2)
    if verb == "ls":
        return listing(facts, is_running=is_running)
    if "explanation" in facts:
        return explained(facts)
    return gate_line(facts) if verb in {"block", "unblock"} else queue_line(facts)


def _finite(value: Any) -> Any:
    """Return the value with None in place of each infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if value == math.inf else value
