"""`anabranch console`: options, tokens, and what it needs."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli.app import app
from anabranch.extras import install_command
from tests.acceptance.command import environment

HIDDEN = """
import sys
from anabranch.__main__ import main
hidden = sys.argv[1:]
for module in hidden:
    sys.modules[module] = None
    sys.argv[1:] = ["console", "."]
    try:
        print(main())
    except SystemExit as end:
        print(end.code)
    del sys.modules[module]
"""
LOADED = """
import sys
from anabranch.__main__ import main
heavy = {"fastapi", "starlette", "uvicorn", "aiohttp", "sqlalchemy", "numpy", "structlog"}
for arguments in (["--help"], ["console", "--help"], ["console", "token"]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        print(end.code or 0, *(heavy & sys.modules.keys()), file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def invoke(*arguments):
    return CliRunner().invoke(app, ["console", *arguments])


def program(tmp_path, text, *arguments):
    command = [sys.executable, "-c", text, *arguments]
    env = environment(HOME=str(tmp_path))
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_tokens_are_made_listed_and_revoked(tmp_path):
    """A token is printed once, alone; the list has name, role and time."""
    assert invoke("token", "--state", "s").stdout == "no tokens\n"
    token = invoke("token", "ci", "--read-only", "--state", "s").stdout
    assert (len(token.split()), token.strip() in (tmp_path / "s" / "tokens.json").read_text()) == (1, False)
    (row,) = json.loads(invoke("token", "--json", "--state", "s").stdout)
    assert (row["name"], row["role"]) == ("ci", "reader")
    assert "reader" in invoke("token", "--state", "s").stdout
    assert invoke("token", "--revoke", "ci", "--state", "s").stdout == "ci: revoked\n"
    assert invoke("token", "--revoke", "ci", "--state", "s").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("token", "a b"),
        ("token", "a", "--revoke", "a"),
        ("nosuch",),
        (".", "--listen", "0.0.0.0:8700"),
        (".", "--listen", "localhost:8700"),
        (".", "--tls-cert", "cert.pem"),
        ("postgresql://me:secret@db/crawl",),
    ],
)
def test_wrong_usage_is_refused(arguments):
    """With exit code 2; no secret is repeated."""
    run = invoke(*arguments, *([] if "token" in arguments else ["--state", "s"]))
    assert run.exit_code == 2, run.output
    assert "secret" not in run.output


def test_without_its_extra_a_line_says_what_to_install(tmp_path):
    """With exit code 2, whichever of its libraries is missing."""
    run = program(tmp_path, HIDDEN, "uvicorn", "fastapi")
    assert (run.returncode, run.stdout) == (0, "2\n2\n"), run.stderr
    for module, line in zip(("uvicorn", "fastapi"), run.stderr.splitlines(), strict=True):
        assert f"the console needs {module}, " in line
        assert install_command("console") in line


def test_help_and_tokens_load_no_server(tmp_path):
    """They answer at once; help loads nothing that is large."""
    general, help_, tokens = program(tmp_path, LOADED).stderr.splitlines()
    assert (general, help_) == ("0", "0")
    assert not {"fastapi", "starlette", "uvicorn"} & set(tokens.split())


def test_a_folder_stands_where_a_command_could(tmp_path):
    """`anabranch console FOLDER` serves, as `anabranch console serve FOLDER` does; its folder is named in the line."""
    for arguments in (("nosuch", "--state", "s"), ("serve", "nosuch", "--state", "s")):
        assert "nosuch: there is no such folder" in invoke(*arguments).output
