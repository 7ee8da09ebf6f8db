"""Every command that docs/how-to/operate.md names, run as it stands there."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli.app import app
from tests.acceptance.command import REPOSITORY, anabranch, write_order

TEXT = (REPOSITORY / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
#: In a table or as a block of its own. Crawls, and moves to servers and disks that only an example has, have their own tests.
COMMANDS = [
    command
    for command in sorted({*re.findall(r"(?:`|^    )anabranch (\w+ [^`\n]+)", TEXT, re.MULTILINE)})
    if not command.startswith(("crawl ", "move "))
]
#: What the words in capitals stand for; brackets say that it may be left out.
MEANT = {"JOB": "example", "URL": "http://blog.alpha.test/", "FILE": "new.toml", "ARGUMENTS": "-c order.toml --limit 3"}
#: They need a crawl that runs, and say so.
#: They need a running crawl, or a second round.
NEED_MORE = ("pause", "resume", "stop", "report jobs/example rounds")


@pytest.fixture
async def folder(tmp_path, small_web):
    """A folder with everything that the page assumes: a job, a file of seeds, an order."""
    order = write_order(tmp_path, small_web.hosts)
    job = tmp_path / "jobs" / "example"
    run = await anabranch("crawl", MEANT["URL"], "-c", order, "--limit", "3", "--job", job, cwd=tmp_path)
    assert run.code == 0, run.err
    (tmp_path / "more-seeds.txt").write_text("http://new.test/\n")
    (tmp_path / "checked.toml").write_text(order.read_text())
    return tmp_path


def meant(command):
    """The command as somebody would type it."""
    typed = command.replace("[FILE]", "new.toml").replace("validate FILE", "validate checked.toml")
    for word, stands_for in MEANT.items():
        typed = re.sub(rf"\b{word}\b", stands_for, typed)
    return shlex.split(typed)


async def test_each_command_does_what_the_page_says(folder, monkeypatch):
    """Exit code 0; what needs a running crawl or a second round says that there is none, with 2."""
    monkeypatch.chdir(folder)
    assert len(COMMANDS) >= 16
    runner = CliRunner()
    codes = {command: runner.invoke(app, meant(command)).exit_code for command in COMMANDS}
    assert codes == {command: 2 if command.startswith(NEED_MORE) else 0 for command in COMMANDS}
