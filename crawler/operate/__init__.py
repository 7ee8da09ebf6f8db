"""Operating jobs from outside: one class for every job, whether a process crawls it or not.

    finding     the job that a name, a folder or a URL means
    job         the job: asks who crawls it, or opens it as it was left
    listing     the jobs of a folder or a database, a row of facts for each
    due         starts the jobs that are due by their schedules
    notices     tells a command or a webhook of the end of a run
    answers     what the methods return; `retry` in as many calls as it takes, and its result in words

The command line (`cli`) and the console (`console`) show what these methods return. A client finds here all that it needs of a
job: the methods, the facts they return with the values of `phase` and `line`, the errors they raise, and times as words.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.crawler.operate.answers import VerbAnswer as VerbAnswer
    from anabranch.crawler.operate.answers import has_failed as has_failed
    from anabranch.crawler.operate.answers import retried_lines as retried_lines
    from anabranch.crawler.operate.answers import skipped_line as skipped_line
    from anabranch.crawler.operate.due import Schedules as Schedules
    from anabranch.crawler.operate.due import schedule_facts as schedule_facts
    from anabranch.crawler.operate.due import start_due as start_due
    from anabranch.crawler.operate.finding import operated as operated
    from anabranch.crawler.operate.finding import operated_folder as operated_folder
    from anabranch.crawler.operate.job import Job as Job
    from anabranch.crawler.operate.job import retried_facts as retried_facts
    from anabranch.crawler.operate.listing import NOT_BEGUN as NOT_BEGUN
    from anabranch.crawler.operate.listing import NOT_RUNNING as NOT_RUNNING
    from anabranch.crawler.operate.listing import job_folders as job_folders
    from anabranch.crawler.operate.listing import listed as listed
    from anabranch.crawler.operate.listing import row_of as row_of
    from anabranch.crawler.operate.notices import Notice as Notice
    from anabranch.crawler.operate.notices import NoticeTargets as NoticeTargets
    from anabranch.crawler.operate.notices import Undelivered as Undelivered
    from anabranch.crawler.operate.notices import deliver as deliver
    from anabranch.crawler.operate.notices import ended_run as ended_run
    from anabranch.crawler.operate.notices import notice_of as notice_of
    from anabranch.crawler.report.jobstatus import STOPPED as STOPPED
    from anabranch.crawler.report.jobstatus import UNKNOWN as UNKNOWN
    from anabranch.crawler.run.run_state import Phase as Phase
    from anabranch.crawler.run.verbs import Facts as Facts
    from anabranch.crawler.run.verbs import JobIsRunning as JobIsRunning
    from anabranch.frontier.errors import FrontierError as FrontierError
    from anabranch.frontier.errors import UnknownQueue as UnknownQueue
    from anabranch.frontier.times import clock_words as clock_words
    from anabranch.frontier.times import counted as counted
    from anabranch.frontier.times import duration_words as duration_words
    from anabranch.frontier.times import moment_words as moment_words
    from anabranch.frontier.times import rate_words as rate_words

#: Names by module. They are imported at their first use: who wants a word does not wait for SQLAlchemy.
_NAMES = {
    "crawler.operate.answers": "VerbAnswer has_failed retried_lines skipped_line",
    "crawler.operate.job": "Job retried_facts",
    "crawler.operate.due": "Schedules schedule_facts start_due",
    "crawler.operate.finding": "operated operated_folder",
    "crawler.operate.listing": "NOT_BEGUN NOT_RUNNING job_folders listed row_of",
    "crawler.operate.notices": "Notice NoticeTargets Undelivered deliver ended_run notice_of",
    "crawler.run.run_state": "Phase",
    "crawler.report.jobstatus": "STOPPED UNKNOWN",
    "crawler.run.verbs": "Facts JobIsRunning",
    "frontier.errors": "FrontierError UnknownQueue",
    "frontier.times": "clock_words counted duration_words moment_words rate_words",
}
_MODULES = {name: f"anabranch.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
