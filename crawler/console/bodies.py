"""The bodies of requests to the API, as JSON: what each key means, and what it may be."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: A value of an order, as JSON.
Setting = str | int | float | bool | list[str]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewJob(_Body):
    """A job to create."""

    name: Annotated[str, Field(min_length=1, max_length=100, description="of its folder")]
    seeds: Annotated[str | list[str], Field(description="URLs, a line or an entry each; those of the order, too")] = ""
    order: Annotated[str | dict[str, Any], Field(description="the order: TOML, or its sections")] = ""
    template: Annotated[str, Field(max_length=100, description="whose keys count where the order has none")] = ""
    tags: Annotated[list[str], Field(max_length=100, description="of the job, for lists")] = []
    start: Annotated[bool, Field(strict=True, description="start a process that crawls it")] = True


class NewTemplate(_Body):
    """An order to save."""

    order: Annotated[str | dict[str, Any], Field(description="the order: TOML, or its sections")]


class Tags(_Body):
    """The tags of a job."""

    tags: Annotated[list[str], Field(max_length=100)]


class Start(_Body):
    """How a crawl begins."""

    again: Annotated[bool, Field(strict=True, description="another round, from the seeds")] = False


class Stop(_Body):
    """How a crawl ends."""

    now: Annotated[bool, Field(strict=True, description="give up fetches under way")] = False


class NewSeeds(_Body):
    """Seeds to be added."""

    seeds: Annotated[list[str], Field(min_length=1, max_length=100_000)]
    force: Annotated[bool, Field(description="queue also URLs that have ended, or that the filter takes for seen")] = (
        False
    )


class Retry(_Body):
    """Failures to be queued again: those that fit all of these, without any of them all."""

    statuses: Annotated[
        list[int | str], Field(max_length=100, description="as crawl.log has them: -1, 503, or a class: 5xx")
    ] = []
    host: Annotated[str | None, Field(min_length=1, description="of this host")] = None
    since_s: Annotated[float | None, Field(gt=0, le=1e11, description="epoch seconds; failed then or later")] = None
    url: Annotated[str | None, Field(min_length=1, description="this URL")] = None
    trap: Annotated[
        bool, Field(description="instead all URLs that were skipped because a parameter changes nothing; alone")
    ] = False

    @model_validator(mode="after")
    def _is_alone(self) -> Self:
        if self.trap and (self.statuses or self.host or self.since_s or self.url):
            raise ValueError("trap takes all that was skipped; leave statuses, host, since_s and url out")
        return self


class Block(_Body):
    """How long a host is blocked; without both until it is unblocked. If both are given, `for_s` counts."""

    for_s: Annotated[float | None, Field(gt=0, le=1e9, description="seconds")] = None
    until_s: Annotated[float | None, Field(gt=0, le=1e11, description="epoch seconds")] = None


class Budget(_Body):
    """A queue's total budget."""

    units: Annotated[int | None, Field(ge=-1, lt=1 << 53, description="-1: no end; null: the order's")] = None
