"""What was sent elsewhere lately: so a link that stands on every page is sent once, not with every page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.dedup.recent import RecentKeys
from anabranch.frontier.seen import SeenFilter

#: Keys of a generation; two are remembered, some 25 MB of URLs at most.
GENERATION: Final = 50_000


class BesideLately:
    """A share's filter, which knows its own URLs only, with what was sent to others lately: that is seen, too."""

    def __init__(self, own: SeenFilter, lately: RecentKeys[bytes]) -> None:
        self._own = own
        self._lately = lately

    @property
    def blocks(self) -> bool:
        """As the share's own filter."""
        return self._own.blocks

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each key, whether it was never marked, nor sent elsewhere lately."""
        lately = self._lately
        if not lately:
            return self._own.unseen(keys)
        is_sent = [key in lately for key in keys]
        if True not in is_sent:
            return self._own.unseen(keys)
        own = iter(self._own.unseen([key for key, sent in zip(keys, is_sent, strict=True) if not sent]))
        return [not sent and bool(next(own)) for sent in is_sent]

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the share's own."""
        self._own.mark(keys)

    def sync(self) -> None:
        """As the share's own filter."""
        self._own.sync()

    def position(self) -> str:
        """As the share's own filter."""
        return self._own.position()

    def close(self) -> None:
        """Nothing to let go of: the share's own filter is its opener's."""

    def facts(self) -> Mapping[str, float | str]:
        """As the share's own filter."""
        return self._own.facts()
