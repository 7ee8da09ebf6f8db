"""The application of a console: the API, and the pages for browsers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import run, ui

from anabranch.crawler.console.api import api_app
from anabranch.crawler.console.pages.filter import add_filter_page
from anabranch.crawler.console.pages.hosts import add_hosts_page
from anabranch.crawler.console.pages.job import add_job_page
from anabranch.crawler.console.pages.jobs import add_jobs_page
from anabranch.crawler.console.pages.lab import add_lab_page
from anabranch.crawler.console.pages.logs import add_logs_page
from anabranch.crawler.console.pages.order import add_order_page
from anabranch.crawler.console.pages.queues import add_queues_page
from anabranch.crawler.console.pages.reports import add_reports_page
from anabranch.crawler.console.pages.templates import add_templates_page
from anabranch.crawler.console.pages.url import add_url_page
from anabranch.crawler.console.pages.windows import guard_windows
from anabranch.crawler.console.pages.workers import add_workers_page
from anabranch.crawler.console.queues import QueueTables
from anabranch.crawler.console.routing import Console

#: Questions of pages at once.
_MOST_THREADS = 64


def console_app(console: Console, tables: QueueTables) -> FastAPI:
    """The API with pages beside it."""
    app = api_app(console)
    # NiceGUI's own has few threads, and a few jobs that hang would take them all.
    run.thread_pool = ThreadPoolExecutor(_MOST_THREADS, "pages")
    for add in (
        add_jobs_page,
        add_job_page,
        add_workers_page,
        add_filter_page,
        add_url_page,
        add_reports_page,
        add_order_page,
        add_lab_page,
        add_templates_page,
    ):
        add(console)
    add_logs_page(console, app)
    for add_grid in (add_queues_page, add_hosts_page):
        add_grid(console, tables, app)
    ui.run_with(app, title="Anabranch", show_welcome_message=False, reconnect_timeout=30.0, dark=None)
    pages_app.config.quasar_config["loadingBar"]["skipHijack"] = (
        True  # it has no name, and pages say what they wait for
    )
    guard_windows(app)
    return app
