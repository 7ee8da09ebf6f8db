"""Stores of the Frontier's rows: the `contract`, a store in memory (`memory`), and one in SQL (`sql`)."""
