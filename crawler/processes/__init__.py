"""A job that several processes of this machine crawl: each is one of the job's workers, and one more starts and watches them.

`supervisor` starts the processes (`forkserver`, `children`), restarts those that die and ends all; `worker` is what each of
them does. They share the file of the job's Frontier, as workers on several machines share a database (`crawler.cluster`), so
nothing is sent from one to another. `gathering` joins their logs, `dividing` makes such a job of another one.
"""
