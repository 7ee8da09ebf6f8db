"""Says in one sentence what limits a job now, and what an operator can do about it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.crawler.operate import NOT_BEGUN, STOPPED, Facts, Phase, counted, duration_words

#: From this share of busy workers on they are what limits a crawl.
_BUSY = 0.95
#: Causes of a pause that a change of the order ends.
_LIMITS = ("limits.pages", "limits.bytes", "limits.time")
#: Names of `WhyEnded` -> the key that ended the run.
_ENDED_BY = {"page_limit": "limits.pages", "size_limit": "limits.bytes", "time_limit": "limits.time"}


class Bottleneck(NamedTuple):
    """The limit of a job now, and its remedy."""

    words: str  #: a sentence, which names the verb
    verb: str = ""  #: the button of the job that helps; empty: none does, or no help is needed
    action: str = ""  #: or the words of a link to a page of the job
    page: str = ""  #: this page
    key: str = ""  #: of the order, which the page shows
    is_bad: bool = False  #: the operator must act


def bottleneck(row: Facts, status: Facts | None) -> Bottleneck:
    """What limits the job now, from its row and its status. `status` is None while it cannot be asked."""
    if status is not None and status["pid"] and row["pid"]:
        return _of_crawl(status)
    if row["state"] in {"killed", "failed", "unknown"}:
        return Bottleneck(_sentence(row["line"]), "" if row["state"] == "unknown" else "Start", is_bad=True)
    if row["phase"] == Phase.STARTING.value:
        return Bottleneck("It starts: its process opens the queue.")
    if row["pid"] or row["phase"] != STOPPED:
        return Bottleneck(_sentence(row["line"]))
    return _of_rest(row)


def _of_rest(row: Facts) -> Bottleneck:
    """What keeps a job that nobody crawls."""
    if row["is_finished"]:
        return Bottleneck("It is finished: nothing is queued. Another round crawls it again.", "Another round")
    if row["line"] == NOT_BEGUN:
        return Bottleneck("It has not been started yet. Start begins its crawl.", "Start")
    why = "" if row["ended"] is None else str(row["ended"]["why"])
    queued = f" {counted(row['queued'], 'URL')} queued." if row["queued"] else ""
    if why in _ENDED_BY:
        key = _ENDED_BY[why]
        return Bottleneck(f"It reached {key}.{queued}", action="Raise the limit", page="order", key=key)
    return Bottleneck(f"{_sentence(row['line'])}{queued}", "Start")


def _of_crawl(now: Facts) -> Bottleneck:
    """What limits a crawl that runs, the strongest first."""
    if now["paused"]:
        key = next((key for key in _LIMITS if key in now["paused"]), "")
        if key:
            words = f"It is {now['paused']}. Resume continues it all the same."
            return Bottleneck(words, "Resume", "Raise the limit", page="order", key=key, is_bad=True)
        words = _sentence(now["trouble"] or f"it is {now['paused']}")
        return Bottleneck(f"{words} Resume continues it.", "Resume", is_bad=True)
    if now["phase"] == Phase.DRAINING.value:
        return Bottleneck(f"It ends when {counted(now['active'], 'fetch', 'fetches')} under way have ended.")
    if now["trouble"] or now["awaits"]:
        return Bottleneck(_sentence(now["trouble"] or now["awaits"]), action="Logs", page="logs", is_bad=True)
    if now["no_seed_answered"]:
        return Bottleneck("No seed has answered so far.", action="Seeds", page="reports", key="seeds", is_bad=True)
    if now["active"] >= _BUSY * now["workers"]:
        return Bottleneck(
            f"Its workers limit it: {now['active']:,} of {now['workers']:,} are busy (crawl.workers, which a new job sets).",
            action="Fetches",
            page="workers",
        )
    return _of_hosts(now)


def _of_hosts(now: Facts) -> Bottleneck:
    """What limits a crawl that has free workers: its hosts, or what it has found so far."""
    busy = f"{now['active']:,} of {now['workers']:,} workers are busy"
    if not now["pending"]:
        return Bottleneck(f"The queue is empty: {busy} with the last URLs.")
    wakes = now["wakes_in_s"]
    soon = "" if not wakes else f", the next for {duration_words(wakes)}"
    if now["on_slow_hosts"] * 2 > now["active"] > 0:
        words = (
            f"Slow and new hosts limit it: {now['on_slow_hosts']:,} of {now['active']:,} busy workers wait for them."
        )
        return Bottleneck(words, action="Hosts", page="hosts")
    if now["pending"] == now["waiting"] and not now["active"]:
        return Bottleneck(
            f"All {counted(now['pending'], 'URL')} wait for another try{soon}.", action="Hosts", page="hosts"
        )
    if now["parked"]:
        queues = f"{now['parked']:,} of {counted(now['ready'], 'queue')} wait until their hosts may be asked again"
        return Bottleneck(f"Politeness limits it: {queues}{soon}; {busy}.", action="Hosts", page="hosts")
    return Bottleneck(f"Its hosts limit it: all are being fetched from; {busy}.", action="Hosts", page="hosts")


def _sentence(words: object) -> str:
    """With a capital and a full stop. Pure."""
    text = str(words).strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""
