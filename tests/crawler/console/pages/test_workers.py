"""Workers and fetches as rows."""

from anabranch.crawler.console.pages.workers import fetch_row, worker_row


def test_a_worker_is_found_by_its_name_and_shown_as_text() -> None:
    """Names come from machines of others."""
    line = {
        "name": "\x1bw1", "state": "late", "shares": 8, "pages": 1234, "pages_per_s": 2.25, "active": 0, "last_beat_s": 61.0,
        "machine": "m<b>\u202e",
    }  # fmt: skip
    row = worker_row(line)
    assert (row["id"], row["name"], row["machine"]) == ("\x1bw1", "\\x1bw1", "m<b>\\u202e")
    assert (row["pages"], row["rate"], row["beat"]) == ("1,234", "2.2", "1m 1s ago")


def test_a_fetch_keeps_its_url_beside_what_is_shown() -> None:
    """A long URL is cut for the eye, and whole for the page that explains it."""
    url = "http://a.test/" + "x" * 5000
    fact = {"worker": "#001", "processor": "fetch", "step-s": 0.25, "lease-s": 2.0, "try": 1, "uri": url}
    row, whole = fetch_row(fact)
    assert (whole, len(row["url"]), row["in_step"], row["lease"]) == (url, 301, "250ms", "2.0s")
