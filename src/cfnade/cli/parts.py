"""The parts of the data that a job names: ratings that are cut, or shards that have been."""

from __future__ import annotations

from typing import Any

from cfnade.cli.job import Job


def load_parts(job: Job) -> Any:
    """The split of a job's data."""
    from cfnade.data.loader import load_split
    from cfnade.shards import Shards

    if Shards.is_one(job["data"]):
        return _split_of(Shards.open(job["data"]))
    return load_split(job["data"], job["split"], **job["reading"])


def _split_of(shards: Any) -> Any:
    """All of the shards in this process."""
    from dataclasses import replace

    from cfnade.data.splits import Split

    train = shards.ratings("train")
    ids = {"user_ids": train.user_ids, "item_ids": train.item_ids}
    valid, test = (replace(shards.ratings(name), **ids) for name in ("valid", "test"))
    fingerprint = shards.fingerprint
    return Split("shards", train, valid, test, test.select(slice(0)), fingerprint, fingerprint)
