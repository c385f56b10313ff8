"""Recommend items to the users of a table, inside a Ray Data pipeline.

python examples/on_ray.py MODEL USERS OUT
"""

import sys

import ray

from cfnade.distributed.batch_inference import BatchPredictor

model, users, out = sys.argv[1:]
ray.init(num_cpus=3)  # one more than actors: something must read and write
table = ray.data.read_parquet(users).repartition(target_num_rows_per_block=1024)
table.map_batches(
    BatchPredictor,
    fn_constructor_args=[model],
    batch_format="pyarrow",
    compute=ray.data.ActorPoolStrategy(size=2),
).write_parquet(out)
