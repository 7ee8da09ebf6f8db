"""Members of WARC files: gzip members and zstd frames, made and read, whole and broken."""

from __future__ import annotations

import gzip
import os
import random
import sys
from importlib.util import find_spec, module_from_spec
from io import BytesIO
from pathlib import Path
from types import ModuleType

import pytest

from anabranch.crawler.archive import compression
from anabranch.crawler.archive.compression import (
    PIECE_BYTES,
    BrokenMember,
    Gzip,
    MemberReader,
    Zstd,
    compression_of,
    trained_dictionary,
)
from anabranch.crawler.outcomes.errors import OrderError, UsageError
from anabranch.extras import install_command
from tests.crawler.archive.exchanges import COMPRESSIONS, dictionary, zstd

SIZES = (0, 1, 249, 250, 600, 12_000, 32_505, 32_506, 200_000)


def text_of(size: int) -> bytes:
    return bytes(random.Random(size).choices(b"ab<>/ ", k=size))


@pytest.fixture(params=["zlib", "isal"])
def loaded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where isal is installed, or not: loaded once more, beside the one that others use."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
    else:
        pytest.importorskip("isal")
    spec = find_spec(compression.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_by(packer: object) -> str:
    return type(packer).__module__.partition(".")[0].removesuffix("_zlib")


def test_gzip_is_made_by_the_library_that_is_there(loaded: ModuleType) -> None:
    """Without isal, zlib compresses."""
    assert made_by(loaded.Gzip().packer(10)) == ("isal" if loaded._HAS_ISAL else "zlib")


def test_gzip_is_made_by_the_library_that_is_wanted() -> None:
    """`[write] deflate = "zlib"` makes smaller files."""
    assert made_by(compression_of("gzip", "zlib", "").packer(10)) == "zlib"


@pytest.mark.parametrize("size", SIZES)
def test_a_gzip_member_of_any_size_is_read_by_everyone(loaded: ModuleType, size: int) -> None:
    """Also one that is larger than any window, and one that came in pieces."""
    text, made = text_of(size), loaded.Gzip()
    packer = made.packer(size)
    in_pieces = packer.compress(text[: size // 3]) + packer.compress(text[size // 3 :]) + packer.flush()
    for member in (made.member(text), in_pieces):
        assert gzip.decompress(member) == text
        assert len(member) < max(size, 30)


@pytest.mark.parametrize("content", [b"", dictionary()])
@pytest.mark.parametrize("size", SIZES)
def test_a_zstd_frame_has_its_size_checksum_and_dictionary(size: int, content: bytes) -> None:
    """The format of WARC files demands them, of a frame made at once or in pieces."""
    text, made = text_of(size), Zstd(content)
    known = zstd().ZstdDict(content) if content else None
    packer = made.packer(size)
    in_pieces = packer.compress(text[: size // 3]) + packer.compress(text[size // 3 :]) + packer.flush()
    for frame in (made.member(text), in_pieces):
        assert zstd().decompress(frame, zstd_dict=known) == text
        about = zstd().get_frame_info(frame)
        assert (about.decompressed_size, about.dictionary_id) == (size, known.dict_id if known else 0)
        assert frame[4] & 4, "Content_Checksum_flag of RFC 8878"


def test_a_frame_that_broke_off_spoils_no_other() -> None:
    """The body of a record may end too early."""
    made = Zstd()
    made.packer(300_000).compress(bytes(200_000))
    assert zstd().decompress(made.member(b"next")) == b"next"


def file_of(name: str, *texts: bytes) -> tuple[bytes, list[int]]:
    """A file of these records, and their offsets."""
    made = COMPRESSIONS[name]()
    data, offsets = made.beginning, []
    for text in texts:
        offsets.append(len(data))
        data += made.member(text)
    return data, offsets


def reader(name: str, data: bytes) -> MemberReader:
    return MemberReader(BytesIO(data), "f" + COMPRESSIONS[name]().ending)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_members_are_read_in_any_order(name: str) -> None:
    """One after the other, again, and after one that was left in the middle."""
    texts = [text_of(size) for size in SIZES[1:]]
    data, offsets = file_of(name, *texts)
    members = reader(name, data)
    for _ in range(2):
        for text, offset, end in zip(texts, offsets, [*offsets[1:], len(data)], strict=True):
            assert b"".join(members.pieces(offset)) == text
            assert members.end == end
        assert len(next(members.pieces(offsets[-1]))) < len(texts[-1])
    assert b"".join(members.pieces(offsets[0])) == texts[0]


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_member_of_zeros_comes_in_pieces(name: str) -> None:
    """A few bytes may become gigabytes."""
    data, (offset,) = file_of(name, bytes(50 << 20))
    sizes = [len(piece) for piece in reader(name, data).pieces(offset)]
    assert (sum(sizes), max(sizes)) == (50 << 20, PIECE_BYTES)


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("where", [0, 12, -1])
def test_a_member_with_a_wrong_byte_is_broken(name: str, where: int) -> None:
    """Its begin, its data and its checksum are looked at."""
    data, (_, offset) = file_of(name, b"good", os.urandom(200))
    spoilt = bytearray(data)
    spoilt[offset + where if where >= 0 else where] ^= 1
    with pytest.raises(BrokenMember):
        list(reader(name, bytes(spoilt)).pieces(offset))


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_torn_member_is_broken(name: str) -> None:
    """Wherever the file ends, the dictionary included."""
    data, (offset,) = file_of(name, os.urandom(100))
    for end in (*range(offset, len(data)), *range(0, offset, 100)):
        with pytest.raises(BrokenMember):
            list(reader(name, data[:end]).pieces(offset))


def test_a_skippable_frame_has_no_bytes() -> None:
    """The dictionary, and what other programs put between the records."""
    made, other = Zstd(dictionary()), b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    members = reader("dictionary", made.beginning + other + made.member(b"text"))
    found, offset = [], 0
    for _ in range(3):
        found.append(b"".join(members.pieces(offset)))
        offset = members.end
    assert found == [b"", b"", b"text"]


def test_a_compressed_dictionary_is_read() -> None:
    """Other programs store it so."""
    library = zstd()
    stored = library.compress(dictionary())
    data = b"\x5d\x2a\x4d\x18" + len(stored).to_bytes(4, "little") + stored
    frame = Zstd(dictionary()).member(b"text")
    assert b"".join(reader("zstd", data + frame).pieces(len(data))) == b"text"


@pytest.mark.parametrize("stored", [b"\x37\xa4\x30\xecnone", bytes(300), b"\x28\xb5\x2f\xfdnone"])
def test_a_broken_dictionary_breaks_the_members(stored: bytes) -> None:
    """And no other error comes of it."""
    data = b"\x5d\x2a\x4d\x18" + len(stored).to_bytes(4, "little") + stored
    with pytest.raises(BrokenMember):
        list(reader("zstd", data + Zstd(dictionary()).member(b"text")).pieces(len(data)))


def test_a_dictionary_too_large_is_not_read() -> None:
    """Other readers would not take it either."""
    size = 9 << 20
    with pytest.raises(BrokenMember, match="cut or too large"):
        list(reader("zstd", b"\x5d\x2a\x4d\x18" + size.to_bytes(4, "little") + bytes(size)).pieces(0))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file or directory"),
        (b"", "is no dictionary of zstd"),
        (b"<html>", "is no dictionary of zstd"),
        (b"\x37\xa4\x30\xec" + bytes(300), "is no dictionary of zstd"),
        (b"\x37\xa4\x30\xec" + bytes(8 << 20), "is no dictionary of zstd"),
    ],
)
def test_what_is_no_dictionary_is_refused_in_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    """With the key, the path, and the command that makes one."""
    path = tmp_path / "dictionary"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OrderError) as error:
        compression_of("zstd", "isal", str(path))
    assert str(error.value).startswith(f"[write] zstd_dictionary '{path}': {words}")
    assert "\n" not in str(error.value)


def test_a_dictionary_of_too_few_records_is_refused() -> None:
    """The library says no more than that it failed."""
    for samples in ([], [b"one"]):
        with pytest.raises(UsageError, match="records are too few for a dictionary"):
            trained_dictionary(samples)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """For writing and for reading; gzip needs none."""
    data, (offset,) = file_of("zstd", b"text")
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OrderError) as written:
        compression_of("zstd", "isal", "")
    assert str(written.value) == f"[write] compression 'zstd': needs backports.zstd; {install_command('zstd')}"
    with pytest.raises(UsageError) as read:
        list(MemberReader(BytesIO(data), "f.warc.zst").pieces(offset))
    assert str(read.value) == f"f.warc.zst: needs backports.zstd; {install_command('zstd')}"
    assert gzip.decompress(Gzip().member(b"text")) == b"text"
