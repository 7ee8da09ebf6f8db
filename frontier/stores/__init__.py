"""What keeps the Frontier's rows: the `contract`, a store that forgets (`memory`), one in SQL (`sql`)."""
