"""Recommend items to the users of a table, inside a Spark job.

python examples/on_spark.py MODEL USERS OUT
"""

import os
import sys

from pyspark.sql import SparkSession

from cfnade.distributed.batch_inference import BatchPredictor

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers take any python3
model, users, out = sys.argv[1:]
spark = SparkSession.builder.master("local[2,4]").getOrCreate()
predictor = BatchPredictor(model, n=10)
table = spark.read.parquet(users)
schema = predictor.spark_schema(dict(table.dtypes)["user"])
table.mapInArrow(predictor.map_arrow, schema).write.parquet(out)
