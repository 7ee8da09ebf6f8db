"""Seeds: reading them from what the operator names, and the source tags made of those that a job has.

`seedtable` records them, and `seeding` schedules them. A URL carries the number of its seed as the Frontier's payload; recorded
seeds never change their order. Links have the payload of their page, and the target of a redirect has that of its URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from anabranch.crawler.job.state import JOB_FILE
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, storage_errors
from anabranch.crawler.urls.parsing import refusal, seed_url
from anabranch.frontier import closed_rows
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.jobfolder import STATE

COMMAND_LINE = "command line"
ORDER = "crawl order"
STDIN = "-"

#: Files in which older programs kept the seeds of a job, in its state folder, and their number.
OLD_SEEDS = "seeds.jsonl"
OLD_COUNT = "seeds.jsonl.count"

_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(r"(?:^|\s)#.*")
#: A line of Heritrix's recovery journal: what became of a URL, and the URL.
_JOURNAL = re.compile(r"F[+edfirs] [a-z]+:")
#: Suffixes of seed files; an argument with one that is no file is a mistake, not a host.
_FILE_SUFFIXES = (".txt", ".lst", ".list", ".seeds")
#: Longest text of a bad seed that is shown.
_SHOWN_CHARS = 200
#: The beginning of the line of `none_left`.
NONE_LEFT = "no seed is left"
#: Most bad seeds that are shown where no seed is left.
_SHOWN_REPORTS = 5
#: Bytes of seeds in one question to a running crawl; it reads lines of up to 1 MiB.
_QUESTION_BYTES = 1 << 18


class SeedsDamaged(CrawlerError):
    """The seeds of a job are not what was written: another program wrote to them, or the disk failed."""

    exit_code: ExitCode = ExitCode.BAD_ORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A URL that the crawl begins with."""

    url: str  #: canonical
    source: str  #: `file:line`, `-:3` for standard input, `command line`, `crawl order`, or `redirect`
    via: str | None = None  #: the seed that redirected here; None if the operator named it


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSeed:
    """Text named as a seed that is no seed; it is reported and skipped."""

    text: str  #: at most 200 characters of it
    source: str  #: where it was named
    reason: str  #: what is wrong, and what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedList:
    """The seeds that the operator named, in order."""

    seeds: tuple[Seed, ...]  #: each URL once, from its first source
    bad: tuple[BadSeed, ...]


def read_seeds(arguments: Sequence[str], stdin: BinaryIO, named_in: str = COMMAND_LINE) -> SeedList:
    """The seeds that the arguments name: a URL, a file of URLs (if it exists as a file), or `-` for standard input.

    `named_in` is the place of the arguments. A file has one URL a line; `#` begins a comment at the start of a line or after a
    space; blank lines, CRLF and a UTF-8 byte order mark are ignored. Bad input is in `bad`, also an unreadable or empty file.
    """
    seeds: dict[str, Seed] = {}
    bad: list[BadSeed] = []
    for argument in arguments:
        for found in _read_argument(argument, stdin, named_in):
            if isinstance(found, BadSeed):
                bad.append(found)
            else:
                seeds.setdefault(found.url, found)
    return SeedList(seeds=tuple(seeds.values()), bad=tuple(bad))


def chunks_of(seeds: Sequence[Seed]) -> Iterator[list[Seed]]:
    """The seeds in parts that fit into a question each."""
    chunk: list[Seed] = []
    size_bytes = 0
    for seed in seeds:
        size_bytes += 2 * len(seed.url) + len(seed.source.encode()) + 64
        chunk.append(seed)
        if size_bytes > _QUESTION_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _read_argument(argument: str, stdin: BinaryIO, named_in: str) -> Iterator[Seed | BadSeed]:
    advice = "" if is_path(argument) else "if it is a URL, write http:// before it"
    if argument == STDIN:
        yield from _read_lines(stdin, STDIN)
    elif is_file(argument):
        try:
            with Path(argument).open("rb") as lines:
                yield from _read_lines(lines, argument)
        except OSError as error:
            yield BadSeed(text=argument, source=named_in, reason=f"it cannot be read: {error.strerror}")
    elif _is_folder(argument):
        reason = "it is a folder; name the files of URLs in it" + (advice and f", or {advice}")
        yield BadSeed(text=argument, source=named_in, reason=reason)
    elif is_path(argument) or (argument.lower().endswith(_FILE_SUFFIXES) and "://" not in argument):
        yield BadSeed(text=argument, source=named_in, reason="there is no such file" + (advice and f"; {advice}"))
    else:
        yield parse_seed(argument, named_in)


def is_file(argument: str) -> bool:
    """Whether it exists and is no folder (a folder may well be named like a host). Too long a name is no file."""
    try:
        path = Path(argument)
        return path.exists() and not path.is_dir()
    except OSError:
        return False


def _is_folder(argument: str) -> bool:
    """Whether it is a folder and not written like a host: wget leaves folders named like hosts behind."""
    looks_like_host = "." in argument.partition("/")[0].strip(".")
    try:
        return bool(argument) and not looks_like_host and Path(argument).is_dir()
    except OSError:
        return False


def is_path(argument: str) -> bool:
    """Whether it can only be a file or folder."""
    return argument.startswith(("/", "./", "../")) and not argument.startswith("//")


def none_left(reports: Sequence[str]) -> str:
    """One line that no seed is left, and why not. Pure."""
    more = [f"and {len(reports) - _SHOWN_REPORTS:,} more"] if len(reports) > _SHOWN_REPORTS else []
    return "; ".join([NONE_LEFT, *reports[:_SHOWN_REPORTS], *more])


def _read_lines(lines: Iterable[bytes], name: str) -> list[Seed | BadSeed]:
    """The seeds of the lines; none of a file that is no text, such as one in UTF-16, since any word could be a host."""
    found: list[Seed | BadSeed] = []
    undecoded = 0
    for number, line in enumerate(lines, start=1):
        source = f"{name}:{number}"
        if b"\0" in line:
            return [BadSeed(text=name, source=source, reason="the file is not UTF-8 text; save it as UTF-8")]
        try:
            text = line.removeprefix(_BOM if number == 1 else b"").decode()
        except UnicodeDecodeError:
            undecoded += 1
            if undecoded == 1:
                shown = line.decode(errors="backslashreplace").strip()[:_SHOWN_CHARS]
                found.append(BadSeed(text=shown, source=source, reason="it is not UTF-8; save the file as UTF-8"))
            continue
        if text := _COMMENT.sub("", text).strip():
            found.append(parse_seed(text, source))
    if undecoded > 1:
        found.append(BadSeed(text=name, source=name, reason=f"{undecoded - 1:,} more lines are not UTF-8"))
    return found or [BadSeed(text=name, source=name, reason="it holds no URL; write one a line")]


def parse_seed(text: str, source: str) -> Seed | BadSeed:
    """The seed that a text is."""
    url = seed_url(text)
    if url is not None:
        return Seed(url=url, source=source)
    reason = _of_heritrix(text)
    if not reason:
        reason = f"{refusal(text) or 'it is not an http or https URL'}; write it like http://example.org/"
    return BadSeed(text=text[:_SHOWN_CHARS], source=source, reason=reason)


def _of_heritrix(text: str) -> str:
    """Name a line of Heritrix's seed files and journals, and where it goes here; empty for other lines."""
    if text.startswith("+"):
        return "it is a directive of Heritrix for the scope; put its SURT prefix in accept of [scope]"
    if _JOURNAL.match(text):
        return "it is a line of a Heritrix journal, not a seed; give its URL alone"
    return ""


def has_seeds(directory: Path) -> bool:
    """Whether the folder is a job with seeds to continue, maybe damaged ones; then the command need not name any.

    Takes no lock, and imports none of what writes them. Raises: StorageError.
    """
    state = directory / STATE
    file = state / JOB_FILE
    with storage_errors(directory):
        if has_old_seeds(state):
            return True
        if not file.is_file():
            return False
    try:
        return bool(closed_rows(file, "SELECT 1 FROM job_seed LIMIT 1"))
    except StoreUnavailable as error:
        return "no such table" not in str(error.__cause__)  # whoever opens it tells what else is wrong


def has_old_seeds(state: Path) -> bool:
    """Whether the job has seeds that an older program wrote. Raises: OSError."""
    file = state / OLD_SEEDS
    return (file.is_file() and file.stat().st_size > 0) or (state / OLD_COUNT).is_file()


#: Instead of a seed's number in the payload of a URL that is queued again and has no known seed.
_NO_SEED = b"\xff" * 8


def queued_again(payload: bytes | None) -> bytes:
    """The payload of a URL that has ended and is queued again: a zero byte, then its seed's number."""
    return b"\0" + (inherited(payload) or _NO_SEED)


def is_queued_again(payload: bytes | None) -> bool:
    """Whether the URL with this payload has ended before, and is queued again on purpose."""
    return payload is not None and len(payload) > 1 and payload.startswith(b"\0")


def inherited(payload: bytes | None) -> bytes | None:
    """The payload of a page's outlinks: its own, without the mark of `queued_again`."""
    if payload is None or not is_queued_again(payload):
        return payload
    return None if payload[1:] == _NO_SEED else payload[1:]


class SourceTags:
    """Seeds to numbers, and back. Seeds are added as they are recorded, redirects included."""

    def __init__(self, seeds: Iterable[Seed] = ()) -> None:
        self._urls: list[str] = []
        self._numbers: dict[str, int] = {}
        self.note(seeds)

    def __len__(self) -> int:
        return len(self._urls)

    def note(self, seeds: Iterable[Seed]) -> None:
        """Add new seeds, in the order in which they are recorded; known ones keep their numbers."""
        for seed in seeds:
            if seed.url not in self._numbers:
                self._numbers[seed.url] = len(self._urls)
                self._urls.append(seed.url)

    def payload_of(self, seed: str) -> bytes | None:
        """The payload for candidates of a seed; None if it is not known."""
        number = self._numbers.get(seed)
        return None if number is None else number.to_bytes(max((number.bit_length() + 7) // 8, 1), "big")

    def tag_of(self, payload: bytes | None) -> str | None:
        """The seed of a lease's payload, or None."""
        if not payload:
            return None
        number = int.from_bytes(payload, "big")
        return self._urls[number] if number < len(self._urls) else None
