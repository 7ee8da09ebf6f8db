"""How to install an extra: from where the user has installed this distribution, which is in no registry."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

_CLONE = Path(__file__).resolve().parent.parent


def install_command(extra: str) -> str:
    """The command that installs an extra for this Python; it names the folder, file or repository of this distribution.

    Source: direct_url.json, which installers keep (PEP 610). `FOLDER-OR-WHEEL` stands for a source that is gone or not known.
    """
    source = _source()
    scheme = urlsplit(source).scheme
    if scheme and scheme != "file":
        return f"{_pip()} install {shlex.quote(f'anabranch[{extra}] @ {source}')}"
    path = unquote(urlsplit(source).path)
    known = path if path and Path(path).exists() else "FOLDER-OR-WHEEL"
    return f"{_pip()} install {shlex.quote(f'{known}[{extra}]')}"


def _source() -> str:
    """The URL that this distribution was installed from, or of the clone that it is imported from; empty if it is not known."""
    try:
        kept = distribution("anabranch").read_text("direct_url.json")
    except PackageNotFoundError:  # the modules are imported from a folder
        return _CLONE.as_uri() if (_CLONE / "pyproject.toml").exists() else ""
    found = {} if kept is None else json.loads(kept)
    control = found.get("vcs_info", {})
    if "vcs" not in control:
        return str(found.get("url", ""))
    revision = control.get("requested_revision")
    return f"{control['vcs']}+{found['url']}{(revision and f'@{revision}') or ''}"


def _pip() -> str:
    """The shell command of the pip that installs for this Python. An environment of uv has no pip, so another pip is named."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip"
    python = shlex.quote(sys.executable)
    return f"pip --python {python}" if find_spec("pip") is None else f"{python} -m pip"
