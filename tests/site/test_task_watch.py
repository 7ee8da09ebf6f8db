import re
import subprocess
import sys
from pathlib import Path

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


def test_a_task_left_behind_fails_its_test_by_name(tmp_path: Path) -> None:
    """The watch of conftest.py sees what still runs after an async test, and nothing else."""
    (tmp_path / "test_leaves.py").write_text(LEAVES_A_TASK)
    (tmp_path / "test_ends.py").write_text(ENDS_ITS_TASK)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", "."]
    command = [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert ended.returncode == 1, ended.stdout
    assert "left 1 task(s) behind: forgotten" in ended.stdout
    assert re.search(r"^ERROR .*test_leaves.py::test_it", ended.stdout, re.MULTILINE)
    assert re.search(r"^3 passed, 1 error", ended.stdout, re.MULTILINE)
