"""Heritrix follows all links from SEED: one job of its default profile, in FOLDER.

`python heritrix.py HOME FOLDER SEED CONCURRENCY [warc]`, HOME the folder of its distribution. It becomes the JVM.

The profile comes from the distribution. Changed are: no delays, no robots.txt, CONCURRENCY toe threads, a client that keeps
connections (FetchHTTP2), and so many work queues for the one host, by a hash of the URL, since a work queue has one fetch at a
time. Without `warc` no WARC file is written.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

_PROFILE = "org/archive/crawler/restlet/profile-crawler-beans.cxml"
_CONTACT = "metadata.operatorContactUrl=ENTER_AN_URL_WITH_YOUR_CONTACT_INFO_HERE_FOR_WEBMASTERS_AFFECTED_BY_YOUR_CRAWL"
_SETTINGS = """metadata.operatorContactUrl=http://127.0.0.1/
metadata.robotsPolicyName=ignore
crawlController.maxToeThreads={concurrency}
crawlController.pauseAtStart=false
disposition.delayFactor=0
disposition.minDelayMs=0
disposition.maxDelayMs=0
disposition.respectCrawlDelayUpToSeconds=0"""
_QUEUES = """ <bean id="queueAssignmentPolicy"
   class="org.archive.crawler.frontier.SurtAuthorityQueueAssignmentPolicy">
  <property name="parallelQueues" value="{concurrency}" />
  <property name="parallelQueuesRandomAssignment" value="true" />
 </bean>
"""
_PRECEDENCE = " <!-- URI PRECEDENCE POLICY -->"


def beans(profile: str, seed: str, concurrency: int, *, warc: bool) -> str:
    """The job's configuration. Raises: SystemExit if the profile is another one than that of 3.13."""
    changes = {
        _CONTACT: _SETTINGS.format(concurrency=concurrency),
        "http://example.example/example": seed,
        'org.archive.modules.fetcher.FetchHTTP"': 'org.archive.modules.fetcher.FetchHTTP2"',
        _PRECEDENCE: _QUEUES.format(concurrency=concurrency) + _PRECEDENCE,
    }
    if not warc:
        changes['<ref bean="warcWriter"/>'] = ""
    for old, new in changes.items():
        if profile.count(old) != 1:
            raise SystemExit(f"heritrix: {old!r} is {profile.count(old)} times in the profile")
        profile = profile.replace(old, new)
    return profile


def main() -> None:
    """Write the job, and become the JVM that runs it and ends."""
    home, folder, seed, concurrency, *more = sys.argv[1:]
    (engine,) = Path(home, "lib").glob("heritrix-engine-*.jar")
    with zipfile.ZipFile(engine) as jar:
        profile = jar.read(_PROFILE).decode()
    job = Path(folder, "jobs", "race")
    job.mkdir(parents=True)
    (job / "crawler-beans.cxml").write_text(beans(profile, seed, int(concurrency), warc="warc" in more))
    os.chdir(folder)
    options = ["-Xmx1g", f"-Dheritrix.home={home}", f"-Dheritrix.out={folder}/out"]
    command = ["org.archive.crawler.Heritrix", "-a", "race:race", "-p", "0", "-j", str(job.parent), "-r", "race"]
    os.execvp("java", ["java", *options, "-cp", f"{home}/lib/*", *command])


if __name__ == "__main__":
    main()
