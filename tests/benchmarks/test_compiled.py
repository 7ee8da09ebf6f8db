"""The command `scripts/bench frontier --compiled`: what it says where nothing can be compiled, and what it runs."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from scripts.benchmarks import __main__ as bench
from scripts.benchmarks import compiled


def test_without_a_compiler_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, as for a wrong argument; nothing is measured and nothing is built."""
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert bench.main(["frontier", "--compiled", "--only", "memory"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith("bench: --compiled: there is no C compiler no-such-compiler; install one")


def test_a_wheel_without_compiled_modules_is_refused(tmp_path: Path) -> None:
    """The benchmark would measure plain Python otherwise."""
    wheel = tmp_path / "anabranch-0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("frontier/frontier.py", "")
    with pytest.raises(compiled.NotCompiled, match="holds no compiled modules"):
        compiled._unpacked(wheel, tmp_path / "unpacked")


def test_the_command_runs_again_without_the_flag_before_the_clone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the wheel's folder first on the path, and the status of that run; here it is one for a wrong group."""
    monkeypatch.setattr(compiled, "check_compiler", lambda: None)
    monkeypatch.setattr(compiled, "_built", lambda folder: folder / "a.whl")
    monkeypatch.setattr(compiled, "_unpacked", lambda _, __: tmp_path)
    (tmp_path / "anabranch").mkdir()
    (tmp_path / "anabranch" / "__init__.py").write_text("raise SystemExit('the one of the wheel')")
    assert compiled.run_compiled(["frontier", "--compiled", "--only", "memory"], lambda _: None) == 1
    assert "the one of the wheel" in capfd.readouterr().err
