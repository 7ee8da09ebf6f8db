"""The command that installs an extra works from where the user has the program."""

import json
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch import extras
from anabranch.extras import install_command


@pytest.fixture(autouse=True)
def pip_of_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell finds the pip beside this Python."""
    monkeypatch.setattr(extras.shutil, "which", lambda name: str(Path(sys.executable).with_name(name)))


def installed_from(monkeypatch: pytest.MonkeyPatch, kept: str | None) -> None:
    monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: kept))


@pytest.mark.parametrize("name", ["clone", "my clone", "anabranch-1-py3-none-any.whl", "d%20r"])
def test_the_folder_or_wheel_is_named_as_the_shell_reads_it(monkeypatch, tmp_path, name) -> None:
    """It is on the user's disk: no registry has the package."""
    (tmp_path / name).mkdir()
    installed_from(monkeypatch, json.dumps({"url": (tmp_path / name).as_uri()}))
    assert install_command("upload") == f"pip install '{tmp_path / name}[upload]'"


def test_a_repository_is_named_as_pip_takes_it(monkeypatch) -> None:
    """With its version control, and the branch or tag that was asked for."""
    kept = {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    installed_from(monkeypatch, json.dumps(kept))
    assert install_command("redis") == "pip install 'anabranch[redis] @ git+https://example.org/a.git'"
    installed_from(monkeypatch, json.dumps({**kept, "vcs_info": {"vcs": "git", "requested_revision": "v1"}}))
    assert install_command("redis") == "pip install 'anabranch[redis] @ git+https://example.org/a.git@v1'"


@pytest.mark.parametrize("kept", [None, "{}", json.dumps({"url": "file:///no/such/wheel.whl"})])
def test_a_source_that_is_gone_or_unknown_is_left_to_the_user(monkeypatch, kept) -> None:
    """An image has no wheel any more."""
    installed_from(monkeypatch, kept)
    assert install_command("redis") == "pip install 'FOLDER-OR-WHEEL[redis]'"


@pytest.mark.parametrize("has_pip", [True, False])
def test_another_pip_than_this_pythons_is_told_which_python_is_meant(monkeypatch, tmp_path, has_pip) -> None:
    """It would install into its own, where nobody looks. Environments of uv have no pip."""
    monkeypatch.setattr(extras.shutil, "which", lambda _: "/elsewhere/bin/pip")
    monkeypatch.setattr(extras, "find_spec", lambda _: object() if has_pip else None)
    installed_from(monkeypatch, json.dumps({"url": tmp_path.as_uri()}))
    how = f"{sys.executable} -m pip" if has_pip else f"pip --python {sys.executable}"
    assert install_command("redis") == f"{how} install '{tmp_path}[redis]'"


def test_modules_of_a_clone_name_the_clone(monkeypatch, tmp_path) -> None:
    """They are imported by PYTHONPATH; another folder is not named, as nothing can be installed from it."""

    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(extras, "distribution", missing)
    assert install_command("redis") == f"pip install '{Path(__file__).resolve().parents[1]}[redis]'"
    monkeypatch.setattr(extras, "_CLONE", tmp_path)
    assert install_command("redis") == "pip install 'FOLDER-OR-WHEEL[redis]'"
