"""Seeds: reading them from what the operator names, the job's durable seed book, and the source tags made of it.

`seeding` schedules the seeds of the book. A URL carries the number of its seed in the book as the Frontier's payload; the book
never changes its order. Links have the payload of their page, and the target of a redirect has that of its URL.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol, Self
from zlib import crc32

from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, storage_errors
from anabranch.crawler.urls.parsing import canonical, seed_url, wrong_part
from anabranch.dedup.files.durable import AppendOnlyFile, descriptor, replace_file

COMMAND_LINE = "command line"
ORDER = "crawl order"
STDIN = "-"

#: The job's durable list of seeds, in its state folder.
SEED_BOOK = "seeds.jsonl"
#: Ending of the file with the number of lines of a seed book.
COUNT = ".count"

_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(r"(?:^|\s)#.*")
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
_COUNT_TEXT = re.compile(rb"([0-9]{16}) ([0-9a-f]{8})\n")
#: Fields of a line that older versions wrote.
_OLD_FIELDS = ("url", "source", "via")


class SeedBookDamaged(CrawlerError):
    """The seed book is not what was written: another program wrote to it, or the disk failed."""

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
    return BadSeed(
        text=text[:_SHOWN_CHARS],
        source=source,
        reason=f"{wrong_part(text) or 'it is not an http or https URL'}; write it like http://example.org/",
    )


class Book(Protocol):
    """The seeds of a job, each once; what `add` and `add_all` return is durable. Both may block."""

    def __iter__(self) -> Iterator[Seed]: ...

    def __contains__(self, url: object) -> bool: ...

    def after(self, count: int) -> Sequence[Seed]:
        """The seeds after the first `count`."""
        ...

    def add(self, seed: Seed) -> bool:
        """Record a seed; False if its URL is in the book already."""

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        """Record those that are new, and return them."""


class SeedBook:
    """The seeds of a job, durable: a file of one JSON object a line, {"url", "source", "via", "crc"}.

    Returned seeds are on disk. Seeds that are added together are in the book all or none: one seed is appended,
    and a torn line is not read, and cut before the next is written; several replace the file at once. A URL is in the book
    once; its first source wins. Memory: all seeds. One writer at a time (the job's lock); opening writes nothing.

    `crc` is a checksum of all lines up to its own; older programs wrote lines without it. Another file (`COUNT`), written after
    the book, has the number of lines and their checksum: the book may have more lines; fewer are damage, and so is a torn line
    in a book without a count.

    Raises: SeedBookDamaged if the book is not what was written; StorageError (DiskFull …) when the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count_path = path.with_name(path.name + COUNT)
        self._seeds: dict[str, Seed] = {}
        self._lines = 0
        self._crc = 0  # of all lines so far
        self._file: AppendOnlyFile | None = None
        self._is_counted = False  # the count file agrees with the book
        with storage_errors(path):
            self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._seeds)

    def __iter__(self) -> Iterator[Seed]:
        return iter(self._seeds.values())

    def __contains__(self, url: object) -> bool:
        return url in self._seeds

    def after(self, count: int) -> Sequence[Seed]:
        """The seeds after the first `count`. Cost: a step for each seed of the book."""
        return list(islice(self._seeds.values(), count, None))

    def add(self, seed: Seed) -> bool:
        """Record a seed; False if its URL is in the book already. Cost of a new one: one sync."""
        return bool(self.add_all((seed,)))

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        """Record those that are new, all or none, and return them. Cost: one append, or for several the whole book."""
        new: dict[str, Seed] = {}
        for seed in seeds:
            if seed.url not in self._seeds:
                new.setdefault(seed.url, seed)
        if new:
            self._write(new.values())
            self._seeds.update(new)
        if self._lines and not self._is_counted:
            # In place and without a sync: an outdated count, as after a power cut, does no harm.
            text = b"%016d %08x\n" % (self._lines, self._crc)  # of constant length, so that it is written in one piece
            with storage_errors(self._count_path):
                if self._count_path.exists():
                    with descriptor(self._count_path, os.O_WRONLY) as fd:
                        os.pwrite(fd, text, 0)
                else:
                    replace_file(self._count_path, text)
            self._is_counted = True
        return tuple(new.values())

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> None:
        """Read every whole line. The count first: the book may have more lines than that, never fewer."""
        counted = _count(self._count_path)
        is_counted = counted is None
        written, crc = counted or (0, 0)
        *lines, torn = self._text().split(b"\n")
        if torn and counted is None:
            raise _damaged(f"{self._path}:{len(lines) + 1}: the last line is cut off", self._path)
        for number, line in enumerate(lines, start=1):
            place = f"{self._path}:{number}: the line is damaged"
            seed, self._crc = _parsed(line, self._crc, place, self._path)
            self._lines = number
            self._seeds.setdefault(seed.url, seed)
            if number == written:
                is_counted = self._crc == crc
        if not is_counted:
            what = f"{written} lines with the checksum {crc:08x} were written, and the book has others"
            raise _damaged(f"{self._path}: {what}", self._path)
        self._is_counted = counted == (self._lines, self._crc)

    def _text(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            if not self._path.parent.is_dir():
                raise
            return b""

    def _write(self, seeds: Collection[Seed]) -> None:
        """Make all of it durable, or raise an error and leave the old book."""
        added, crc = [], self._crc
        for seed in seeds:
            line, crc = _line(seed, crc)
            added.append(line)
        with storage_errors(self._path):
            if self._lines and len(added) == 1:
                if self._file is None:
                    self._file = AppendOnlyFile(self._path)
                self._file.append(added[0])
                self._file.keep()
            else:
                self.close()  # it is open on the old file
                before = self._text()
                replace_file(self._path, before[: before.rfind(b"\n") + 1] + b"".join(added))
        self._lines, self._crc, self._is_counted = self._lines + len(added), crc, False


def is_begun(path: Path) -> bool:
    """Whether there is a book or was one; then the command need not name seeds. Raises: OSError."""
    return (path.is_file() and path.stat().st_size > 0) or path.with_name(path.name + COUNT).is_file()


def has_seeds(directory: Path) -> bool:
    """Whether the folder is a job with seeds to continue. Raises: StorageError."""
    with storage_errors(directory):
        return is_begun(directory / "state" / SEED_BOOK)


def _count(path: Path) -> tuple[int, int] | None:
    """The lines of a book and their checksum; None if not counted (older versions). Raises: SeedBookDamaged, OSError."""
    try:
        found = _COUNT_TEXT.fullmatch(path.read_bytes())
    except FileNotFoundError:
        return None
    if found is None:
        raise SeedBookDamaged(
            f"{path}: damaged; restore it from a copy, or remove it if {path.name.removesuffix(COUNT)} has all its lines"
        )
    return int(found[1]), int(found[2], 16)


def _line(seed: Seed, crc: int) -> tuple[bytes, int]:
    """The line of a seed after lines with this checksum, and the checksum of them all."""
    fields = json.dumps({"url": seed.url, "source": seed.source, "via": seed.via}).encode()[:-1]
    crc = crc32(fields, crc)
    return b'%s, "crc": "%08x"}\n' % (fields, crc), crc


def _parsed(line: bytes, crc: int, place: str, path: Path) -> tuple[Seed, int]:
    """The seed of a line after lines with this checksum, and the checksum of them all. Raises: SeedBookDamaged."""
    try:
        fields = json.loads(line)
        seed = Seed(url=fields["url"], source=fields["source"], via=fields["via"])
        is_sound = canonical(seed.url) == seed.url
        text, crc = (line + b"\n", crc32(line, crc)) if len(fields) == len(_OLD_FIELDS) else _line(seed, crc)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(place, path) from error
    if not is_sound or text != line + b"\n":
        raise _damaged(place, path)
    return seed, crc


def require_seeds(book: Book, path: Path) -> None:
    """Raises: SeedBookDamaged if the book of a job that has begun has no seed: its scope would end all that is queued."""
    if not any(book):
        raise SeedBookDamaged(
            f"{path}: is missing or empty, though the job has begun; restore it from a copy, "
            f"or name every seed of the job again with `anabranch add {path.parent.parent} SEED...`"
        )


def _damaged(what: str, path: Path) -> SeedBookDamaged:
    return SeedBookDamaged(
        f"{what}; restore the file from a copy, or remove it and {path.name}{COUNT} "
        f"and name every seed of the job again with `anabranch add {path.parent.parent} SEED...`"
    )


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
    """Seeds to numbers, and back. Seeds are added in the book's order, redirects included."""

    def __init__(self, seeds: Iterable[Seed] = ()) -> None:
        self._urls: list[str] = []
        self._numbers: dict[str, int] = {}
        self.note(seeds)

    def __len__(self) -> int:
        return len(self._urls)

    def note(self, seeds: Iterable[Seed]) -> None:
        """Add the book's new seeds, in its order; known ones keep their numbers."""
        for seed in seeds:
            if seed.url not in self._numbers:
                self._numbers[seed.url] = len(self._urls)
                self._urls.append(seed.url)

    def payload_of(self, seed: str) -> bytes | None:
        """The payload for candidates of a seed; None if the book does not have it."""
        number = self._numbers.get(seed)
        return None if number is None else number.to_bytes(max((number.bit_length() + 7) // 8, 1), "big")

    def tag_of(self, payload: bytes | None) -> str | None:
        """The seed of a lease's payload, or None."""
        if not payload:
            return None
        number = int.from_bytes(payload, "big")
        return self._urls[number] if number < len(self._urls) else None
