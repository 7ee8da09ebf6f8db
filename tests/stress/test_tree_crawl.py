"""The comparison of a crawl with an independent reader, on a small tree with stylesheets and images."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stress.tree_crawl import Result, run


@pytest.mark.slow
def test_a_tree_with_stylesheets_and_images_is_fetched_exactly(tmp_path):
    """Everything linked, nothing else, each once."""
    root = tmp_path / "tree"
    (root / "s").mkdir(parents=True)
    pages = "".join(f'<a href="p{number}.html">x</a>' for number in range(20))
    (root / "index.html").write_text(f'<link rel=stylesheet href="s/a.css">{pages}<img srcset="1.png 1x, 2.png 2x">')
    for number in range(20):
        (root / f"p{number}.html").write_text(f'<p style="background: url({number}.png)"><a href="gone.html">x</a>')
        (root / f"{number}.png").write_bytes(b"\x89PNG")
    (root / "s" / "a.css").write_text("@import 'b.css'; p { background: url('../s/c.svg') }")
    (root / "s" / "b.css").write_text("")
    (root / "s" / "c.svg").write_text("<svg/>")
    (tmp_path / "work").mkdir()
    result = run(root, "index.html", tmp_path / "work", workers=4)
    assert result.faults() == []
    assert len(result.expected) == 1 + 20 + 20 + 3


def test_what_is_missing_unexpected_repeated_or_not_logged_is_a_fault():
    """The comparison can fail: each fault has its words."""
    result = Result(code=1, seconds=1.0, expected={"a"}, fetched={"b"}, asked=Counter({"c": 2}), logged=set())
    assert len(result.faults()) == 5
