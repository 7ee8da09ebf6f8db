"""The control socket: questions in, answers out, for its owner alone, whatever stood there before."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from anabranch.crawler.outcomes.errors import ExitCode, UsageError
from anabranch.crawler.run import control
from anabranch.crawler.run.control import SOCKET, Control, ControlRefused, ControlSilent, ask, has_crawl
from anabranch.frontier.errors import StoreFull, UnknownQueue
from tests.patience import HANG_S


async def echo(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"verb": verb, **arguments}


def failing(error: Exception) -> Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]:
    async def answer(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        raise error

    return answer


async def asked(state: Path, verb: str, **arguments: object) -> Mapping[str, Any] | None:
    """Ask from another thread, as another process does."""
    return await asyncio.to_thread(ask, state, verb, arguments)


async def said(state: Path, text: bytes, lines: int = 1) -> list[dict[str, Any]]:
    """Send raw bytes; the answers."""
    reader, writer = await asyncio.open_unix_connection(str(state / SOCKET))
    writer.write(text)
    answers = [json.loads(await reader.readline()) for _ in range(lines)]
    writer.close()
    await writer.wait_closed()
    return answers


async def test_a_question_is_answered(tmp_path: Path) -> None:
    """Verb and arguments arrive as they were given, the facts come back."""
    async with Control(tmp_path, echo):
        assert await asked(tmp_path, "block", host="ä.test", for_s=1.5) == {
            "verb": "block",
            "host": "ä.test",
            "for_s": 1.5,
        }


async def test_one_connection_may_ask_often_and_in_pieces(tmp_path: Path) -> None:
    """Each line is a question, however the bytes come; answers keep the order."""
    questions = [json.dumps({"verb": str(number), "arguments": {}}).encode() + b"\n" for number in range(5)]
    async with Control(tmp_path, echo):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        for byte in b"".join(questions[:2]):
            writer.write(bytes([byte]))
            await writer.drain()
        writer.write(b"".join(questions[2:]))
        answers = [json.loads(await reader.readline()) for _ in questions]
        writer.close()
    assert [answer["facts"]["verb"] for answer in answers] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such host"), ExitCode.USAGE),
        (UnknownQueue("no such queue"), ExitCode.USAGE),
        (StoreFull("the disk is full"), ExitCode.DISK_FULL),
        (ControlRefused("what a share of the crawl said", ExitCode.USAGE), ExitCode.USAGE),
    ],
)
async def test_an_error_is_a_line_and_an_exit_code(tmp_path: Path, error: Exception, code: ExitCode) -> None:
    """The one who asked ends as if the command had met it itself."""
    async with Control(tmp_path, failing(error)):
        with pytest.raises(ControlRefused) as caught:
            await asked(tmp_path, "show")
    assert (str(caught.value), caught.value.exit_code) == (str(error), code)


async def test_a_defect_is_told_and_the_socket_goes_on(tmp_path: Path) -> None:
    """A verb that fails in a way nobody foresaw must not end the crawl, nor leave the caller waiting."""
    async with Control(tmp_path, failing(ZeroDivisionError("oops"))):
        for _ in range(2):
            with pytest.raises(ControlRefused, match=r"ls failed: .*oops"):
                await asked(tmp_path, "ls")


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[]",
        b"{}",
        b'{"verb": 1, "arguments": {}}',
        b'{"verb": "ls", "arguments": []}',
        b"\xff",
        b"[" * 99_999,
    ],
)
async def test_a_line_that_is_no_question_is_refused(tmp_path: Path, line: bytes) -> None:
    """In one line, and the next question is answered."""
    good = b'{"verb": "ls", "arguments": {}}\n'
    async with Control(tmp_path, echo):
        refused, answered = await said(tmp_path, line + b"\n" + good, lines=2)
    assert (refused["code"], answered) == (ExitCode.USAGE, {"facts": {"verb": "ls"}})


async def test_a_line_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever it is: the crawl's memory is not theirs."""
    monkeypatch.setattr(control, "_MAX_LINE_BYTES", 1000)
    async with Control(tmp_path, echo):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        writer.write(b"x" * 2000)
        assert await reader.read() == b""
        writer.close()


async def test_the_socket_is_its_owners_alone_and_goes_with_the_crawl(tmp_path: Path) -> None:
    """Mode 0600 from the first moment on; nothing is left behind."""
    async with Control(tmp_path, echo):
        status = (tmp_path / SOCKET).stat()
        assert stat.S_ISSOCK(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o600
    assert not (tmp_path / SOCKET).exists()


async def test_whether_a_crawl_listens(tmp_path: Path) -> None:
    """It need not answer; a socket that a killed crawl has left is none."""
    assert not has_crawl(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hung:
        hung.bind(str(tmp_path / SOCKET))
        assert not has_crawl(tmp_path)
        hung.listen()
        assert has_crawl(tmp_path)
    assert not has_crawl(tmp_path)


async def test_nobody_hangs_when_the_crawl_ends(tmp_path: Path) -> None:
    """An open connection is hung up."""
    async with Control(tmp_path, echo):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        writer.write(b'{"verb": "ls", "arguments": {}}\n')
        await reader.readline()
    assert await reader.read() == b""
    writer.close()


class Slow:
    """Answers when it is told to; notes what is asked and what is being answered at the same time."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.begun: list[str] = []
        self.busy = 0
        self.busiest = 0

    async def __call__(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.begun.append(verb)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        await self.may_answer.wait()
        self.busy -= 1
        return {"verb": verb}

    async def asked(self, count: int) -> None:
        while len(self.begun) < count:
            await asyncio.sleep(0)


async def test_one_question_is_answered_at_a_time(tmp_path: Path) -> None:
    """Whoever asks: an order must not wait on the loop for a look that the store is busy with."""
    slow = Slow()
    async with Control(tmp_path, slow):
        first = asyncio.create_task(asked(tmp_path, "ls"))
        await slow.asked(1)
        second = asyncio.create_task(said(tmp_path, b'{"verb": "block", "arguments": {}}\n'))
        while len(replies_due()) < 2:
            await asyncio.sleep(0)
        assert slow.begun == ["ls"]
        slow.may_answer.set()
        assert [await first, await second] == [{"verb": "ls"}, [{"facts": {"verb": "block"}}]]
    assert slow.busiest == 1


def replies_due() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "control"]


async def test_who_asks_nothing_more_is_answered_all_the_same(tmp_path: Path) -> None:
    """A pipe into the socket ends before the answers come; after them it is hung up."""
    slow = Slow()
    async with Control(tmp_path, slow):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        writer.write(b'{"verb": "a", "arguments": {}}\n{"verb": "b", "arguments": {}}\n')
        writer.write_eof()
        await slow.asked(1)
        slow.may_answer.set()
        lines = (await reader.read()).splitlines()
        writer.close()
    assert [json.loads(line)["facts"]["verb"] for line in lines] == ["a", "b"]


async def test_a_client_that_never_reads_holds_one_answer_and_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other questions are not answered, so that no memory goes to them; other clients are."""
    monkeypatch.setattr(control, "PATIENCE_S", 0.2)
    numbers: list[int] = []

    async def long_answer(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "long":
            numbers.append(arguments["number"])
        return {"text": "x" * (1 << 20) if verb == "long" else "short"}

    questions = [json.dumps({"verb": "long", "arguments": {"number": number}}).encode() for number in range(500)]
    async with Control(tmp_path, long_answer) as served:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(tmp_path / SOCKET))
            client.sendall(b"\n".join(questions) + b"\n")
            assert await asked(tmp_path, "short") == {"text": "short"}
            while served._connections:  # until it is hung up on
                await asyncio.sleep(0.01)
            assert numbers == [0]


async def test_who_has_gone_keeps_nobody_from_an_answer(tmp_path: Path) -> None:
    """His question is answered to nobody, and the next one's to the next."""
    slow = Slow()
    async with Control(tmp_path, slow):
        _, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        writer.write(b'{"verb": "a", "arguments": {}}\n')
        await slow.asked(1)
        writer.transport.abort()
        slow.may_answer.set()
        assert await asked(tmp_path, "b") == {"verb": "b"}


async def test_what_was_asked_before_the_end_is_answered(tmp_path: Path) -> None:
    """The end waits for it, and hears nothing more."""
    slow = Slow()
    control = Control(tmp_path, slow)
    await control.__aenter__()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
    writer.write(b'{"verb": "a", "arguments": {}}\n')
    await slow.asked(1)
    ending = asyncio.create_task(control.__aexit__())
    await asyncio.sleep(0)
    writer.write(b'{"verb": "late", "arguments": {}}\n')
    slow.may_answer.set()
    assert json.loads(await reader.readline()) == {"facts": {"verb": "a"}}
    await ending
    assert slow.begun == ["a"]
    writer.close()


DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from anabranch.crawler.run.control import Control
from tests.patience import HANG_S

async def main():
    async with Control(Path(sys.argv[1]), None):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_the_socket_of_a_dead_process_is_nobodys_and_is_replaced(tmp_path: Path) -> None:
    """After `kill -9` the file stands: asking finds nobody, and the next crawl takes its place."""
    dead = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DYING, str(tmp_path)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert dead.returncode == -9
    assert (tmp_path / SOCKET).exists()
    assert await asked(tmp_path, "ls") is None
    async with Control(tmp_path, echo):
        assert await asked(tmp_path, "ls") == {"verb": "ls"}


async def test_nobody_listens_where_there_is_no_socket(tmp_path: Path) -> None:
    """No file, no folder, or a file that is none."""
    assert await asked(tmp_path, "ls") is None
    assert await asked(tmp_path / "nowhere", "ls") is None
    (tmp_path / SOCKET).write_text("not a socket")
    assert await asked(tmp_path, "ls") is None


async def test_a_file_of_that_name_is_not_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not ours; the crawl goes on without a socket, and says so."""
    (tmp_path / SOCKET).write_text("somebody's")
    async with Control(tmp_path, echo):
        assert (tmp_path / SOCKET).read_text() == "somebody's"
    assert (tmp_path / SOCKET).read_text() == "somebody's"
    captured = capsys.readouterr()
    assert "no control socket" in captured.out + captured.err


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system has no other way to a long path")
async def test_a_path_too_long_for_a_socket_is_reached_all_the_same(tmp_path: Path) -> None:
    """An address has 108 bytes; a job's folder may lie deeper."""
    deep = tmp_path / ("a" * 100) / ("ä" * 60)
    deep.mkdir(parents=True)
    async with Control(deep, echo):
        assert stat.S_IMODE((deep / SOCKET).stat().st_mode) == 0o600
        assert await asked(deep, "ls") == {"verb": "ls"}
    assert not (deep / SOCKET).exists()


async def test_where_no_short_path_is_to_be_had_the_crawl_goes_on(tmp_path: Path, monkeypatch, capsys) -> None:
    """A warning says what is missing; asking finds nobody."""
    monkeypatch.setattr(control, "_OPEN_FOLDERS", tmp_path / "none")
    deep = tmp_path / ("a" * 120)
    deep.mkdir()
    async with Control(deep, echo):
        assert await asked(deep, "ls") is None
    captured = capsys.readouterr()
    assert "longer than 103 bytes" in captured.out + captured.err


async def test_a_request_whose_client_may_have_given_up_is_left_undone(tmp_path: Path) -> None:
    """A crawl that was frozen and goes on would stop hours after somebody asked for it, and got no answer."""
    done: list[str] = []

    async def note(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        done.append(verb)
        return dict(arguments)

    async with Control(tmp_path, note):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        writer.write(json.dumps({"verb": "stop", "arguments": {}, "latest_s": monotonic() - 1.0}).encode() + b"\n")
        assert b"nothing was done" in await reader.readline()
        writer.close()
        assert await asked(tmp_path, "status") == {}
    assert done == ["status"]


def test_a_crawl_that_does_not_answer_is_told_apart_from_none(tmp_path: Path) -> None:
    """Its store may hang: opening the job beside it would fail with less to go by."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()
        with pytest.raises(ControlSilent, match="does not answer"):
            ask(tmp_path, "ls", {}, patience_s=0.05)


def test_a_crawl_that_does_not_answer_a_ping_gets_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does nothing when it goes on, however long it was stopped."""
    monkeypatch.setattr(control, "SILENT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()
        with pytest.raises(ControlSilent) as silent:
            ask(tmp_path, "crawl-stop", {})
        assert not silent.value.is_sent
        with listener.accept()[0] as connection:
            assert connection.recv(1000).count(b"\n") == 1
            assert connection.recv(1000) == b""


async def test_a_crawl_that_is_busy_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers pings while it works on a request, or while others wait before it."""
    monkeypatch.setattr(control, "SILENT_S", 0.05)  # between two pings; each may take its time on a busy machine
    loop, done, count, connected, ping = (
        asyncio.get_running_loop(),
        asyncio.Event(),
        0,
        control._connected,
        control._pings,
    )
    monkeypatch.setattr(control, "_connected", lambda path, _: connected(path, HANG_S))

    def pings(path: Path, silent_s: float) -> bool:
        nonlocal count
        count += 1
        if count == 3:
            loop.call_soon_threadsafe(done.set)
        return ping(path, silent_s)

    async def answer(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await done.wait()
        return {"verb": verb}

    monkeypatch.setattr(control, "_pings", pings)
    async with Control(tmp_path, answer):
        asked_both = await asyncio.gather(asked(tmp_path, "ls"), asked(tmp_path, "why"))
    assert asked_both == [{"verb": "ls"}, {"verb": "why"}]


async def test_a_client_may_ping_as_often_as_it_likes(tmp_path: Path) -> None:
    """Each has its answer, in order with those to requests."""
    async with Control(tmp_path, echo):
        answers = await said(tmp_path, (control._PING + b"\n") * 5000 + b'{"verb": "ls", "arguments": {}}\n', 5001)
    assert answers == [{"facts": {}}] * 5000 + [{"facts": {"verb": "ls"}}]


def test_a_crawl_that_ends_without_an_answer_is_none(tmp_path: Path) -> None:
    """It closed the connection: the job can be opened now."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()
        ready = partial(_hang_up, listener)
        import threading

        thread = threading.Thread(target=ready)
        thread.start()
        assert ask(tmp_path, "ls", {}) is None
        thread.join()


def _hang_up(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.close()
