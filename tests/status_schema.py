"""The shape of `anabranch status JOB --json`, as docs/reference/status.schema.json has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[1] / "docs" / "reference" / "status.schema.json").read_bytes()
)


def checked(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as JSON brings them, of the documented shape. Raises: ValidationError."""
    brought: dict[str, Any] = json.loads(json.dumps(facts))
    Draft202012Validator(SCHEMA).validate(brought)
    return brought
