"""Why a URL is in the crawl, or is not: the rulings of a scope in words, for `anabranch why`."""

from __future__ import annotations

from anabranch.crawler.scope.rules import Decision, Target
from anabranch.crawler.scope.ruling import Scope, Step
from anabranch.frontier.operating.timewords import counted

_SAYS = {Decision.ACCEPT: "accepts", Decision.REJECT: "rejects"}


def explain_scope(scope: Scope, url: str, hops: str, via: str | None) -> str:
    """Which rule decided, by number and name, then all rules that spoke, a line each.

    Raises: OwnFunctionFailed.
    """
    target = Target(url, hops, via)
    ruling = scope.decide(target)
    if ruling.step is None:
        return "out of scope: no rule accepts it"
    found = f"after {counted(len(hops), 'hop')} ({hops})" if hops else "as a seed"
    first = (
        f"{'in' if ruling.is_accepted else 'out of'} scope {found}, by rule {ruling.step.number} ({ruling.step.name})"
    )
    spoke = [_line(step) for step in scope.trace(target) if step.decision is not None]
    return "\n".join([first, *spoke])


def _line(step: Step) -> str:
    says = _SAYS[step.decision] if step.decision is not None else "says nothing"
    detail = f": {step.detail}" if step.detail and step.detail not in step.words else ""
    return f"  {step.number} {step.name} {says}: {step.words}{detail}"
