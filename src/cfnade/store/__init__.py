"""What people say, kept in a database: events that are only ever added, and what counts of them.

docs/store.md says how to use it. SQLAlchemy Core (the extra `cfnade[store]`) speaks to SQLite and
PostgreSQL. Nothing here knows models: it stands before `data`, which reads ratings from it.
"""
