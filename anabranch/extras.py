"""How to install an extra: from where the user has installed this distribution, which is in no registry."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """The command that installs an extra; it names the folder, file or repository that the installation came from.

    Source: direct_url.json, which installers keep (PEP 610). `FOLDER-OR-WHEEL` stands for a source that is gone or not known.
    """
    source = _source()
    scheme = urlsplit(source).scheme
    if scheme and scheme != "file":
        return f"pip install {shlex.quote(f'anabranch[{extra}] @ {source}')}"
    path = unquote(urlsplit(source).path)
    known = path if path and Path(path).exists() else "FOLDER-OR-WHEEL"
    return f"pip install {shlex.quote(f'{known}[{extra}]')}"


def _source() -> str:
    """The URL that this distribution was installed from; empty if it is not known."""
    try:
        kept = distribution("anabranch").read_text("direct_url.json")
    except PackageNotFoundError:  # the modules are imported from a folder
        return ""
    found = {} if kept is None else json.loads(kept)
    version_control = found.get("vcs_info", {}).get("vcs", "")
    return f"{version_control}+{found['url']}" if version_control else found.get("url", "")
