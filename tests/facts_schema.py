"""The shape of what commands print with --json, as crawler/operate/facts.schema.json has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

WHOLE: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[1] / "crawler" / "operate" / "facts.schema.json").read_bytes()
)


def checked(facts: Mapping[str, Any], kind: str = "Status") -> dict[str, Any]:
    """The facts as JSON brings them, of the documented shape. Raises: ValidationError."""
    brought: dict[str, Any] = json.loads(json.dumps(facts))
    Draft202012Validator({**WHOLE, "$ref": f"#/$defs/{kind}"}).validate(brought)
    return brought
