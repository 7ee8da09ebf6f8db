"""A job on disk, held by one process at a time.

    choosing ─▶ folder ─▶ frontier ─▶ seeding ─▶ journal

`state` has the marks and the round in the job's state folder, `orderfile` its order, `seedtable` its seeds. `checking` finds
all faults of an order before a run. `inspection` opens jobs that are only looked at.
"""
