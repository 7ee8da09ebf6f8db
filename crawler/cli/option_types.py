"""What an option may be when it need not be given. Typer reads these at run time, so they are written in its way."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

Text = Optional[str]  # noqa: UP045 - typer reads these at run time
Texts = Optional[list[str]]  # noqa: UP045
Whole = Optional[int]  # noqa: UP045
Number = Optional[float]  # noqa: UP045
Numbers = Optional[tuple]  # type: ignore[type-arg]  # noqa: UP045 - the option's parser makes it
Switch = Optional[bool]  # noqa: UP045
FilePath = Optional[Path]  # noqa: UP045 - of a file or folder
