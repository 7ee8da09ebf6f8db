import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

LEAVES_A_TASK = """
import asyncio
kept = []
async def test_it():
    kept.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))
"""
ENDS_ITS_TASK = """
import asyncio
async def test_it(small_web, dns_server):
    task = asyncio.create_task(asyncio.sleep(3600))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
def test_without_a_loop():
    pass
"""


@pytest.mark.parametrize(("text", "code"), [(LEAVES_A_TASK, 1), (ENDS_ITS_TASK, 0)])
def test_a_task_left_behind_fails_its_test_by_name(tmp_path: Path, text: str, code: int) -> None:
    """The watch of conftest.py sees what still runs after an async test, and nothing else."""
    (tmp_path / "test_it.py").write_text(text)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", "."]
    command = [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path / "test_it.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert ended.returncode == code, ended.stdout
    assert ("left 1 task(s) behind: forgotten" in ended.stdout) == bool(code)
