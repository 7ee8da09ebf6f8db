"""A job on disk, held by one process at a time.

    choosing ─▶ folder ─▶ frontier ─▶ seeding ─▶ journal

`choosing` finds the order and the folder that a command goes on with; `checking` finds everything wrong with an order before a
run. `folder` takes the job, moves it aside or removes it; `state` has the marks and the round in its state folder, `orderfile`
the order that the job keeps. `frontier` opens the job's Frontier, `seeds` reads seeds and keeps the seed book, `seeding`
schedules them. `journal` makes durable what visits leave behind. `inspection` opens jobs that are only looked at.
"""
