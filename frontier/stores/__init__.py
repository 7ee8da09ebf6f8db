"""Stores of the Frontier's rows: the `contract`, one in `memory`, one in `sql`, and the `totals` in its file."""
