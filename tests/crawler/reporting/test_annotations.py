"""Notes of `crawl.log`."""

from __future__ import annotations

import pytest

from anabranch.crawler.outcomes.ownfunctions import KEY, RULE, OwnFunctionFailed
from anabranch.crawler.reporting.annotations import DUPLICATE_DIGEST, Noted, annotations_of


@pytest.mark.parametrize(
    ("noted", "notes"),
    [
        (Noted(), ()),
        (Noted(attempts=2), ("3t",)),
        (Noted(cuts=("lenTrunc", "decTrunc")), ("lenTrunc", "decTrunc")),
        (Noted(robots_excluded=True), ("robotExcluded",)),
        (Noted(duplicate=DUPLICATE_DIGEST, revisit="digest"), ("duplicate:digest", "warcRevisit:digest")),
        (Noted(quota="pages_per_host"), ("Q:pages_per_host",)),
        (Noted(quota="Q:pages"), ("Q:pages",)),
        (Noted(dropped_links=7), ("dol:7",)),
        (Noted(broken=KeyError("x")), ("err=KeyError",)),
        (Noted(broken=OwnFunctionFailed(RULE, "my:f", "failed")), ("err=OwnFunctionFailed", "rule=my:f")),
        (Noted(broken=OwnFunctionFailed(KEY, "my:f", "failed")), ("err=OwnFunctionFailed", "key=my:f")),
        (Noted(lost_links=3), ("fol:3",)),
        (Noted(stopped_by="my:f", more=("mine",)), ("stopped=my:f", "mine")),
        (Noted(more=("extractTimeout", "", "extractTimeout")), ("extractTimeout",)),
    ],
)
def test_each_note_has_heritrix_words(noted: Noted, notes: tuple[str, ...]) -> None:
    """What did not happen is not noted; nothing is noted twice."""
    assert annotations_of(noted) == notes


def test_notes_stand_in_one_order() -> None:
    """Tools that compare logs find the same field for the same facts."""
    noted = Noted(attempts=1, cuts=("timeTrunc",), dropped_links=2, broken=ValueError(), more=("later",))
    assert annotations_of(noted) == ("2t", "timeTrunc", "dol:2", "err=ValueError", "later")
