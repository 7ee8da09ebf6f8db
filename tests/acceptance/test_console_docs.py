"""Every request that docs/how-to/console.md shows, run as it stands there."""

import asyncio
import json
import re
import shutil
import subprocess

import pytest

from tests.acceptance.command import PATIENCE_S, REPOSITORY, environment
from tests.acceptance.console_process import running_console

TEXT = (REPOSITORY / "docs" / "how-to" / "console.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
async def test_each_request_is_answered(tmp_path, small_web):
    """With JSON that is no error, in the order of the page."""
    settings = {
        "ANABRANCH_DNS__HOSTS": " ".join(f"{name}={address}" for name, address in small_web.hosts.items()),
        "ANABRANCH_FETCH__ALLOW_PRIVATE": "true",
        "ANABRANCH_POLITENESS__MIN_DELAY": "0",
        "ANABRANCH_POLITENESS__MAX_DELAY": "0",
    }
    async with running_console(tmp_path, **settings) as console:
        variables = environment(TOKEN=console.token, API=f"{console.url}/api/v1")
        commands = [line for block in BLOCKS for line in block.splitlines()]
        assert len(commands) >= 13
        for command in commands:
            await wait_for_news(console)
            answer = await asyncio.to_thread(output, command, variables)
            assert "error" not in json.loads(answer), (command, answer)
        assert "moved_to" in json.loads(answer)


def output(command, variables):
    """Run a line in a shell and return its output."""
    run = subprocess.run(["bash", "-c", command], env=variables, capture_output=True, check=True, timeout=PATIENCE_S)
    return run.stdout


async def wait_for_news(console):
    """Until the crawl that the page begins has ended."""
    if await console.get("jobs"):
        await console.until("news", "stopped")
