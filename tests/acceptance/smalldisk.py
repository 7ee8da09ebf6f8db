"""Crawls on disks that are small, full or read-only: tmpfs mounts in a namespace of their own. Processes there are forked."""

import json
import shutil
import subprocess

import pytest

from tests.acceptance import forkserver
from tests.acceptance.command import PATIENCE_S, REPOSITORY, environment


def _can_unshare():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True).returncode == 0


needs_small_disk = pytest.mark.skipif(not _can_unshare(), reason="a small disk needs unshare -Urm")


#: The disks of these tests are small, and shall be filled.
FILL = "-s limits.min_free_disk=0"


def on_small_disk(tmp_path, pages, size, story, *, retry_s=1.0):
    """Run a shell story with a small `disk` mounted and `crawl OPTIONS` at hand; the site has so many pages.

    A crawl retries writes to a full disk for `retry_s` seconds instead of 30, unless somebody makes room before.

    A job keeps 0.7 KB of a page for good, so two pages a kilobyte fill a disk for sure, however seldom the store commits.
    """
    site = tmp_path / "site"
    site.mkdir()
    names = ["index.html", *(f"{number}.html" for number in range(pages))]
    for place, name in enumerate(names):
        links = "".join(f'<a href="{link}">x</a>' for link in (names[place + 1 : place + 40] if place else names))
        (site / name).write_text(f"<html>{links}</html>")
    server = REPOSITORY / "tests" / "site" / "server.py"
    script = f"""set -u
mkdir disk && mount -t tmpfs -o size={size} tmpfs disk
run() {{ mkfifo $1.done; echo "$@" > asked; read < $1.done; rm $1.done; }}
run server {server} --root site &
while [ ! -s server.out ]; do sleep 0.05; done
ln -s server.out port
crawl() {{ run $1 anabranch crawl http://127.0.0.1:$(cat port)/index.html --allow-private \
  --min-delay 0 --max-delay 0 --max-connections 8 --workers 8 --job disk/job $2; }}
{story}
cp disk/job/pages.jsonl pages.jsonl
kill $(cat server.pid)
wait
"""
    process = [str(REPOSITORY / "tests" / "acceptance" / "smalldisk_process.py"), script]
    variables = {**environment(), "SMALL_DISK_RETRY_S": str(retry_s)}
    run = forkserver.run(process, cwd=tmp_path, env=variables, timeout=4 * PATIENCE_S)
    assert run.returncode == 0, run.stderr
    got = [json.loads(line)["url"].rpartition("/")[2] for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert set(got) == set(names), "nothing is missing in the end"


def said(tmp_path, run):
    """The exit code and the one line of a run of a story."""
    err = (tmp_path / f"{run}.err").read_text()
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("anabranch: ")]
    assert len(lines) <= 1, err
    return int((tmp_path / f"{run}.code").read_text()), "".join(lines)
