"""What keeps the Frontier's rows: a contract (`base`, `messages`), a store that forgets (`memory`), one in SQL (`sql`).

    core ──write, ask_heads──▶ SqlStore ──FIFO──▶ StoreThread ──▶ writing, reading ──▶ the tables
         ◀── take_answers ──── answers ◀───────────────┘

Nothing outside this package imports SQLAlchemy, and only `sqlite` knows which database it is.
"""
