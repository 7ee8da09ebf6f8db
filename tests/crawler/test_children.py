"""Python processes of our own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import crawler
from crawler.children import child_command


def test_a_child_imports_what_this_process_does(tmp_path: Path) -> None:
    """Not what lies in its current folder; its arguments are as they were given."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')\n")
    command = child_command(
        "import json, crawler; print(json.dumps([crawler.__file__, *sys.argv[1:]]))", "one", "$two 'x"
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [crawler.__file__, "one", "$two 'x"]
