"""Seeds: where a crawl begins. Reading them from what the operator named, and the job's durable book of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from crawler.jobs.durablefiles import AppendOnlyFile
from crawler.outcomes.errors import CrawlerError, storage_errors
from crawler.outcomes.exits import ExitCode
from crawler.urls.parsing import canonical, seed_url

COMMAND_LINE = "command line"
ORDER = "crawl order"
STDIN = "-"

_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(r"(?:^|\s)#.*")
#: What the names of seed files end in; an argument of this kind that is no file is a slip, not a host.
_FILE_SUFFIXES = (".txt", ".lst", ".list", ".seeds")
#: A bad seed is shown to the operator; longer texts are cut.
_SHOWN_CHARS = 200


class SeedBookDamaged(CrawlerError):
    """A line of the seed book, not its last, cannot be read: someone else wrote to it, or the disk failed."""

    exit_code: ExitCode = ExitCode.BAD_ORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A URL that the crawl begins with."""

    url: str  #: canonical
    #: Where it was named: `file:line`, `-:3` for standard input, `command line`, `crawl order`, or `redirect`.
    source: str
    via: str | None = None  #: the seed that redirected here; None if the operator named it


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSeed:
    """Something named as a seed that is none; it is reported and skipped."""

    text: str  #: what stood there, at most 200 characters of it
    source: str  #: where it stood
    reason: str  #: what is wrong, and what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedList:
    """What the operator named, in order."""

    seeds: tuple[Seed, ...]  #: each URL once, where it was named first
    bad: tuple[BadSeed, ...]


def read_seeds(arguments: Sequence[str], stdin: BinaryIO, named_in: str = COMMAND_LINE) -> SeedList:
    """The seeds that the arguments name: a URL, a file of URLs (if it exists as a file), or `-` for standard input.

    `named_in` says where the arguments stand.

    A file has one URL a line; `#` begins a comment at the start of a line or after a space; blank lines, CRLF and a UTF-8
    byte order mark are ignored. Nothing is raised for bad input: it is in `bad`, an unreadable or empty file as well.
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


def _read_argument(argument: str, stdin: BinaryIO, named_in: str) -> Iterator[Seed | BadSeed]:
    if argument == STDIN:
        yield from _read_lines(stdin, STDIN)
    elif is_file(argument):
        try:
            with Path(argument).open("rb") as lines:
                yield from _read_lines(lines, argument)
        except OSError as error:
            yield BadSeed(text=argument, source=named_in, reason=f"it cannot be read: {error.strerror}")
    elif _is_folder(argument):
        reason = "it is a folder; name the files of URLs in it" + _or_url(argument, ", or ")
        yield BadSeed(text=argument, source=named_in, reason=reason)
    elif _is_missing(argument):
        reason = "there is no such file" + _or_url(argument, "; ")
        yield BadSeed(text=argument, source=named_in, reason=reason)
    else:
        yield _seed(argument, named_in)


def is_file(argument: str) -> bool:
    """It exists and is no folder (a folder may well be named like a host). A name too long for a file is none."""
    try:
        path = Path(argument)
        return path.exists() and not path.is_dir()
    except OSError:
        return False


def _is_folder(argument: str) -> bool:
    """It exists as a folder, and is not written like a host: wget leaves folders named like hosts behind."""
    looks_like_host = "." in argument.partition("/")[0].strip(".")
    try:
        return bool(argument) and not looks_like_host and Path(argument).is_dir()
    except OSError:
        return False


def _is_missing(argument: str) -> bool:
    """It is no file, and was meant for one."""
    return is_path(argument) or (argument.lower().endswith(_FILE_SUFFIXES) and "://" not in argument)


def is_path(argument: str) -> bool:
    """It can be meant for a file or folder only."""
    return argument.startswith(("/", "./", "../")) and not argument.startswith("//")


def _or_url(argument: str, joint: str) -> str:
    """The advice for what may be a URL after all."""
    return "" if is_path(argument) else f"{joint}if it is a URL, write http:// before it"


def _read_lines(lines: Iterable[bytes], name: str) -> Iterator[Seed | BadSeed]:
    is_empty = True
    for number, line in enumerate(lines, start=1):
        source = f"{name}:{number}"
        try:
            text = line.removeprefix(_BOM if number == 1 else b"").decode()
        except UnicodeDecodeError:
            shown = line.decode(errors="backslashreplace").strip()[:_SHOWN_CHARS]
            found: Seed | BadSeed = BadSeed(text=shown, source=source, reason="it is not UTF-8; save the file as UTF-8")
        else:
            text = _COMMENT.sub("", text).strip()
            if not text:
                continue
            found = _seed(text, source)
        is_empty = False
        yield found
    if is_empty:
        yield BadSeed(text=name, source=name, reason="it holds no URL; write one a line")


def _seed(text: str, source: str) -> Seed | BadSeed:
    url = seed_url(text)
    if url is None:
        return BadSeed(
            text=text[:_SHOWN_CHARS], source=source, reason="it is no http or https URL; correct or remove it"
        )
    return Seed(url=url, source=source)


class Book(Protocol):
    """The seeds of a job, each once; what `add` and `add_all` return is durable. Both may wait."""

    def __iter__(self) -> Iterator[Seed]: ...

    def __contains__(self, url: object) -> bool: ...

    def add(self, seed: Seed) -> bool:
        """Write a seed down; False if its URL is in the book already."""

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        """Write down those that are new, and return them."""


class SeedBook:
    """The seeds of a job, durable: an append-only file of one JSON object a line, {"url", "source", "via"}.

    What `add` and `add_all` return is on disk: the file is synced, on opening its folder too. After a crash the last line
    may be torn (it has no newline): it is cut on opening, since nobody was told that it counts. A URL is in the book once;
    the first to name it wins. Memory: all seeds. One writer at a time (the job's lock sees to that).

    Raises: SeedBookDamaged for any other unreadable line; StorageError (DiskFull …) when the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seeds: dict[str, Seed] = {}
        with storage_errors(path):
            self._file = AppendOnlyFile(path)
            try:
                self._read()
            except BaseException:
                self.close()
                raise

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

    def add(self, seed: Seed) -> bool:
        """Write a seed down; False if its URL is in the book already. Cost of a new one: one sync."""
        return bool(self.add_all((seed,)))

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        """Write down those that are new, and return them. One sync for all."""
        new: dict[str, Seed] = {}
        for seed in seeds:
            if seed.url not in self._seeds:
                new.setdefault(seed.url, seed)
        if new:
            self._append(b"".join(map(_line, new.values())))
            self._seeds.update(new)
        return tuple(new.values())

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _read(self) -> None:
        """Read every line: what was torn is cut already."""
        for number, line in enumerate(self._path.read_bytes().split(b"\n")[:-1], start=1):
            seed = _parsed(line, f"{self._path}:{number}")
            self._seeds.setdefault(seed.url, seed)

    def _append(self, lines: bytes) -> None:
        """All of it is durable, or an error is raised and the next append begins where this one did."""
        with storage_errors(self._path):
            self._file.append(lines)
        self._file.keep()


def _line(seed: Seed) -> bytes:
    return json.dumps({"url": seed.url, "source": seed.source, "via": seed.via}).encode() + b"\n"


def _parsed(line: bytes, place: str) -> Seed:
    damaged = SeedBookDamaged(f"{place}: the line is damaged; mend or remove it, or start over with --fresh")
    try:
        fields = json.loads(line)
        seed = Seed(url=fields["url"], source=fields["source"], via=fields["via"])
        is_sound = canonical(seed.url) == seed.url
    except (ValueError, KeyError, TypeError) as error:
        raise damaged from error
    if not is_sound:
        raise damaged
    return seed
