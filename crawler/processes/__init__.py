"""One job, several processes on one machine: hosts are divided among them by hash, and each crawls what is its own.

The parent holds the job folder, reads the seeds, and starts a process for each share (`children`, `share`), which is a whole
crawl of its own in `shares/K`: controller, workers, Frontier, store, filter, logs. Parent and share talk through a socket pair
(`channel`). A page's links to hosts of other shares are in its share's store with the page's end (`frontier.division`);
`delivery` sends them through the parent to their owner, which takes them, waits until they are durable, and says so; only then
are they taken away.

    share 0 ── delivery ──▶ parent (`coordinator`) ──▶ share 1: receive, flush, "it is here" ──▶ back to share 0

The crawl is over when every share has nothing to do and nothing to send, and was not stirred between two rounds of questions
(`quiescence`). A share that dies is started again (`shares`); when the parent dies its shares see the closed socket and end
in order. Either way the same command goes on, with nothing lost.

    orders      what several processes cannot do is refused, and N is the job's for good
    coordinator the parent's run: starts, routes, limits, ends, reports
    metering    limits of pages and bytes hold for the job: the parent hands out tickets
    seedbook    one book of seeds for all: the parent writes it
    gathering   the shares' logs as the job's
    verbs       an operator's question goes to the owner of what it is about, or to all
"""
