"""`anabranch lab simulate` as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.command import anabranch, comparing

SMALL = ("lab", "simulate", "--pages", "300", "--hosts", "6", "--workers", "20", "--policies", "host,bkdr:97")


async def test_a_small_web_is_simulated_alike_each_time(tmp_path: Path) -> None:
    """A row for each policy, a picture, a CSV and a JSON file; the same numbers for the same options."""
    files = [tmp_path / name for name in ("a.png", "a.csv", "a.json", "b.json")]
    first = await anabranch(*SMALL, "--plot", files[0], "--csv", files[1], "--json", files[2], cwd=tmp_path)
    assert first.code == 0, first.err
    assert "many hosts, simulated" in first.out
    assert "the server's ledger is clean under every policy" in " ".join(first.out.split())
    assert "3s and 30s" in " ".join(first.out.split())
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert files[1].read_text().count("\nbkdr:97,") > 10
    again = await anabranch(*SMALL, "--json", files[3], cwd=tmp_path)
    assert again.code == 0
    one, other = (json.loads(file.read_text())["comparisons"][0]["runs"] for file in files[2:])
    assert one == other
    assert all(each["is_drained"] and each["queue_lengths"]["urls"] == 300 for each in one)


async def test_a_simulation_is_drawn_beside_what_was_saved(tmp_path: Path) -> None:
    """It simulates the saved web under the saved policies; a file that a simulation saved is refused."""
    tiny = ("compare", "--pages", "200", "--hosts", "10", "--seconds", "2s", "--workers", "20", "--policies", "host")
    assert (await comparing(*tiny, "--json", "live.json", cwd=tmp_path)).code == 0
    beside = await anabranch("lab", "simulate", "--beside", "live.json", "--json", "both.json", cwd=tmp_path)
    assert beside.code == 0, beside.err
    assert "simulated and live" in beside.out
    (both,) = json.loads((tmp_path / "both.json").read_text())["comparisons"]
    live, simulated = both["runs"][0], both["simulated"][0]
    assert {host["host"] for host in simulated["hosts"]} >= {host["host"] for host in live["hosts"][:3]}
    assert (await anabranch(*SMALL, "--json", "simulated.json", cwd=tmp_path)).code == 0
    refused = await anabranch("lab", "simulate", "--beside", "simulated.json", cwd=tmp_path)
    assert (refused.code, "a simulation; name what" in refused.err) == (2, True)


async def test_a_crawl_log_is_simulated(tmp_path: Path) -> None:
    """Its hosts, sizes and times are the web."""
    log = tmp_path / "crawl.log"
    line = (
        "2026-11-22T07:22:00.000Z   200       1000 http://a.test/{} L http://a.test/ text/html #001 "
        "20261122072200000+250 sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA - -\n"
    )
    log.write_text("".join(line.format(name) for name in ("", "b", "c")))
    ended = await anabranch("lab", "simulate", "--replay", log, "--policies", "host", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "3 URLs on 1 hosts" in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--policies", "nonsense"), "--policies: policy nonsense is unknown"),
        (("--policies", "ip"), "ip cannot be simulated"),
        (("--workers", "0"), "--workers must be from 1"),
        (("--kind", "islands"), "--kind 'islands' is unknown; choose one of portals, subdomains, hosts"),
        (("--scale", "0"), "--scale must be above 0"),
        (("--seconds", "0"), "--seconds must be above 0"),
        (("--pages", "5"), "at least one for each"),
        (("--beside", "none.json"), "none.json: no such file"),
        (("--beside", "none.json", "--workers", "7"), "leave out what sets workers"),
        (("--replay", "none.log"), "none.log: no such file"),
    ],
)
async def test_what_makes_no_sense_is_one_line(tmp_path: Path, flags: tuple[str, ...], words: str) -> None:
    """Before anything is simulated."""
    ended = await anabranch("lab", "simulate", *flags, cwd=tmp_path)
    assert ended.code == 2
    assert words in ended.err
    assert ended.err.count("\n") == 1
