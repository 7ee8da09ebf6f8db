"""What stands on the command line of `anabranch dedup`, and whether it makes sense."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.outcomes.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupCommand:
    """One field per option; None is what is not given."""

    file: str | None = None
    pcap: str | None = None
    interface: str | None = None
    state: Path | None = None
    redis: tuple[str, ...] = ()
    name: str | None = None
    kind: str | None = None
    expected: int | None = None
    false_positive: float | None = None
    signature: str | None = None
    levels: tuple[int, ...] | None = None
    features: str | None = None  #: names with commas between
    site_bound: bool | None = None
    drop_query: bool | None = None
    check: bool = False
    quiet: bool = False

    @property
    def is_lasting(self) -> bool:
        """The filter outlives the run."""
        return bool(self.state or self.redis)

    @property
    def names_what_to_check(self) -> bool:
        """A filter that outlives runs, and no URLs."""
        return self.is_lasting and not self.inputs

    @property
    def empty(self) -> list[str]:
        """The names of what is given as an empty text; a path cannot be, since Path("") is the folder one is in."""
        given = {
            "FILE": self.file,
            "--pcap": self.pcap,
            "--interface": self.interface,
            "--name": self.name,
            "--filter": self.kind,
            "--signature": self.signature,
            "--features": self.features,
            "--redis": "" if "" in self.redis else None,
        }
        return [name for name, value in given.items() if value == ""]

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs that are given."""
        given = {"FILE": self.file, "--pcap": self.pcap, "--interface": self.interface}
        return [name for name, value in given.items() if value is not None]


def require_sense(command: DedupCommand) -> None:
    """Raises: UsageError for options that are empty, exclude or need each other."""
    inputs = command.inputs
    breaches = {
        f"{' and '.join(command.empty)}: must not be empty": bool(command.empty),
        f"{' and '.join(inputs)} exclude each other; name one input": len(inputs) > 1,
        "--state and --redis exclude each other; the servers keep the filter": command.redis and command.state,
        "--name names a filter on servers; give --redis URL too": command.name is not None and not command.redis,
        "--check verifies a filter and reads no URLs; give --state DIR or --redis URL alone": (
            command.check and not command.names_what_to_check
        ),
        f"--check: there is no folder {command.state}": command.check and command.state and not command.state.is_dir(),
    }
    for words, is_breached in breaches.items():
        if is_breached:
            raise UsageError(words)
