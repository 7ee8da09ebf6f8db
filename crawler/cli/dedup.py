"""`anabranch dedup`: passes on each new line once. `anabranch.dedup` has the filters and the stream."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from anabranch.crawler.cli.terminal import StopSignals, live_totals, say, with_flag
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.outcomes.errors import (
    CrawlerError,
    DiskReadOnly,
    ExitCode,
    NotPermitted,
    UsageError,
    decided,
    deciding,
)
from anabranch.crawler.report.filterreport import filter_line
from anabranch.dedup.capture.frames import CaptureStatistics
from anabranch.dedup.capture.urls import CapturedLines, urls_from_file, urls_from_interface
from anabranch.dedup.errors import BadParameters, DedupError, FormatMismatch, InvariantBroken, StoreFull
from anabranch.dedup.linefilters import (
    SIMILAR,
    Choice,
    ChoiceError,
    LineFilter,
    behind_similar,
    open_filter,
    open_shared,
)
from anabranch.dedup.stream import MAX_LINE_BYTES, Cadence, LineUniq, Output, ReaderGone, pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupCommand:
    """One field per option; None is what is not given."""

    file: str | None = None
    pcap: str | None = None
    interface: str | None = None
    state: Path | None = None
    redis: tuple[str, ...] = ()
    name: str | None = None
    kind: str | None = None
    expected: int | None = None
    false_positive: float | None = None
    signature: str | None = None
    levels: tuple[int, ...] | None = None
    leaf_kind: str | None = None
    leaf_bits: int | None = None
    split_fan_out: int | None = None
    similar: str | None = None  #: the mode of a similarity filter before the filter
    similar_expect: int | None = None
    similar_features: str | None = None  #: names with commas between
    similar_false_positive: float | None = None
    features: str | None = None  #: names with commas between
    site_bound: bool | None = None
    drop_query: bool | None = None
    check: bool = False
    quiet: bool = False

    @property
    def is_lasting(self) -> bool:
        """The filter outlives the run."""
        return bool(self.state or self.redis)

    @property
    def texts(self) -> dict[str, str | None]:
        """The options that must not be empty. A path is never empty: Path("") is the current folder."""
        return {
            "FILE": self.file,
            "--pcap": self.pcap,
            "--interface": self.interface,
            "--name": self.name,
            "--filter": self.kind,
            "--signature": self.signature,
            "--leaf-kind": self.leaf_kind,
            "--features": self.features,
            "--similar": self.similar,
            "--similar-features": self.similar_features,
            "--redis": "" if "" in self.redis else None,
        }

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs that are given."""
        return [name for name in ("FILE", "--pcap", "--interface") if self.texts[name] is not None]


def require_sense(command: DedupCommand) -> None:
    """Raises: UsageError for options that are empty, exclude or need each other."""
    empty = [name for name, value in command.texts.items() if value == ""]
    inputs = command.inputs
    breaches = {
        f"{' and '.join(empty)}: must not be empty": empty,
        f"{' and '.join(inputs)} exclude each other; name one input": len(inputs) > 1,
        "--state and --redis exclude each other; the servers keep the filter": command.redis and command.state,
        "--name names a filter on servers; give --redis URL too": command.name is not None and not command.redis,
        "--check verifies a filter and reads no URLs; give --state DIR or --redis URL alone": (
            command.check and (inputs or not command.is_lasting)
        ),
        f"--check: there is no folder {command.state}": command.check and command.state and not command.state.is_dir(),
        **_breaches_of_stage(command),
    }
    for words, is_breached in breaches.items():
        if is_breached:
            raise UsageError(words)


def _breaches_of_stage(command: DedupCommand) -> dict[str, object]:
    """Return the rules about --similar: the message of each, and a true value if the command breaks it."""
    if command.similar is None:
        return {"--similar-… shapes the stage of --similar; give that, too": _similar(command).given()}
    return {
        "--similar is a stage before a filter; leave out --filter similar": command.kind == SIMILAR,
        f"--similar {command.similar!r}: choose published or site-bound": command.similar not in SIMILAR_MODES,
        "--similar is kept in a folder; leave out --redis": command.redis,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stream of lines."""

    fd: int
    name: str  #: for messages
    ends_at_signal: bool = True  #: False: a signal ends what fills it, and it is read to its end
    capture: CaptureStatistics | None = None  #: the counts of the capture that the lines come from
    captured: CapturedLines | None = None  #: the lines of a capture

    def require_whole(self) -> None:
        """After its end: raise what made it end too early."""
        if self.captured is not None:
            self.captured.require_whole()

    def counted(self) -> str:
        """Return what it met in addition to the lines, in words."""
        return "" if self.capture is None else capture_words(self.capture)

    def fault(self) -> str:
        """After its end: return why nothing can have come out of it, in words; empty: something can."""
        return "" if self.capture is None else capture_fault(self.capture)


@contextmanager
def lines_of(file: str | None) -> Iterator[Source]:
    """The lines of the file, or of standard input if it is None or "-". Raises: UsageError, OSError."""
    if file in (None, "-"):
        fd = descriptor(sys.stdin, "input", "name a FILE")
        if os.isatty(fd):
            say("anabranch: reading URLs from the terminal; Ctrl-D ends them")
        yield Source(fd=fd, name="standard input")
    else:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield Source(fd=fd, name=file)
        finally:
            os.close(fd)


def descriptor(stream: TextIO | None, name: str, advice: str) -> int:
    """The number of a standard stream. Raises: UsageError if the stream is closed; its number may then belong to any file."""
    if stream is None:
        raise UsageError(f"standard {name} is closed; {advice}")
    return stream.fileno()


#: Seconds between two syncs of the filter. Lines are written first: those that a power cut takes from it are written again.
SYNC_S = 10.0

#: The name of the filter on servers without --name.
SHARED_NAME = "anabranch"

#: Exit codes of foreseeable errors; the first that fits counts. `FULL` has the errors of a disk that takes nothing, and a
#: `CrawlerError` has its own code.
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

#: How the similarity filter before a filter compares.
SIMILAR_MODES = ("published", "site-bound")

#: Choice -> the option that makes it.
OPTIONS = {
    "kind": "--filter",
    "expected": "--expect",
    "false_positive": "--false-positive",
    "signature": "--signature",
    "levels": "--levels",
    "leaf_kind": "--leaf-kind",
    "leaf_bits": "--leaf-bits",
    "split_fan_out": "--split-fan-out",
    "features": "--features",
    "site_bound": "--site-bound",
    "drop_query": "--drop-query",
}

#: Parameter of a filter -> its replacement at the beginning of a message.
FLAGS = {name: flag for name, flag in OPTIONS.items() if name != "kind"} | {
    "feature": "--features: feature",
}

#: What a process may have no more of -> what to do.
_LIMITS = {
    errno.ENOMEM: "; raise the limit of memory (ulimit -v), or expect fewer with --expect",
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
}


def run_dedup(command: DedupCommand) -> int:
    """Run it. A foreseeable error becomes one line on standard error and its exit code."""
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
    """Return the exit code of a foreseeable error."""
    if isinstance(error, CrawlerError):
        return error.exit_code
    if isinstance(error, OSError) and error.errno in FULL:
        return ExitCode.DISK_FULL
    return next((code for kind, code in ERROR_EXITS.items() if isinstance(error, kind)), ExitCode.STORE_OR_JOB_IN_USE)


def _choice(command: DedupCommand) -> Choice:
    given: dict[str, Any] = {name: getattr(command, name) for name in OPTIONS}
    if command.features is not None:
        given["features"] = tuple(name.strip() for name in command.features.split(","))
    return Choice(**given)


def _similar(command: DedupCommand) -> Choice:
    """The similarity filter before the filter."""
    features = command.similar_features
    return Choice(
        expected=command.similar_expect,
        false_positive=command.similar_false_positive,
        features=None if features is None else tuple(name.strip() for name in features.split(",")),
        site_bound=None if command.similar is None else command.similar == "site-bound",
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
        if not opened.can_check:
            raise UsageError(f"--check: the filter {opened.kind} cannot be verified")
        opened.check()
        if not command.quiet:
            say(f"{filter_line(opened.facts())}; nothing is wrong with it")
    return ExitCode.DONE


def _run(command: DedupCommand) -> int:
    output = Output(descriptor(sys.stdout, "output", "redirect it"), lasting=command.is_lasting)
    is_capture = bool({"--pcap", "--interface"} & {*command.inputs})
    with (
        StopSignals() as stop,
        _capture(command, stop) if is_capture else lines_of(command.file) as source,
        _filter(command, stop) as opened,
        live_totals(source.fd, quiet=command.quiet) as show,
    ):
        limit = format_bytes(MAX_LINE_BYTES)
        too_long = f"{source.name}: a line is longer than {limit} and left out; the totals count all of them"
        uniq = LineUniq(opened, output.write, on_too_long=lambda: say(f"anabranch: {too_long}"))
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
        totals = uniq.totals
        counts = {"new": totals.new, "seen": totals.seen, "empty": totals.empty}
        if totals.too_long:
            counts[f"longer than {limit}"] = totals.too_long
        lines = ", ".join(f"{number:,} {word}" for word, number in counts.items())
        words = f"read {totals.lines:,} lines: {lines}{source.counted()}\n{filter_line(opened.facts())}"
    decided()
    if not command.quiet:
        say(words)
    return ExitCode.DRAINED if is_drained else ExitCode.DONE


# Where the lines come from


@contextmanager
def _capture(command: DedupCommand, stop: StopSignals) -> Iterator[Source]:
    counts, is_over = CaptureStatistics(), False

    def end() -> None:  # runs in a signal's handler, too, so it waits for no lock
        nonlocal is_over
        is_over = True

    if command.interface is not None:
        stop.on_first.append(end)
        name, urls = command.interface, urls_from_interface(command.interface, stop=lambda: is_over, statistics=counts)
    else:
        name = command.pcap or ""
        urls = urls_from_file("/dev/stdin" if name == "-" else name, statistics=counts)

    with CapturedLines(urls) as lines:
        try:
            yield Source(
                fd=lines.fd,
                name=name,
                ends_at_signal=command.interface is None,
                capture=counts,
                captured=lines,
            )
        finally:
            end()


# The filter


@contextmanager
def _filter(command: DedupCommand, stop: StopSignals) -> Iterator[LineFilter]:
    """The filter of this run; without --state or --redis, one in a temporary folder that is removed at the end."""
    if command.redis:
        name = SHARED_NAME if command.name is None else command.name
        opened = open_shared(command.redis, name, _choice(command))
    elif command.state is not None:
        try:
            opened = _opened(command.state, command)
        except OSError as error:
            kind = UNWRITABLE.get(error.errno or 0)
            if kind is None:
                raise
            advice = "name a folder that is writable"
            if os.path.isdir(command.state):  # noqa: PTH112 - a Path raises if it may not look
                advice = "a filter must be writable to be opened, to verify it, too: copy the folder and name the copy"
            raise kind(f"{_words(error)}; {advice}") from error
    else:
        folder = Path(tempfile.mkdtemp(prefix="anabranch-dedup-"))
        remove = partial(shutil.rmtree, folder, ignore_errors=True)
        stop.on_second.append(remove)
        try:
            # Never closed: that would write it to the disk first.
            yield _opened(folder / "filter", command)
        finally:
            remove()
        return
    try:
        yield opened
    finally:
        opened.close()


def _opened(folder: Path, command: DedupCommand) -> LineFilter:
    """The folder's filter; if --similar is given, or was before, with that stage before it. Warns if it loses too much."""
    opened = open_filter(folder, _choice(command))
    if opened.warning:
        say(f"anabranch: {_as_options(opened.warning)}")
    if command.similar is None and not (folder / SIMILAR).is_dir():
        return opened
    try:
        return behind_similar(opened, folder / SIMILAR, _similar(command))
    except BaseException:
        opened.close()
        raise


# Messages


def _as_options(warning: str) -> str:
    """The sentence with the names of options."""
    return warning.replace("false_positive", "--false-positive").replace("choose filter", "choose --filter")


def capture_words(counts: CaptureStatistics) -> str:
    """Return the counts of a capture in words, for the line of totals. Pure."""
    numbers = {each.name.replace("_", " "): getattr(counts, each.name) for each in fields(counts)}
    words = ", ".join(f"{number:,} {what}" for what, number in numbers.items() if number)
    return f"; capture: {words or 'no frames'}"


def capture_fault(counts: CaptureStatistics) -> str:
    """Why no request can have come out of a capture that holds something; empty if one could have. Pure."""
    useless = counts.other_frames + counts.fragments + counts.malformed_packets + counts.truncated_frames
    if counts.segments or counts.frames > useless or not counts.frames + counts.damaged_records:
        return ""
    return "no frame could be read: none is whole and IPv4 or IPv6 with TCP, of a link type that is known"
