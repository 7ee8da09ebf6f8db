"""A job on disk, held by one process at a time.

    choosing ─▶ folder ─▶ frontier ─▶ seeding ─▶ journal

`choosing` finds the order and the folder of a command; `checking` finds all faults of an order before a run. `folder` locks the
job, moves it aside or removes it; `state` has its marks and round, `orderfile` its order. `seeds` has the seed book. `journal`
makes the results of visits durable. `inspection` opens jobs that are only looked at.
"""
