"""The command that installs an extra works from where the user has the program."""

import json
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from anabranch import extras
from anabranch.extras import install_command


def installed_from(monkeypatch: pytest.MonkeyPatch, kept: str | None) -> None:
    monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: kept))


@pytest.mark.parametrize("name", ["clone", "my clone", "anabranch-1-py3-none-any.whl", "d%20r"])
def test_the_folder_or_wheel_is_named_as_the_shell_reads_it(monkeypatch, tmp_path, name) -> None:
    """It is on the user's disk: no registry has the package."""
    (tmp_path / name).mkdir()
    installed_from(monkeypatch, json.dumps({"url": (tmp_path / name).as_uri()}))
    assert install_command("upload") == f"pip install '{tmp_path / name}[upload]'"


def test_a_repository_is_named_as_pip_takes_it(monkeypatch) -> None:
    """With its version control."""
    installed_from(monkeypatch, json.dumps({"url": "https://example.org/a.git", "vcs_info": {"vcs": "git"}}))
    assert install_command("redis") == "pip install 'anabranch[redis] @ git+https://example.org/a.git'"


@pytest.mark.parametrize("kept", [None, "{}", json.dumps({"url": "file:///no/such/wheel.whl"})])
def test_a_source_that_is_gone_or_unknown_is_left_to_the_user(monkeypatch, kept) -> None:
    """An image has no wheel any more."""
    installed_from(monkeypatch, kept)
    assert install_command("redis") == "pip install 'FOLDER-OR-WHEEL[redis]'"


def test_modules_in_a_folder_are_no_installation(monkeypatch) -> None:
    """They are imported by PYTHONPATH."""

    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(extras, "distribution", missing)
    assert install_command("redis") == "pip install 'FOLDER-OR-WHEEL[redis]'"
