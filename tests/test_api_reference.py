"""docs/reference/api.md is made from the docstrings of the public names, and is up to date."""

from __future__ import annotations

import ast
import re

import anabranch
from scripts.api_reference import PAGE, Source, attributes, comments_of, main, page, signature

TEXT = '''
class One:
    first: int  #: of two
    #: In two
    #: lines.
    second: str = "x"
    _private: int

    def __init__(self):
        self.third: bool = True  #: set there

    @property
    def fourth(self) -> float:
        """Computed.

        And more.
        """
'''


def test_the_page_is_what_the_docstrings_say() -> None:
    """Whoever changes one of them makes the page again."""
    assert main(["--check"]) == 0, "run python scripts/api_reference.py"


def test_every_public_name_has_a_part_and_every_link_leads_to_one() -> None:
    """Names that differ by case alone are numbered, as GitHub does."""
    text = PAGE.read_text(encoding="utf-8")
    headings = re.findall(r"^### `(\w+)`$", text, re.MULTILINE)
    assert sorted(headings) == sorted(anabranch.__all__)
    anchors = [heading.lower() for heading in headings]
    numbered = [
        f"{name}-{count}" if (count := anchors[:place].count(name)) else name for place, name in enumerate(anchors)
    ]
    assert re.findall(r"\]\(#([\w-]+)\)", text) == numbered


def test_every_public_name_says_something() -> None:
    """Behind its signature there is text."""
    for part in page().split("\n### ")[1:]:
        assert re.search(r"\n```\n\n\S", part), part.partition("\n")[0]


def test_the_attributes_of_a_class_have_their_comments() -> None:
    """Behind them, above them, in the constructor; a property has the first paragraph of its docstring."""
    tree = ast.parse(TEXT)
    (node,) = tree.body
    assert isinstance(node, ast.ClassDef)
    assert dict(attributes(node, Source(tree, *comments_of(TEXT)))) == {
        "first: int": "of two",
        "second: str": "In two lines.",
        "third: bool": "set there",
        "fourth: float": "Computed.",
    }


def test_a_signature_is_as_the_function_is_called() -> None:
    """Without `self`; one line for each parameter where it is long."""
    (short, long) = ast.parse(
        "async def f(self, a, b=1, *c, d: int = 2, **e) -> str: ...\ndef g(" + "a" * 99 + "): ..."
    ).body
    assert isinstance(short, ast.AsyncFunctionDef)
    assert isinstance(long, ast.FunctionDef)
    assert signature(short, "One") == "await f(a, b=1, *c, d: int = 2, **e) -> str"
    assert signature(long) == f"g(\n    {'a' * 99},\n)"
