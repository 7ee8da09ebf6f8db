"""Programs of a user who crawls in Python, as the documentation shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.acceptance import forkserver
from tests.acceptance.command import REPOSITORY, ended, environment


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, by its path in the repository."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def variables(hosts: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a crawl finds these hosts of the small web, and does not rest."""
    return environment(
        ANABRANCH_DNS__HOSTS=" ".join(f"{host}={address}" for host, address in hosts.items()),
        ANABRANCH_FETCH__ALLOW_PRIVATE="true",
        ANABRANCH_POLITENESS__MIN_DELAY="0",
        ANABRANCH_POLITENESS__MAX_DELAY="0",
        ANABRANCH_AGENT__CONTACT="https://example.org/bot",
    )


async def printed(text: str, folder: Path, hosts: Mapping[str, str]) -> str:
    """Run a program in the folder, with the hosts of a small web; it must end well. Returns what it printed."""
    (folder / "program.py").write_text(text)
    process = await forkserver.start(["program.py"], cwd=folder, env=variables(hosts))
    run = await ended(process)
    assert (run.code, "Traceback" in run.err) == (0, False), run.err
    return run.out
