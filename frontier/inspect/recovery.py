"""Heritrix's recovery journal, `frontier.recover.gz`, as a source to load.

Source of the format: Heritrix 3, `FrontierJournal` and `CrawlURI.fromHopsViaString`. A line is a tag of three characters, then
fields with white space between them:

    F+ uri hops via    it was queued            Fs uri hops via    it succeeded         Fd uri    it was disregarded
    Fe uri             it was given to a worker  Ff uri hops via    it failed            Fr uri    it was put back
    Fi uri             it was imported as known  T …, E …           times and errors

Other lines, of damage or of another version, are counted and skipped.

Two passes, as in Heritrix: first the known URLs (Fs and Fi; Ff and Fd on request), then the queued ones (F+). The journal is
never flushed, so after a crash its end is missing and the gzip stream is torn: all whole lines before are good.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from anabranch.frontier.inspect.load import BATCH, Entry, Known, LoadReport, LoadTarget, Queued, load
from anabranch.frontier.records import Candidate, OutcomeKind

_GZIP = b"\x1f\x8b"
_TAG_BYTES = 3
_QUEUED = b"F+ "
_INCLUDED = (b"Fs ", b"Fi ")
_FAILED = b"Ff "
_DISREGARDED = b"Fd "
#: How each line of Heritrix begins.
_WRITTEN = (_QUEUED, *_INCLUDED, _FAILED, _DISREGARDED, b"Fe ", b"Fr ", b"T ", b"E ")
_OUTCOMES = {_FAILED: OutcomeKind.FAILED, _DISREGARDED: OutcomeKind.DISREGARDED}
#: A path of more than 50 hops: how many are not shown, then the last ones.
_LONG_HOPS = re.compile(r"([0-9]{1,4})\+(.*)", re.DOTALL)
_CUT = "cut after line {read}, as a killed writer leaves it; what came after it is missing"
#: The checksum of a gzip stream is at its end, so the place of the damage is unknown.
_DAMAGED = "damaged, after line {read} at the latest; what came after it is missing, lines before it may be wrong"
#: Takes the place of a hop that is not shown: a link, as most are.
_LINK = "L"
#: The last hop of DNS look-ups, robots.txt and log-ins, which a crawler repeats where it needs them.
_PREREQUISITE = "P"


class RecoveryJournal:
    """The entries of one journal; several files (Heritrix begins a new one at a checkpoint) are read as one.

    `failures`, `disregarded`: these URLs, too, are known and not tried again. `canonical` changes URLs before they are
    compared; it returns None for a URL that cannot be fetched, which is skipped. `key` is the dedup key of the result, None =
    the URL itself. Memory: one line. Errors: OSError for a file that cannot be read.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        failures: bool = False,
        disregarded: bool = False,
        canonical: Callable[[str], str | None] = lambda url: url,
        key: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self.cuts: dict[Path, str] = {}  #: where a file ends too early, in words; complete after a pass
        self.skipped = 0  #: queued lines of the last pass with a URL that is not to be fetched
        self.unknown = 0  #: lines of the last pass with an unknown beginning
        self._paths = tuple(paths)
        self._canonical = canonical
        self._key = key
        self._known_tags = {*_INCLUDED}
        if failures:
            self._known_tags.add(_FAILED)
        if disregarded:
            self._known_tags.add(_DISREGARDED)

    def __iter__(self) -> Iterator[Entry]:
        yield from self.known()
        yield from self.queued()

    def known(self) -> Iterator[Known]:
        """The first pass: URLs that are not to be fetched again. The journal has no status, so it is 0."""
        for place, tag, fields in self._lines(self._known_tags):
            url = self._url(fields)
            if url is not None:
                yield Known(place, url, self._key_of(url), outcome=_OUTCOMES.get(tag, OutcomeKind.DONE))

    def queued(self) -> Iterator[Queued]:
        """The second pass: URLs that were queued, with known ones among them."""
        self.skipped = 0
        for place, _, fields in self._lines({_QUEUED}):
            hops = fields[1] if len(fields) > 1 else ""
            if long := _LONG_HOPS.fullmatch(hops):  # one letter a hop: `2+LLE` are five
                hops = _LINK * int(long[1]) + long[2]
            url = None if hops.endswith(_PREREQUISITE) else self._url(fields)
            if url is None:
                self.skipped += 1
            else:
                via = fields[2] if len(fields) > 2 and len(fields[2]) > 1 else None
                yield Queued(place, Candidate(url, self._key_of(url), hops), via)

    def _key_of(self, url: str) -> bytes | None:
        return None if self._key is None else self._key(url)

    def _url(self, fields: list[str]) -> str | None:
        return self._canonical(fields[0]) if "://" in fields[0] else None

    def _lines(self, tags: set[bytes]) -> Iterator[tuple[str, bytes, list[str]]]:
        """Place, tag and fields of each line with one of the tags and at least one field."""
        self.unknown = 0
        for path in self._paths:
            for number, line in enumerate(self._whole_lines(path), start=1):
                self.unknown += not line.startswith(_WRITTEN) and not line.isspace()
                if line[:_TAG_BYTES] in tags:
                    fields = line[_TAG_BYTES:].decode(errors="surrogateescape").split()
                    if fields:
                        yield f"{path.name}:{number}", line[:_TAG_BYTES], fields

    def _whole_lines(self, path: Path) -> Iterator[bytes]:
        """The file's lines up to the last one that ends; notes the cut if there is more, or should be."""
        read = 0
        words = ""
        with path.open("rb") as file:
            is_gzip = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if is_gzip else path.open("rb") as lines:
            try:
                for line in lines:
                    if line.endswith(b"\n"):
                        read += 1
                        yield line
                    else:
                        words = _CUT
            except EOFError:
                words = _CUT
            except (zlib.error, gzip.BadGzipFile):
                words = _DAMAGED
        if words:
            self.cuts[path] = f"{path.name}: {words.format(read=read)}"


def load_journal(journal: RecoveryJournal, target: LoadTarget, *, batch: int = BATCH) -> LoadReport:
    """Load a journal, both passes (blocks). Raises: as `RecoveryJournal` and `load`."""
    report = load(journal, target, batch=batch)
    report.left_out(skipped=journal.skipped, unknown=journal.unknown, cuts=journal.cuts.values())
    return report
