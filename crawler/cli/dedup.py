"""`anabranch dedup`: lines in, each new one out, once; from any error to one line and an exit code."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path

from anabranch.crawler.cli.dedup_command import DedupCommand, require_sense
from anabranch.crawler.cli.dedup_source import Source, descriptor, lines_of
from anabranch.crawler.cli.live_totals import live_totals
from anabranch.crawler.cli.saying import say, with_flag
from anabranch.crawler.cli.stopping import StopSignals
from anabranch.crawler.orders.quantities import format_bytes
from anabranch.crawler.outcomes.deciding import decided, deciding
from anabranch.crawler.outcomes.errors import CrawlerError, DiskReadOnly, NotPermitted, UsageError
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.dedup.capture.lines import captured_lines
from anabranch.dedup.capture.statistics import CaptureStatistics
from anabranch.dedup.capture.urls import urls_from_file, urls_from_interface
from anabranch.dedup.errors import BadParameters, DedupError, FormatMismatch, InvariantBroken, StoreFull
from anabranch.dedup.linefilters import Choice, ChoiceError, LineFilter, open_filter, open_shared
from anabranch.dedup.stream import MAX_LINE_BYTES, Cadence, LineUniq, Output, ReaderGone, Totals, pieces

#: What was marked is made durable this often. It was written before, so what a power cut takes is only written again.
SYNC_S = 10.0

#: Of the filter on servers, unless --name says otherwise.
SHARED_NAME = "anabranch"

#: What a foreseeable error means for the caller; the first that fits counts. A disk that takes nothing is told by its number,
#: and an error of this room knows its code.
ERROR_EXITS: dict[type[Exception], ExitCode] = {
    StoreFull: ExitCode.DISK_FULL,
    BadParameters: ExitCode.USAGE,
    FormatMismatch: ExitCode.BAD_ORDER,
    InvariantBroken: ExitCode.BAD_ORDER,
}
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})

#: Of a state that cannot be opened because nothing in it may be written.
UNWRITABLE: dict[int, type[CrawlerError]] = {
    errno.EROFS: DiskReadOnly,
    errno.EACCES: NotPermitted,
    errno.EPERM: NotPermitted,
}

#: Choice -> the option that makes it.
OPTIONS = {
    "kind": "--filter",
    "expected": "--expect",
    "false_positive": "--false-positive",
    "signature": "--signature",
    "levels": "--levels",
    "features": "--features",
    "site_bound": "--site-bound",
    "drop_query": "--drop-query",
}

#: What a filter calls a parameter -> what stands for it where a message begins with it.
FLAGS = {name: flag for name, flag in OPTIONS.items() if name != "kind"} | {
    "feature": "--features: feature",
    "leaf_bits": "--false-positive: leaf_bits",
}

#: What a process may have no more of -> what to do.
_LIMITS = {
    errno.ENOMEM: "; raise the limit of memory (ulimit -v), or expect fewer with --expect",
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
}


def run_dedup(command: DedupCommand) -> int:
    """Run it; every foreseeable error is one line on standard error and its exit code."""
    try:
        with deciding():
            require_sense(command)
            return _check(command) if command.check else _run(command)
    except ReaderGone:
        return ExitCode.READER_GONE
    except (CrawlerError, DedupError, OSError) as error:
        say(f"anabranch: {_words(error)}")
        return exit_code(error)


def exit_code(error: Exception) -> ExitCode:
    """What the error means for the caller."""
    if isinstance(error, CrawlerError):
        return error.exit_code
    if isinstance(error, OSError) and error.errno in FULL:
        return ExitCode.DISK_FULL
    return next((code for kind, code in ERROR_EXITS.items() if isinstance(error, kind)), ExitCode.STORE_OR_JOB_IN_USE)


def _choice(command: DedupCommand) -> Choice:
    features = command.features
    return Choice(
        kind=command.kind,
        expected=command.expected,
        false_positive=command.false_positive,
        signature=command.signature,
        levels=command.levels,
        features=None if features is None else tuple(name.strip() for name in features.split(",")),
        site_bound=command.site_bound,
        drop_query=command.drop_query,
    )


def _words(error: Exception) -> str:
    """The error as one line: the thing, then what is wrong with it."""
    if isinstance(error, ChoiceError):
        return f"{OPTIONS[error.choice]}: {error}"
    if isinstance(error, BadParameters):
        return with_flag(str(error), FLAGS)
    if isinstance(error, OSError) and error.strerror:
        named = error.filename
        thing = os.fsdecode(named) + ": " if isinstance(named, str | bytes) else ""
        return thing + error.strerror[:1].lower() + error.strerror[1:] + _LIMITS.get(error.errno or 0, "")
    return str(error)


def _check(command: DedupCommand) -> int:
    with _filter(command, StopSignals()) as opened:
        if opened.check is None:
            raise UsageError(f"--check: the filter {opened.kind} cannot be verified")
        opened.check()
        if not command.quiet:
            say(f"{_filter_words(opened)}; nothing is wrong with it")
    return ExitCode.DONE


def _run(command: DedupCommand) -> int:
    output = Output(descriptor(sys.stdout, "output", "redirect it"), lasting=command.is_lasting)
    with (
        StopSignals() as stop,
        _source(command, stop) as source,
        _filter(command, stop) as opened,
        live_totals(source.fd, quiet=command.quiet) as show,
    ):
        uniq = LineUniq(opened, output.write, on_too_long=partial(_warn, source.name))
        cadence = Cadence(SYNC_S)
        for piece in pieces(source.fd, source.name, stop.wake if source.ends_at_signal else None):
            uniq.feed(piece)
            show(uniq.totals.lines, uniq.totals.new, uniq.totals.read_bytes)
            if command.is_lasting:
                cadence.keep(opened.sync, uniq.totals.new)
        is_drained = stop.is_set and source.ends_at_signal
        if not is_drained:
            uniq.end()
            source.require_whole()
            if fault := source.fault():
                say(f"anabranch: {source.name}: {fault}")
        words = f"{_totals_words(uniq.totals)}; {_filter_words(opened)}{source.counted()}"
    decided()
    if not command.quiet:
        say(words)
    return ExitCode.DRAINED if is_drained else ExitCode.DONE


# Where the lines come from


@contextmanager
def _source(command: DedupCommand, stop: StopSignals) -> Iterator[Source]:
    is_capture = command.pcap is not None or command.interface is not None
    with _capture(command, stop) if is_capture else lines_of(command.file) as source:
        yield source


@contextmanager
def _capture(command: DedupCommand, stop: StopSignals) -> Iterator[Source]:
    counts, is_over = CaptureStatistics(), False

    def end() -> None:  # runs in a signal's handler, too, so it waits for no lock
        nonlocal is_over
        is_over = True

    if command.interface is not None:
        stop.at_first = end
        name, urls = command.interface, urls_from_interface(command.interface, stop=lambda: is_over, statistics=counts)
    else:
        name = command.pcap or ""
        urls = urls_from_file("/dev/stdin" if name == "-" else name, statistics=counts)

    with captured_lines(urls) as lines:
        try:
            yield Source(
                fd=lines.fd,
                name=name,
                ends_at_signal=command.interface is None,
                require_whole=lines.require_whole,
                counted=partial(capture_words, counts),
                fault=partial(capture_fault, counts),
            )
        finally:
            end()


# The filter


@contextmanager
def _filter(command: DedupCommand, stop: StopSignals) -> Iterator[LineFilter]:
    """The filter of this run; without --state or --redis, one in a folder for temporary files that goes with the run."""
    if command.redis:
        name = SHARED_NAME if command.name is None else command.name
        opened = open_shared(command.redis, name, _choice(command))
    elif command.state is not None:
        opened = _opened_state(command.state, _choice(command))
    else:
        with _temporary_folder(stop) as folder:
            # Never closed: that would write it to the disk first.
            yield open_filter(folder / "filter", _choice(command))
        return
    try:
        yield opened
    finally:
        opened.close()


def _opened_state(folder: Path, choice: Choice) -> LineFilter:
    try:
        return open_filter(folder, choice)
    except OSError as error:
        kind = UNWRITABLE.get(error.errno or 0)
        if kind is None:
            raise
        advice = "name a folder that is writable"
        if os.path.isdir(folder):  # noqa: PTH112 - a Path raises if it may not look
            advice = "a filter must be writable to be opened, to verify it, too: copy the folder and name the copy"
        raise kind(f"{_words(error)}; {advice}") from error


@contextmanager
def _temporary_folder(stop: StopSignals) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="anabranch-dedup-"))

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    stop.at_second = remove
    try:
        yield folder
    finally:
        remove()


# What is said


def _warn(name: str) -> None:
    limit = format_bytes(MAX_LINE_BYTES)
    say(f"anabranch: {name}: a line is longer than {limit} and left out; the totals count all of them")


def _totals_words(totals: Totals) -> str:
    counts = {"new": totals.new, "seen": totals.seen, "empty": totals.empty}
    if totals.too_long:
        counts[f"longer than {format_bytes(MAX_LINE_BYTES)}"] = totals.too_long
    return f"read {totals.lines:,} lines: " + ", ".join(f"{number:,} {word}" for word, number in counts.items())


def _filter_words(opened: LineFilter) -> str:
    now = opened.totals()
    words = f"filter {opened.kind}: {now.keys:,} keys, P(false drop) {now.false_drop:.2g}"
    return words if now.expected_lost is None else f"{words}, expected lost {now.expected_lost:.2g}"


def capture_words(counts: CaptureStatistics) -> str:
    """What a capture met, for the totals. Pure."""
    numbers = {each.name.replace("_", " "): getattr(counts, each.name) for each in fields(counts)}
    words = ", ".join(f"{number:,} {what}" for what, number in numbers.items() if number)
    return f"; capture: {words or 'no frames'}"


def capture_fault(counts: CaptureStatistics) -> str:
    """Why no request can have come out of a capture that holds something; empty if one could have. Pure."""
    useless = counts.other_frames + counts.fragments + counts.malformed_packets + counts.truncated_frames
    if counts.segments or counts.frames > useless or not counts.frames + counts.damaged_records:
        return ""
    return "no frame could be read: none is whole and IPv4 or IPv6 with TCP, of a link type that is known"
