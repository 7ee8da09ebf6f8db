"""The programs of docs/how-to/embed.md, by the file name in their first line."""

from __future__ import annotations

import re

from tests.acceptance.command import REPOSITORY

TEXT = (REPOSITORY / "docs" / "how-to" / "embed.md").read_text(encoding="utf-8")
PROGRAMS = {
    block.split(":")[0].removeprefix("# "): block
    for block in re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    if block.startswith("# ")
}
