"""Event store, continued training on stored ratings, and publication of refreshed models.

docs/how-to/event-store.md describes its use. SQLAlchemy Core comes with the extra `cfnade[store]`.
This file imports nothing: `data` reads `online.bulk`, and `online.refresh` imports `training`.
"""
