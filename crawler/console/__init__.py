"""The console: a separate process that shows the jobs below a folder and controls them.

    server   listens, and puts the parts together
    guard    which Host and Origin a request may have, and who asks: a token of the API
    access   tokens and roles, in the console's own folder; `audit` notes what was changed, and by whom
    jobs     the jobs of the folder; begins, starts and removes them
    queues   the queues and hosts of a job, of any number, as pages of a grid
    api      /api/v1 and /metrics

A crawl runs without the console, and the console without a crawl: it asks through `operate`, as every command does.
"""
