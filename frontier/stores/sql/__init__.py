"""The store in SQL, for SQLite and PostgreSQL. Only this package imports SQLAlchemy.

`store` is its face and the thread, `work` one transaction at a time, `writing` and `lanes` what batches change, `reading` the
answers, `statements` the SQL and its way to the driver, `schema` the tables and their formats. What differs between the two
databases is in `sqlite` and `postgres`. `livecopy` copies the file of a store that is in use.
"""
