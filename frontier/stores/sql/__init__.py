"""The store in SQL, for SQLite and PostgreSQL. Only this package imports SQLAlchemy.

`store` is the store and its thread, `work` one transaction at a time, `writing` and `lanes` the changes, `reading` the answers,
`statements` the SQL, `schema` the tables; `sqlite` and `postgres` have the differences. `livecopy` copies a file in use.
"""
