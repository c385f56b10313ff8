"""Lists for a table of people, inside a Spark job.

python examples/on_spark.py MODEL PEOPLE OUT
"""

import os
import sys

from pyspark.sql import SparkSession

from cfnade.distributed.batch_inference import BatchPredictor

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers take any python3
model, people, out = sys.argv[1:]
spark = SparkSession.builder.master("local[2,4]").getOrCreate()
scorer = BatchPredictor(model, n=10)
spark.read.parquet(people).mapInArrow(scorer.map_arrow, scorer.spark_schema).write.parquet(out)
