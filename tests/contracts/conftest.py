"""A store of each kind, for all tests of its contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontier.stores.rows import KINDS, Teller, home


@pytest.fixture(params=KINDS)
def teller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Teller]:
    with home(request.param, tmp_path) as made:
        made.open()
        yield made.teller
