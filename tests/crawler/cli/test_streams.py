"""Standard streams that are closed, full or without a reader."""

import io
import subprocess
import sys

import pytest

from anabranch.crawler.cli.streams import keep_streams
from tests.acceptance.command import environment

#: Opens a file, after which nothing said may be found in it; then talks on standard error as logs and displays do.
TALKING = """
import os, sys
from anabranch.crawler.cli.streams import keep_streams
keep_streams()
file = os.open("file", os.O_RDWR | os.O_CREAT)
assert file > 2, file
for _ in range(3):
    print("said", "\\udcff", file=sys.stderr, flush=True)
assert not sys.stderr.isatty()
os.write(2, b"by a library in C")
os._exit(0 if os.fstat(file).st_size == 0 else 1)
"""


@pytest.mark.parametrize("streams", ["2>&-", "0<&- >&- 2>&-", "2>/dev/full", "2> >(true)", "2>&1 | true", "2>said"])
def test_nothing_that_is_said_fails_or_lands_in_a_file_of_ours(tmp_path, streams) -> None:
    """The descriptors 0 to 2 are taken before the first file is opened."""
    command = f'set -o pipefail; {sys.executable} -c "$TALKING" {streams}'
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment(TALKING=TALKING),
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    if streams == "2>said":
        assert (tmp_path / "said").read_text() == "said \\udcff\n" * 3 + "by a library in C"


def test_a_standard_error_that_is_not_the_processs_own_is_left_alone(monkeypatch) -> None:
    """As in tests and in programs that embed the crawler."""
    mine = io.StringIO()
    monkeypatch.setattr(sys, "stderr", mine)
    keep_streams()
    assert sys.stderr is mine
