"""URLs per second through the UniqFilter and its peers (`peers.py`) in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from anabranch.dedup import UniqFilter, UniqParameters
from scripts.benchmarks.dedup.keys import Call, Keys, Speeds, batches, parts, scattered, urls
from scripts.benchmarks.dedup.peers import PEERS, Peer
from scripts.benchmarks.dedup.splits import tree_of
from scripts.benchmarks.rows import Row, Setting, rounds_row

_EXPECTED = 10_000_000
_KNOWN_PARTS = 9


def uniq_64(setting: Setting) -> Iterator[Row]:
    """Batches as from the Frontier: a page has about 60 outlinks."""
    yield from _measured(setting, "uniq-64", 64, ()).rows(new=500_000, known=900_000)


def uniq_10000(setting: Setting) -> Iterator[Row]:
    """Large batches, and the ratio to the peers."""
    ours = _measured(setting, "uniq-10000", 10_000, PEERS)
    yield from ours.rows(new=800_000, known=1_500_000)
    for peer in ours.peers:
        for kind, theirs, mine in (("new", peer.new, ours.add_new), ("known", peer.known, ours.ask_known)):
            name = f"uniq-10000-{peer.peer.name}-{kind}"
            yield Row(
                name=name, what=f"{kind}: {peer.peer.what}", measured=theirs.median, unit="URLs/s", note=theirs.spread
            )
            if peer.peer.times is not None:
                what = f"{kind}: UniqFilter ({'add' if kind == 'new' else 'unseen'}) over {peer.peer.name}, by CPU time"
                same = theirs.cpu_us[1::2] if kind == "new" else theirs.cpu_us  # `add` has every second part
                times = [one / other for one, other in zip(same, mine.cpu_us, strict=True)]
                yield rounds_row(f"{name}-x", what, times, "x", target=peer.peer.times)


def exact(setting: Setting) -> Iterator[Row]:
    """Nine of ten keys are known, at random places among the ten million; new ones are marked."""
    count = setting.count(_EXPECTED)
    with UniqFilter.open(setting.folder / "exact", UniqParameters(mode="exact", expected=_EXPECTED)) as uniq:
        filling = Speeds(uniq.mark)
        setting.say(f"marking {count:,} keys")
        for part in parts(count):
            filling.time(batches(urls(part), 10_000))
        new = count
        for size in (10_000, 64):
            mixed = Speeds(_frontier_call(uniq))
            setting.say(f"asking in batches of {size:,}")
            for part in parts(count // 5, 8):
                mixed.time(batches(urls(nine_known_of_ten(part, count, new)), size))
                new += len(part)
            yield Row(
                name=f"exact-{size}",
                what=f"90 % known of {count:,}, batches of {size:,}: unseen, then mark",
                measured=mixed.median,
                unit="URLs/s",
                target=200_000.0,
                note=mixed.spread,
            )
    yield Row(
        name="exact-mark", what=f"marking {count:,} keys", measured=filling.median, unit="URLs/s", note=filling.spread
    )


class _PeerSpeeds:
    """A peer, and its speeds."""

    def __init__(self, peer: Peer) -> None:
        new, known = peer.make(_EXPECTED)
        self.peer, self.new, self.known = peer, Speeds(new), Speeds(known)


class _UniqSpeeds:
    """The speeds of a filter's calls for batches of one size, and of the peers in the same minutes."""

    def __init__(self, uniq: UniqFilter, name: str, size: int, peers: Sequence[Peer]) -> None:
        self._name, self._size = name, size
        self._leaves = tree_of(uniq).leaves
        self.mark_new, self.add_new = Speeds(_frontier_call(uniq)), Speeds(uniq.add)
        self.ask_known, self.add_known = Speeds(uniq.unseen), Speeds(uniq.add)
        self.peers = [_PeerSpeeds(peer) for peer in peers]

    def time_new(self, turn: int, part: range) -> None:
        """One part of new keys, by both ways in turns, so that both see the filter at every fill."""
        ours = (self.mark_new, self.add_new)[turn % 2]
        self._time([(ours, part), *((peer.new, _peers_share(part)) for peer in self.peers)], turn // 2)

    def time_known(self, turn: int, part: range) -> None:
        """One part of known keys, made again for each call, because a queried key caches its hash."""
        theirs = [(peer.known, _peers_share(part)) for peer in self.peers]
        self._time([(self.ask_known, part), (self.add_known, part), *theirs], turn)

    def _time(self, calls: Sequence[tuple[Speeds, range]], turn: int) -> None:
        """Each turn in the reverse order of the one before."""
        for speeds, numbers in calls[:: -1 if turn % 2 else 1]:
            speeds.time(batches(urls(numbers), self._size))

    def rows(self, new: float, known: float) -> Iterator[Row]:
        """The filter's own four rows, with these targets."""
        for ending, how, speeds, target in (
            ("new", "new, batches of {:,}: unseen, then mark", self.mark_new, new),
            ("new-add", "new, batches of {:,}: add", self.add_new, new),
            ("known", "known, batches of {:,}: unseen", self.ask_known, known),
            ("known-add", "known, batches of {:,}: add", self.add_known, known),
        ):
            yield Row(
                name=f"{self._name}-{ending}",
                what=how.format(self._size),
                measured=speeds.median,
                unit="URLs/s",
                target=target,
                note=f"{self._leaves} leaves, logs written; {speeds.spread}",
            )


def _measured(setting: Setting, name: str, size: int, peers: Sequence[Peer]) -> _UniqSpeeds:
    count = setting.count(_EXPECTED)
    with UniqFilter.open(setting.folder / name, UniqParameters(expected=_EXPECTED)) as uniq:
        speeds = _UniqSpeeds(uniq, name, size, peers)
        setting.say(f"{count:,} new keys")
        for turn, part in enumerate(parts(count)):
            speeds.time_new(turn, part)
        setting.say("known keys")
        for turn, part in enumerate(list(parts(count))[:_KNOWN_PARTS]):
            speeds.time_known(turn, part)
    return speeds


def _peers_share(part: range) -> range:
    """The peers get a tenth of the keys: they are slow, and equally fast at any fill."""
    return part[: len(part) // 10]


def _frontier_call(uniq: UniqFilter) -> Call:
    """A batch of the Frontier: ask, store the new ones, mark them."""

    def ask_and_mark(batch: Keys) -> None:
        new = uniq.unseen(batch)
        if new.all():
            uniq.mark(batch)
        elif new.any():
            uniq.mark(list(compress(batch, new)))

    return ask_and_mark


def nine_known_of_ten(part: range, known: int, new: int) -> list[int]:
    """For each number of the part: of ten, one number from `new` on and nine scattered below `known`."""
    return [new + place if place % 10 == 0 else number for place, number in enumerate(scattered(part, known))]
