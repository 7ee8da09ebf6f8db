"""Files as all rooms use them: the one place for durability, locks, headers and maps.

`durable.py` writes, replaces and appends; `locks.py` keeps a file or folder for one holder; `formatfile.py` says what a
folder is; `mapped.py` maps sparse files. Only `mapped.py` needs numpy. `Closing` is the base of all that holds open files.
"""

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
