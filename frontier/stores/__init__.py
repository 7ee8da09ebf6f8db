"""What keeps the Frontier's rows: a contract (`base`, `messages`), a store that forgets (`memory`), one in SQL (`sql`).

    core ──write, ask_heads──▶ SqlStore ──Fifo──▶ Service ──▶ Work ──▶ writing, reading, listing ──▶ the tables
         ◀── take_answers ──── answers ◀────────────┘

Nothing outside this package imports SQLAlchemy. The statements are the same for both databases; what differs between SQLite and
PostgreSQL is in `sqlite` and `postgres`, behind the seam in `database`. `livecopy` copies the file of a store that is in use.
"""
