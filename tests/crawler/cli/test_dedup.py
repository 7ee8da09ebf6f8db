"""`anabranch dedup`: its options, its errors as one line and an exit code, and its words."""

from __future__ import annotations

import errno
import io
import math
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from anabranch.crawler.cli import dedup as dedup_module
from anabranch.crawler.cli.app import app
from anabranch.crawler.cli.dedup import (
    DedupCommand,
    capture_fault,
    capture_words,
    descriptor,
    exit_code,
    lines_of,
    run_dedup,
)
from anabranch.crawler.cli.parameters import parse_count, parse_levels
from anabranch.crawler.outcomes.errors import DiskReadOnly, UsageError
from anabranch.dedup.capture.frames import CaptureStatistics
from anabranch.dedup.capture.urls import CaptureError
from anabranch.dedup.errors import BadParameters, FilterInUse, FormatMismatch, InvariantBroken, StoreFull
from anabranch.dedup.linefilters import Choice
from anabranch.dedup.stream import Cadence, OutputFailed
from anabranch.dedup.uniq import UniqFilter
from tests.patience import HANG_S

REPOSITORY = Path(__file__).resolve().parents[3]

#: Options, the field that they set, and its value.
OPTIONS = [
    (("urls.txt",), "file", "urls.txt"),
    (("--state", "d"), "state", Path("d")),
    (("--filter", "exact"), "kind", "exact"),
    (("--expect", "10M"), "expected", 10_000_000),
    (("--false-positive", "0.01"), "false_positive", 0.01),
    (("--signature", "md5"), "signature", "md5"),
    (("--levels", "1,1,3"), "levels", (1, 1, 3)),
    (("--leaf-kind", "classic"), "leaf_kind", "classic"),
    (("--leaf-bits", "1024"), "leaf_bits", 1024),
    (("--split-fan-out", "2"), "split_fan_out", 2),
    (("--similar", "published"), "similar", "published"),
    (("--similar-expect", "1k"), "similar_expect", 1000),
    (("--similar-features", "site"), "similar_features", "site"),
    (("--similar-false-positive", "0.1"), "similar_false_positive", 0.1),
    (("--features", "site,tail"), "features", "site,tail"),
    (("--site-bound",), "site_bound", True),
    (("--published",), "site_bound", False),
    (("--drop-query",), "drop_query", True),
    (("--keep-query",), "drop_query", False),
    (("--pcap", "c.pcap"), "pcap", "c.pcap"),
    (("--interface", "eth0"), "interface", "eth0"),
    (("--redis", "redis://a", "--redis", "redis://b"), "redis", ("redis://a", "redis://b")),
    (("--name", "urls"), "name", "urls"),
    (("--check",), "check", True),
    (("-q",), "quiet", True),
]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[DedupCommand]:
    """The commands that the command line makes, in place of running them."""
    made: list[DedupCommand] = []
    monkeypatch.setattr(dedup_module, "run_dedup", lambda command: made.append(command) or 0)
    return made


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("arguments", "field", "value"), OPTIONS, ids=str)
def test_each_option_reaches_its_field(commands, arguments, field, value) -> None:
    """And no other field changes."""
    result = CliRunner().invoke(app, ["dedup", *arguments])
    assert result.exit_code == 0, result.output
    assert commands == [DedupCommand(**{field: value})]


def test_every_field_has_its_option() -> None:
    """The command line can set every field that a program can."""
    assert {field for _, field, _ in OPTIONS} == set(DedupCommand.__dataclass_fields__)


def test_what_is_not_named_is_not_chosen() -> None:
    """None leaves it to the folder."""
    assert dedup_module._choice(DedupCommand()) == Choice()


def test_what_is_named_is_chosen() -> None:
    """Each field of the choice has its option, and error messages know it."""
    command = DedupCommand(
        kind="similar",
        expected=5,
        false_positive=0.5,
        signature="md5",
        levels=(1, 1),
        leaf_kind="blocked",
        leaf_bits=1024,
        split_fan_out=2,
        features="site, tail",
        site_bound=True,
        drop_query=False,
    )
    chosen = dedup_module._choice(command)
    assert chosen.features == ("site", "tail")
    assert {"kind", *chosen.given()} == set(Choice.__dataclass_fields__) == dedup_module.OPTIONS.keys()


@pytest.mark.parametrize(
    ("text", "count"), [("1", 1), ("2500", 2500), ("500k", 500_000), ("10M", 10_000_000), (" 1.5g ", 1_500_000_000)]
)
def test_a_count_is_read_as_people_write_it(text: str, count: int) -> None:
    """Thousands, millions, thousand millions."""
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "ten", "0", "0k", "-1", "nan", "inf", "10T", "1.5", "0.0001k", "10MB", "1e6", "9999999999G"]
)
def test_what_is_no_count_is_refused(text: str) -> None:
    """With the forms that are read, and what their suffixes mean. Nothing is made for no URL at all."""
    with pytest.raises(typer.BadParameter, match=r"500k, .*k, M and G stand for thousand, million and"):
        parse_count(text)


@pytest.mark.parametrize("text", ["", "1,", "a", "1 3", "-1,3", "1;3", "²"])
def test_what_is_no_list_of_levels_is_refused(text: str) -> None:
    """With the form that is read; whether such levels can be is the filter's business."""
    assert parse_levels(" 1, 3") == (1, 3)
    with pytest.raises(typer.BadParameter, match="1,3"):
        parse_levels(text)


@pytest.mark.parametrize(
    "arguments",
    [("--expect", "ten"), ("--expect", "0"), ("--levels", "x"), ("--state", ""), ("--no-such",), ("a", "b")],
)
def test_a_command_line_that_makes_no_sense_exits_with_2(commands, arguments) -> None:
    """Nothing is run."""
    assert CliRunner().invoke(app, ["dedup", *arguments]).exit_code == 2
    assert commands == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (DedupCommand(file="a", pcap="b"), "FILE and --pcap exclude each other"),
        (DedupCommand(file="-", interface="lo"), "FILE and --interface exclude each other"),
        (DedupCommand(pcap="b", interface="lo"), "--pcap and --interface exclude each other"),
        (DedupCommand(redis=("redis://a",), state=Path("d")), "--state and --redis exclude each other"),
        (DedupCommand(name="urls"), "--redis"),
        (DedupCommand(check=True), "--check"),
        (DedupCommand(check=True, state=Path("d"), file="a"), "--check"),
        (DedupCommand(check=True, state=Path("none")), "none"),
        (DedupCommand(file="urls", kind="bloom"), "--filter: 'bloom' is unknown"),
        (DedupCommand(file="urls", kind="smm", features="site"), "--features: the filter smm has no such choice"),
        (DedupCommand(file="urls", redis=("redis://127.0.0.1:1",), kind="both"), "--filter: only dsbf can be shared"),
        (DedupCommand(file="urls", false_positive=2.0), ": --false-positive is 2.0; it must be in (0, 0.5]"),
        (DedupCommand(file="urls", false_positive=math.nan), ": --false-positive is nan; "),
        (DedupCommand(file="urls", kind="similar", false_positive=-1.0), ": --false-positive is -1.0; "),
        (DedupCommand(file="urls", kind="similar", expected=0), ": --expect is 0; "),
        (DedupCommand(file="urls", signature="rot13"), ": --signature 'rot13' is unknown"),
        (DedupCommand(file="urls", signature="operator:add"), ": --signature 'operator:add' failed for b'': TypeError"),
        (DedupCommand(file="urls", levels=(9, 9)), ": --levels (9, 9): "),
        (DedupCommand(file="urls", levels=(1, 4)), ": --levels (1, 4) ask for more than the 4 bytes of crc32"),
        (DedupCommand(file="urls", kind="similar", features="no"), ": --features: feature 'no' is unknown"),
        (DedupCommand(file="urls", kind="similar", features="site,site"), ": --features are 'site site'; "),
        (DedupCommand(file="urls", kind="similar", features="math:sqrt"), ": --features: feature 'math:sqrt' failed"),
        (DedupCommand(file=""), "FILE: must not be empty"),
        (DedupCommand(pcap=""), "--pcap: must not be empty"),
        (DedupCommand(file="urls", kind=""), "--filter: must not be empty"),
        (DedupCommand(file="urls", redis=("redis://127.0.0.1:1",), name=""), "--name: must not be empty"),
        (DedupCommand(file="urls", redis=("",)), "--redis: must not be empty"),
        (DedupCommand(file="urls", signature="", features=""), "--signature and --features: must not be empty"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2(capfd, command, words) -> None:
    """And nothing is left behind."""
    Path("urls").write_bytes(b"a\n")
    assert run_dedup(command) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(r"anabranch: [^\n]+\n", err), err
    assert words in err
    assert [entry.name for entry in Path().iterdir()] == ["urls"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("what?"), 2),
        (BadParameters("what?"), 2),
        (StoreFull(errno.ENOSPC, "full", "d"), 3),
        (OutputFailed(errno.ENOSPC, "full"), 3),
        (OutputFailed(errno.EDQUOT, "full"), 3),
        (OutputFailed(errno.EIO, "broken"), 1),
        (OSError(errno.ENOSPC, "full"), 3),
        (OSError(errno.EROFS, "read-only"), 3),
        (OutputFailed(errno.EROFS, "read-only"), 3),
        (DiskReadOnly("read-only"), 3),
        (FormatMismatch("other"), 4),
        (InvariantBroken("odd"), 4),
        (FilterInUse("held"), 1),
        (CaptureError("no"), 1),
        (FileNotFoundError(errno.ENOENT, "No such file", "urls"), 1),
    ],
    ids=repr,
)
def test_an_error_has_its_exit_code(error: Exception, code: int) -> None:
    """By the table that all commands share."""
    assert exit_code(error) == code


def test_a_file_that_is_missing_is_named(capfd) -> None:
    """Exit 1, and no folder is made."""
    assert run_dedup(DedupCommand(file="none", state=Path("d"))) == 1
    assert capfd.readouterr() == ("", "anabranch: none: no such file or directory\n")
    assert not Path("d").exists()


@pytest.mark.parametrize(("name", "advice"), [("stdin", "name a FILE"), ("stdout", "redirect it")])
def test_a_closed_stream_is_told(monkeypatch, capfd, name, advice) -> None:
    """Its number may belong to another file by then; nothing may be written there."""
    Path("urls").write_bytes(b"a\n")
    monkeypatch.setattr(sys, name, None)
    assert run_dedup(DedupCommand(file="urls" if name == "stdout" else None)) == 2
    assert advice in capfd.readouterr().err


def test_the_totals_say_what_became_of_the_lines(capfd) -> None:
    """And what the filter knows and risks."""
    Path("urls").write_bytes(b"a\nb\na\n\n" + b"x" * (1 << 20) + b"y\n")
    assert run_dedup(DedupCommand(file="urls", kind="exact", expected=1000)) == 0
    out, err = capfd.readouterr()
    assert out == "a\nb\n"
    assert err == (
        "anabranch: urls: a line is longer than 1.0 MiB and left out; the totals count all of them\n"
        "read 5 lines: 2 new, 1 seen, 1 empty, 1 longer than 1.0 MiB\n"
        "filter exact: 2 URLs known, 3 questions (SMM 100.0%, index 0.0%, dropped 0.0%), SMM 1.2e-07 full, 32 B, "
        "464 B of memory, 0 B mapped, P(false drop) 0, expected lost 0\n"
    )


def test_a_similarity_filter_is_a_stage_before_a_filter(capfd) -> None:
    """A line that resembles new ones is dropped; a known one by the filter. The next run goes on with both."""
    Path("urls").write_bytes(b"http://a.test/x/1\nhttp://a.test/x/2\nhttp://a.test/x/1\nhttp://a.test/y/1\n")
    command = DedupCommand(
        file="urls", state=Path("d"), expected=1000, similar="published", similar_features="site, directory"
    )
    assert run_dedup(command) == 0
    out, err = capfd.readouterr()
    assert out == "http://a.test/x/1\nhttp://a.test/y/1\n"
    assert err.startswith("read 4 lines: 2 new, 2 seen, 0 empty\nfilter both: 2 URLs known, 4 questions (")
    Path("more").write_bytes(b"http://a.test/x/3\nhttp://b.test/x/1\nhttp://a.test/y/1\n")
    assert run_dedup(DedupCommand(file="more", state=Path("d"))) == 0
    assert capfd.readouterr().out == "http://b.test/x/1\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"similar": "published", "kind": "similar"}, "leave out --filter similar"),
        ({"similar": "other"}, "--similar 'other': choose published or site-bound"),
        ({"similar_expect": 5}, "give that, too"),
        ({"similar": "published", "redis": ("redis://a",)}, "leave out --redis"),
        ({"similar": "published", "similar_features": "x"}, "feature 'x' is unknown"),
    ],
)
def test_a_stage_that_cannot_be_is_refused(capfd, options, words) -> None:
    """One line."""
    Path("urls").write_bytes(b"a\n")
    assert run_dedup(DedupCommand(file="urls", **options)) == 2
    assert words in capfd.readouterr().err


def test_a_quiet_run_says_only_what_went_wrong(capfd) -> None:
    """No totals."""
    Path("urls").write_bytes(b"a\n")
    assert run_dedup(DedupCommand(file="urls", expected=1000, quiet=True)) == 0
    assert capfd.readouterr() == ("a\n", "")


def test_a_plan_that_loses_more_than_its_rate_allows_warns(capfd) -> None:
    """Once, at the start; a filter that is large enough says nothing."""
    Path("urls").write_bytes(b"a\n")
    assert run_dedup(DedupCommand(file="urls", kind="smm", levels=(1, 1), expected=1000)) == 0
    said = capfd.readouterr().err.splitlines()
    assert said[0] == (
        "anabranch: filter smm is expected to lose 8 of 1,000 URLs, more than --false-positive allows (1); "
        "choose --filter both or exact, or expect fewer"
    )
    assert len(said) == 3
    assert run_dedup(DedupCommand(file="urls", kind="smm", expected=1000, quiet=True)) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("state", "syncs"), [(Path("d"), 2), (None, 0)])
def test_a_lasting_filter_is_synced_now_and_then_and_at_the_end(monkeypatch, capfd, state, syncs) -> None:
    """So that a power cut repeats few lines. A temporary one is never written to the disk on purpose."""
    synced = []
    sync = UniqFilter.sync
    monkeypatch.setattr(UniqFilter, "sync", lambda uniq: synced.append(1) or sync(uniq))
    monkeypatch.setattr(
        dedup_module, "Cadence", lambda interval_s: Cadence(interval_s, iter(range(0, 9999, 20)).__next__)
    )
    monkeypatch.setattr("anabranch.dedup.stream.READ_BYTES", 2)
    Path("urls").write_bytes(b"a\nb\nc\n")
    assert run_dedup(DedupCommand(file="urls", state=state, expected=1000)) == 0
    assert len(synced) == syncs


def test_a_state_can_be_verified(capfd) -> None:
    """It is opened, read whole and told; a broken one ends with 4."""
    Path("urls").write_bytes(b"a\nb\n")
    state = Path("d")
    run_dedup(DedupCommand(file="urls", state=state, expected=1000, quiet=True))
    assert run_dedup(DedupCommand(state=state, check=True)) == 0
    assert "2 URLs known" in capfd.readouterr().err
    assert run_dedup(DedupCommand(state=state, check=True, quiet=True)) == 0
    assert capfd.readouterr().err == ""
    damaged = state / "smm" / "ADDRESSES"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    assert run_dedup(DedupCommand(state=state, check=True)) == 4
    assert "ADDRESSES is damaged" in capfd.readouterr().err


def test_a_filter_that_cannot_be_verified_says_so(capfd) -> None:
    """It does not call itself right."""
    Path("urls").write_bytes(b"a\n")
    run_dedup(DedupCommand(file="urls", state=Path("d"), kind="similar"))
    assert run_dedup(DedupCommand(state=Path("d"), check=True)) == 2
    assert "similar cannot be verified" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "read-only file system"), (errno.EACCES, "permission denied")]
)
@pytest.mark.parametrize("check", [True, False])
def test_a_state_that_may_not_be_written_is_told(monkeypatch, capfd, number, words, check) -> None:
    """Exit 3, and what to do: opening a filter writes, verifying it too."""
    Path("urls").write_bytes(b"a\n")
    Path("d").mkdir()

    def refuse(folder, _):
        raise OSError(number, os.strerror(number), str(folder / "FORMAT"))

    monkeypatch.setattr(dedup_module, "open_filter", refuse)
    advice = "a filter must be writable to be opened, to verify it, too: copy the folder and name the copy"
    assert run_dedup(DedupCommand(file=None if check else "urls", state=Path("d"), check=check)) == 3
    assert capfd.readouterr() == (
        "",
        f"anabranch: d/FORMAT: {words}; {advice}\n",
    )
    assert run_dedup(DedupCommand(file="urls", state=Path("new"))) == 3
    assert capfd.readouterr().err.endswith("; name a folder that is writable\n")


def test_a_state_with_a_folder_in_a_files_place_is_named(capfd) -> None:
    """An error of the system without a path has at least the state's."""
    Path("urls").write_bytes(b"a\n")
    run_dedup(DedupCommand(file="urls", state=Path("d"), kind="dsbf", expected=1000, quiet=True))
    Path("d/dsbf/MANIFEST").unlink()
    Path("d/dsbf/MANIFEST").mkdir()
    capfd.readouterr()
    assert run_dedup(DedupCommand(file="urls", state=Path("d"))) in {1, 4}
    assert re.fullmatch(r"anabranch: d[^\n]*: [^\n]+\n", capfd.readouterr().err)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (
            "smm",
            {"signature": "{}:signature", "expected": 1_000_000},
            "--signature '{}:signature' failed for b'http://a.test/bad': ValueError: no",
        ),
        (
            "similar",
            {"features": "{}:feature"},
            r"--features: feature '{}:feature' failed for (b'a.test', b'bad'): ValueError: no",
        ),
    ],
)
def test_an_own_function_that_fails_in_the_stream_loses_no_line(
    monkeypatch, tmp_path, capfd, kind, options, words
) -> None:
    """One line and exit 2; what was written is marked, and once the function is mended, the rest comes."""
    name = f"own_{kind}"
    (tmp_path / f"{name}.py").write_text(
        "def no(): raise ValueError('no')\n"
        "broken = True\n"
        "def signature(key): return no() if broken and b'bad' in key else key[-4:].rjust(4, b'.')\n"
        "def feature(parts): return no() if broken and parts[-1] == b'bad' else parts[-1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("anabranch.dedup.stream.READ_BYTES", 16)
    Path("urls").write_bytes(b"http://a.test/1\nhttp://a.test/2\nhttp://a.test/bad\n")
    given = {field: value.format(name) if isinstance(value, str) else value for field, value in options.items()}
    assert run_dedup(DedupCommand(file="urls", state=Path("d"), kind=kind, **given)) == 2
    assert capfd.readouterr() == ("http://a.test/1\nhttp://a.test/2\n", f"anabranch: {words.format(name)}\n")
    sys.modules[name].broken = False
    assert run_dedup(DedupCommand(file="urls", state=Path("d"))) == 2, "the folder alone names the function"
    assert "only the folder names; name it, too" in capfd.readouterr().err
    assert run_dedup(DedupCommand(file="urls", state=Path("d"), **given)) == 0
    assert capfd.readouterr().out == "http://a.test/bad\n"


def test_a_run_without_a_state_leaves_nothing_behind(monkeypatch, tmp_path, capfd) -> None:
    """Its filter lives in the folder for temporary files, also if the run fails."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "urls").write_bytes(b"a\n")
    assert run_dedup(DedupCommand(file="urls", expected=1000)) == 0
    assert run_dedup(DedupCommand(file=str(tmp_path), expected=1000)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["urls"]


def capture(*targets: bytes) -> bytes:
    """A pcap file with one request for each target."""
    text = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
    for port, target in enumerate(targets, 4000):
        tcp = struct.pack(">HHIIBBHHH", port, 80, 1, 0, 5 << 4, 16, 0, 0, 0)
        tcp += b"GET " + target + b" HTTP/1.1\r\nHost: a.test\r\n\r\n"
        packet = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + bytes(8) + tcp
        text += struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet
    return text


def test_urls_may_come_out_of_a_capture(capfd) -> None:
    """Each on a line; the totals tell what was in the capture."""
    Path("c.pcap").write_bytes(capture(b"/1", b"/2", b"/1"))
    assert run_dedup(DedupCommand(pcap="c.pcap", expected=1000)) == 0
    out, err = capfd.readouterr()
    assert out == "http://a.test/1\nhttp://a.test/2\n"
    assert err.startswith(
        "read 3 lines: 2 new, 1 seen, 0 empty; capture: 3 frames, 3 segments, 3 requests\nfilter both: "
    )
    Path("empty.pcap").write_bytes(capture())
    assert run_dedup(DedupCommand(pcap="empty.pcap", expected=1000)) == 0
    assert "; capture: no frames\n" in capfd.readouterr().err


def test_a_capture_of_which_nothing_can_be_read_is_told(capfd) -> None:
    """A link type that is not known, or garbage behind a good header: one line, and the exit code of any input's end."""
    unknown = bytearray(capture(b"/1", b"/2"))
    unknown[20:24] = struct.pack("<I", 147)
    for text in (bytes(unknown), capture() + b"\xff" * 100):
        Path("c.pcap").write_bytes(text)
        assert run_dedup(DedupCommand(pcap="c.pcap", expected=1000, quiet=True)) == 0
        out, err = capfd.readouterr()
        assert out == ""
        assert re.fullmatch(r"anabranch: c\.pcap: no frame could be read: [^\n]+\n", err), err
    Path("c.pcap").write_bytes(capture(b"/1") + b"\xff" * 100)
    assert run_dedup(DedupCommand(pcap="c.pcap", expected=1000, quiet=True)) == 0
    assert capfd.readouterr() == ("http://a.test/1\n", "")


def test_what_is_no_capture_is_told(capfd) -> None:
    """Exit 4, as for any file of another format; 1 if there is none."""
    Path("urls").write_bytes(b"http://a.test/\n")
    assert run_dedup(DedupCommand(pcap="urls", expected=1000)) == 4
    assert "urls is no pcap or pcapng file" in capfd.readouterr().err
    assert run_dedup(DedupCommand(pcap="none", expected=1000)) == 1


def test_an_interface_that_does_not_exist_is_told(capfd) -> None:
    """Or that one has to be root: one line, exit 1."""
    assert run_dedup(DedupCommand(interface="none0")) == 1
    assert capfd.readouterr().err.startswith("anabranch: cannot capture from none0: ")


def test_reading_from_a_terminal_is_said(monkeypatch, capfd) -> None:
    """Else the command seems to hang."""
    ours, theirs = os.openpty()
    os.write(ours, b"a\n\x04")
    with io.TextIOWrapper(io.FileIO(theirs)) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert run_dedup(DedupCommand(expected=1000)) == 0
    out, err = capfd.readouterr()
    os.close(ours)
    assert out == "a\n"
    assert err.startswith("anabranch: reading URLs from the terminal; Ctrl-D ends them\n")


@pytest.mark.parametrize(
    "default", ["both", "10M; similar: 1M", "0.001", ": xxh3 for smm, else crc32", ": by --expect", "anabranch"]
)
def test_the_help_names_the_defaults(default) -> None:
    """The help names the default of each option that a new filter is made with."""
    shown = CliRunner().invoke(app, ["dedup", "--help"], env={"COLUMNS": "200"}).output
    assert f"(default{'' if default[0] == ':' else ' '}{default})" in shown


def test_the_database_of_the_similarity_filter_is_imported_by_those_who_use_it() -> None:
    """A short list is passed on before SQLAlchemy is read in."""
    program = """
import sys
from anabranch.crawler.cli import main
sys.argv = ["anabranch", "dedup", "--expect", "1000", "-q"]
try:
    main()
finally:
    heavy = {"aiohttp", "redis", "sqlalchemy", "structlog"} & set(sys.modules)
    assert not heavy, heavy
"""
    command = [sys.executable, "-P", "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(command, input=b"a\na\n", env=environment, check=False, capture_output=True, timeout=HANG_S)
    assert (ended.returncode, ended.stdout) == (0, b"a\n"), ended.stderr


@pytest.mark.parametrize(
    ("counts", "has_fault"),
    [
        ({}, False),  # an empty capture lacks nothing
        ({"frames": 3, "other_frames": 3}, True),
        ({"frames": 3, "other_frames": 1, "fragments": 1, "malformed_packets": 1}, True),
        ({"frames": 1, "truncated_frames": 1}, True),
        ({"damaged_records": 1}, True),
        ({"frames": 3, "other_frames": 2}, False),  # one was TCP without payload
        ({"frames": 3, "other_frames": 2, "truncated_frames": 1, "segments": 1}, False),
        ({"frames": 3, "segments": 3, "damaged_records": 1}, False),
    ],
    ids=str,
)
def test_a_capture_without_a_frame_that_can_be_read_is_at_fault(counts: dict[str, int], has_fault: bool) -> None:
    """It gives no URL whatever was in it; one without requests may be as it should."""
    assert bool(capture_fault(CaptureStatistics(**counts))) == has_fault


def test_what_a_capture_met_is_told_in_numbers() -> None:
    """Zeros are left out."""
    assert capture_words(CaptureStatistics()) == "; capture: no frames"
    assert capture_words(CaptureStatistics(frames=1200, gaps=1)) == "; capture: 1,200 frames, 1 gaps"


def test_a_file_is_open_as_long_as_it_is_read(tmp_path: Path) -> None:
    """It is named as it was given."""
    (tmp_path / "urls").write_bytes(b"a\n")
    with lines_of(str(tmp_path / "urls")) as source:
        assert os.read(source.fd, 10) == b"a\n"
        assert (source.name, source.counted(), source.fault()) == (str(tmp_path / "urls"), "", "")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(source.fd)


@pytest.mark.parametrize("file", [None, "-"])
def test_without_a_file_standard_input_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    """It stays open: it is not ours."""
    (tmp_path / "urls").write_bytes(b"a\n")
    with (tmp_path / "urls").open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        with lines_of(file) as source:
            assert (source.fd, source.name) == (given.fileno(), "standard input")
        assert given.read() == "a\n"


def test_a_closed_stream_has_no_number() -> None:
    """The number of a closed stream may belong to any other file by then."""
    with pytest.raises(UsageError, match="standard input is closed; name a FILE"):
        descriptor(None, "input", "name a FILE")
