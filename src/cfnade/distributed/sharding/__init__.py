"""A sharding job: ratings files become partitions by column, in stages of independent tasks."""
