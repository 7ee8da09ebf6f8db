"""A few damages of those that `damage.py` does by the hundred: one in every kind of file whose loss was silent once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.damage import Campaign, Mutation, run

#: Each was a loss without a word, settings that were gone, or a traceback.
MUTATIONS = (
    ("stopped", "state/job.db", "cut"),
    ("stopped", "state/job.db", "flip"),
    ("stopped", "state/job.db", "zero"),
    ("stopped", "state/job.db", "delete all"),
    ("old", "state/seeds.jsonl", "cut"),
    ("old", "state/seeds.jsonl", "delete"),
    ("stopped", "order.toml", "delete"),
    ("stopped", "order.toml", "zero"),
    ("stopped", "state/accounts.sqlite", "cut"),
    ("stopped", "state/frontier.db", "flip"),
    ("stopped", "state/frontier.db", "cut"),
    ("stopped", "logs/crawl.log", "cut"),
    ("killed", "state/frontier.db", "zero"),
    ("killed", "state/job.db", "cut"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_damage_is_told_or_harms_nothing(tmp_path: Path) -> None:
    """No traceback, no command without end, and no URL that is neither fetched nor queued while nothing is said."""
    campaign = Campaign(tmp_path, ("killed", "stopped", "old"))
    chosen = [Mutation(kind, file, how, place=0.6) for kind, file, how in MUTATIONS]
    verdicts = run(campaign, chosen, lambda _: None)
    assert [(verdict.mutation, verdict.fault, verdict.said) for verdict in verdicts if verdict.fault] == []
    told = {verdict.mutation.file for verdict in verdicts if verdict.code == 4}
    assert told >= {"state/job.db", "state/seeds.jsonl", "order.toml", "state/accounts.sqlite", "state/frontier.db"}
