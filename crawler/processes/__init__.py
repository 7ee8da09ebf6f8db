"""One job, several processes on one machine: hosts are divided among them by hash, and each crawls what is its own.

The story of a run. `orders` refuses what several processes cannot do, `folders` notes their number for good. The parent is
the `coordinator`: it holds the job folder, writes the seeds' book, and has a process forked for each share (`nursery`). A share
(`share`) is a whole crawl of its own in `shares/K`, with what `portion` says it has beside: controller, workers, Frontier,
store, filter, logs. Parent and share talk through a socket pair (`channel`); a share's end of the talk is its `postoffice`.

A page's links to hosts of other shares are in its share's store with the page's end (`frontier.division`). `delivery` sends
them through the parent to their owner, which queues them, waits until they are durable, and says so; then they are taken away.

    share 0 ── delivery ──▶ coordinator ──▶ share 1: postoffice, flush, "it is here" ──▶ back to share 0

The crawl is over when every share has nothing to do and nothing to send, and was not stirred between two rounds of questions
(`watch` asks, `quiescence` is the proof). A share that dies is started again; when the parent dies its shares see the closed
socket and end in order. Either way the same command goes on, with nothing lost.

    the processes        shares (all of them, kept running) · children (one, as the parent sees it) · nursery · channel
    one for all          seedbook (its copy in each share) · limits, by tickets and bytes that shares tell (metering)
    how the job is       status (from snapshots) · telling (progress-statistics.log)
    what it is asked     verbs (a question goes to the owner of what it is about, or to all)
    several as one       summing (figures) · merging (answers) · reporting (reports) · gathering (logs)
    the end, and after   ending · stopped (an operator asks a job that nobody crawls) · reopening (its shares' Frontiers)
"""
