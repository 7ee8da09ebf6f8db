"""`Closing`, the base of all that is open until `close`: each is a context manager."""

from __future__ import annotations

from typing import Self


class Closing:
    """Closes itself at the end of a `with` block."""

    def close(self) -> None:
        """Release files and locks; a second call does nothing. Raises: OSError, with them released."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
