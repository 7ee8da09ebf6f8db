"""Bodies: in memory while small, in a file without a name when large; their SHA-1 and their end."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.fetch.response import Body, Scratch
from anabranch.crawler.outcomes.errors import DiskFull, StorageError

CHUNKS = st.lists(st.binary(max_size=40), max_size=8)


def filled(scratch: Scratch, *chunks: bytes) -> Body:
    body = scratch.body()
    for chunk in chunks:
        body.append(chunk)
    return body


@pytest.fixture(params=[1 << 20, 3])
def scratch(request: pytest.FixtureRequest, tmp_path: Path) -> Scratch:
    """One whose bodies stay in memory, and one whose bodies go to a file."""
    return Scratch(tmp_path, memory_bytes=request.param)


@pytest.mark.parametrize("memory_bytes", [1 << 20, 3])
@given(chunks=CHUNKS, limit=st.integers(0, 100), size=st.integers(1, 50))
def test_a_body_gives_back_what_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, memory_bytes: int, chunks: list[bytes], limit: int, size: int
) -> None:
    """All at once, the beginning, in pieces, as a file; wherever it is. Its digest is the SHA-1 of all."""
    data = b"".join(chunks)
    body = filled(Scratch(tmp_path_factory.getbasetemp(), memory_bytes=memory_bytes), *chunks)
    assert body.is_in_memory is (len(data) <= memory_bytes)
    assert (body.size, body.digest) == (len(data), hashlib.sha1(data).digest())
    assert body.read(limit) == data[:limit]
    assert body.read() == data
    pieces = list(body.chunks(size))
    assert b"".join(pieces) == data
    assert all(len(piece) <= size for piece in pieces)
    with body.file() as file:
        assert file.read() == data
    body.close()


def test_its_files_do_not_disturb_each_other(scratch: Scratch) -> None:
    """Each has a position of its own, which can be moved."""
    body = filled(scratch, b"0123", b"456789")
    with body.file() as one, body.file() as other:
        assert one.read(4) == b"0123"
        assert other.read(2) == b"01"
        assert (one.seek(-2, io.SEEK_END), one.read()) == (8, b"89")
        assert (other.seek(1, io.SEEK_CUR), other.read(1), other.tell()) == (3, b"3", 4)
        assert (one.seek(0), one.read(1)) == (0, b"0")
    body.append(b"!")
    assert body.read() == b"0123456789!"
    body.close()


def test_a_sealed_body_is_read_and_closed_but_takes_no_more(scratch: Scratch) -> None:
    """Its size and digest stay those of what came."""
    body = filled(scratch, b"0123", b"456789")
    body.seal()
    with pytest.raises(ValueError, match="complete"):
        body.append(b"!")
    assert (body.size, body.read(), body.digest) == (10, b"0123456789", hashlib.sha1(b"0123456789").digest())
    body.close()
    assert body.is_closed


def test_a_large_body_leaves_no_name_in_the_folder(tmp_path: Path) -> None:
    """It is gone with the process, however that ends."""
    body = filled(Scratch(tmp_path, memory_bytes=1), b"abc")
    assert not body.is_in_memory
    assert list(tmp_path.iterdir()) == []
    body.close()


def test_the_memory_of_all_bodies_together_is_bounded(tmp_path: Path) -> None:
    """The one that would go beyond moves into a file; what is closed makes room."""
    scratch = Scratch(tmp_path, memory_bytes=10, shared_bytes=15)
    first, second = filled(scratch, b"x" * 10), filled(scratch, b"y" * 6)
    assert (first.is_in_memory, second.is_in_memory, scratch.held_bytes) == (True, False, 10)
    first.close()
    third = filled(scratch, b"z" * 7, b"z" * 3)
    assert (third.is_in_memory, scratch.held_bytes) == (True, 10)
    third.append(b"!")
    assert (third.is_in_memory, scratch.held_bytes, third.read()) == (False, 0, b"z" * 10 + b"!")
    second.close()
    third.close()


def test_a_closed_body_has_given_everything_back(scratch: Scratch) -> None:
    """Its file descriptor too; a second close does nothing; size and digest stay."""
    descriptors = len(list(Path("/dev/fd").iterdir()))
    body = filled(scratch, b"abcd")
    body.close()
    body.close()
    assert (scratch.held_bytes, body.size, body.digest) == (0, 4, hashlib.sha1(b"abcd").digest())
    assert len(list(Path("/dev/fd").iterdir())) == descriptors


def test_a_scratch_without_a_folder_keeps_all_in_memory() -> None:
    """For tests."""
    body = filled(Scratch(None, memory_bytes=1), b"abc")
    assert (body.is_in_memory, body.read()) == (True, b"abc")
    assert Body.of(b"x" * 200_000).read() == b"x" * 200_000


def test_a_folder_that_is_gone_is_a_storage_error(tmp_path: Path) -> None:
    """Never a page's failure: the crawl ends and says what to do."""
    with pytest.raises(StorageError, match="nowhere"):
        filled(Scratch(tmp_path / "nowhere", memory_bytes=1), b"abc")


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real device that is full takes the file's place."""
    scratch = Scratch(tmp_path, memory_bytes=1)
    monkeypatch.setattr(scratch, "file", lambda: Path("/dev/full").open("r+b", buffering=0))  # noqa: SIM115
    body = scratch.body()
    with pytest.raises(DiskFull, match="no space left"):
        body.append(b"abc")
    body.close()


def test_a_body_shows_where_it_is(tmp_path: Path) -> None:
    """For logs and tests."""
    assert repr(Body.of(b"abc")) == "<Body 3 bytes in memory>"
    body = filled(Scratch(tmp_path, memory_bytes=1), b"abc")
    assert repr(body) == "<Body 3 bytes in a file>"
    body.close()
