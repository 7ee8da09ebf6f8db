"""The words for each key of an order, taken from where the key is written down: the comments `#:` of the sections' classes.

So what `anabranch config` shows cannot differ from the source. A key's words stand above its line, or behind it.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from pydantic import BaseModel

from anabranch.crawler.orders.keys import HOMES, SECTIONS

_MARK = "#:"


@cache
def words_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Key as an order writes it -> its words; a key without any has those of the one section that has the key, too."""
    said = _commented(inspect.getsource(model))
    words = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        home = SECTIONS.get(HOMES.get(key, ""))
        fallback = words_of(home).get(key, "") if home is not None and home is not model else ""
        words[key] = said.get(name) or fallback
    return MappingProxyType(words)


def title_of(model: type[BaseModel]) -> str:
    """The first sentence about a section."""
    return " ".join((model.__doc__ or "").strip().partition("\n\n")[0].split())


def _commented(source: str) -> dict[str, str]:
    """Field -> what its comments `#:` say, of a class that begins at the source's first line."""
    own: dict[int, str] = {}  # comments that have a line for themselves
    behind: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.startswith(_MARK):
            line = token.start[0]
            is_alone = not token.line[: token.start[1]].strip()
            (own if is_alone else behind)[line] = token.string.removeprefix(_MARK).strip()
    return {
        statement.target.id: " ".join(_around(statement, own, behind))
        for statement in _fields(source)
        if isinstance(statement.target, ast.Name)
    }


def _fields(source: str) -> list[ast.AnnAssign]:
    (found,) = ast.parse(source).body
    assert isinstance(found, ast.ClassDef)
    return [statement for statement in found.body if isinstance(statement, ast.AnnAssign)]


def _around(statement: ast.AnnAssign, own: Mapping[int, str], behind: Mapping[int, str]) -> list[str]:
    above: list[str] = []
    line = statement.lineno - 1
    while line in own:
        above.insert(0, own[line])
        line -= 1
    last = statement.end_lineno or statement.lineno
    inside = range(statement.lineno, last + 1)
    return above + [text for number in inside for text in (own.get(number), behind.get(number)) if text]
