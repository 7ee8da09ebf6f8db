"""Python processes of our own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import anabranch
from anabranch.crawler.children import child_command


def test_a_child_imports_what_this_process_does(tmp_path: Path) -> None:
    """Not what lies in its current folder; its arguments are as they were given."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')\n")
    command = child_command(
        "import json, anabranch; print(json.dumps([anabranch.__file__, *sys.argv[1:]]))", "one", "$two 'x"
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [anabranch.__file__, "one", "$two 'x"]
