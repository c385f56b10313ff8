"""Lists for a table of people, inside a Ray Data pipeline.

python examples/on_ray.py MODEL PEOPLE OUT
"""

import sys

import ray

from cfnade.distributed.batch_inference import BatchPredictor

model, people, out = sys.argv[1:]
ray.init(num_cpus=3)  # one more than actors: something must read and write
table = ray.data.read_parquet(people).repartition(target_num_rows_per_block=1024)
arguments = {"batch_format": "pyarrow", "compute": ray.data.ActorPoolStrategy(size=2)}
table.map_batches(BatchPredictor, fn_constructor_args=[model], **arguments).write_parquet(out)
