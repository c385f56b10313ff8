"""Training and inference on several processes or machines, under torchrun, Ray or Spark.

Each rank holds some columns of every table. The training loop, the steppers and the kernels are
those of one process, given a ProcessGroup.
"""
