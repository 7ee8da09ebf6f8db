"""Our reading of an odd answer is that of browsers, or of several other clients: Chromium, curl, wget and Go judge.

The slow test prints the table of `docs/explanation/testing.md`: `scripts/test --slow tests/crawler/fetch/test_judges.py -s`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.crawler.fetch.judges import JUDGES, Reading, installed
from tests.crawler.fetch.odd_answers import EXCEPTIONS, FAMILIES, OddAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.crawler.fetch.servers import Web

ALIKE, REFUSED, OTHER = "alike", "refused", "other"


def binding(readings: Mapping[str, Reading], odd: OddAnswer) -> list[Reading]:
    """The readings of which ours must be one: Chromium's, and what two of the others share; none if nobody reads the answer.

    A client that leaves a coding to its user says nothing about the content.
    """
    read = {
        judge: found
        for judge, found in readings.items()
        if found.status and not found.is_cut and (not odd.coded or found.content != odd.coded)
    }
    others = Counter(found for judge, found in read.items() if judge != "Chromium")
    shared = [found for found, count in others.items() if count > 1]
    return [*([read["Chromium"]] if "Chromium" in read else []), *shared]


def kind(found: Reading, odd: OddAnswer) -> str:
    """How a judge read an answer, compared with what is expected of us."""
    if not found.status or found.is_cut:
        return REFUSED
    return ALIKE if (found.status, found.content) == (odd.status, odd.content) else OTHER


def table(answers: Iterable[tuple[str, OddAnswer]], readings: Mapping[str, Sequence[Reading]]) -> str:
    """Family x judge, in Markdown: how many answers it reads as we do, otherwise, or not at all."""
    counts = {family: {judge: Counter[str]() for judge in readings} for family in FAMILIES}
    for number, (family, odd) in enumerate(answers):
        for judge, found in readings.items():
            counts[family][judge][kind(found[number], odd)] += 1
    lines = [f"| family | answers | we read | {' | '.join(readings)} |", f"|---|{'---:|' * (len(readings) + 2)}"]
    for family, of_judges in counts.items():
        found = FAMILIES[family].values()
        ours = sum(bool(odd.status and not odd.is_cut) for odd in found)
        cells = [" · ".join(str(of_judge[one]) for one in (ALIKE, OTHER, REFUSED)) for of_judge in of_judges.values()]
        lines.append(f"| {family} | {len(found)} | {ours} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_browser_binds_and_so_do_two_others() -> None:
    """A single other client, a broken-off reading and a body left in its coding do not bind."""
    page, other, cut = Reading(200, b"page"), Reading(200, b"other"), Reading(200, b"page", is_cut=True)
    odd = OddAnswer("", b"", coded=b"coded")
    assert binding({"Chromium": page, "curl": other, "wget": other, "Go": Reading()}, odd) == [page, other]
    assert binding({"Chromium": cut, "curl": other, "wget": page, "Go": cut}, odd) == []
    assert binding({"curl": Reading(200, b"coded"), "wget": Reading(200, b"coded")}, odd) == []


def test_each_exception_names_an_answer() -> None:
    """One whose name is wrong would hide nothing."""
    for reason, named in EXCEPTIONS.items():
        for family, names in named.items():
            assert set(names) <= set(FAMILIES[family]), reason


@pytest.mark.slow
async def test_what_browsers_or_several_others_read_is_read_alike(site: Web, tmp_path: Path) -> None:
    """Status and body; the exceptions are named with their reasons, and no other is needed."""
    judges = installed()
    if missing := [judge for judge in JUDGES if judge not in judges]:
        print("not installed, so not asked:", ", ".join(missing))
    if not judges:
        pytest.skip("none of chromium, curl, wget and go is on the PATH")
    answers = [(family, odd) for family, found in FAMILIES.items() for odd in found.values()]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split(None, 2)[1][1:]
            home = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            writer.write(answers[int(path)][1].sent if path.isdigit() else home)

    port = await site.listen(talk)
    urls = [f"http://127.0.0.1:{port}/{number}" for number in range(len(answers))]
    readings = {}
    for judge in judges:
        folder = tmp_path / judge
        folder.mkdir()
        readings[judge] = await JUDGES[judge][1](folder, urls)
    print(f"\n{table(answers, readings)}")
    named = {
        (family, name): reason
        for reason, found in EXCEPTIONS.items()
        for family, names in found.items()
        for name in names
    }
    unlike, needed = [], set()
    for number, (family, odd) in enumerate(answers):
        of_answer = {judge: found[number] for judge, found in readings.items()}
        bound = binding(of_answer, odd)
        if bound and not any((found.status, found.content) == (odd.status, odd.content) for found in bound):
            needed.add((family, odd.name))
            if (family, odd.name) not in named:
                unlike.append((family, odd.name, odd.status, odd.content, of_answer))
    assert not unlike
    assert set(named) <= needed or missing
