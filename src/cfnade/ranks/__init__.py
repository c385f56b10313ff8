"""Training on several processes or machines: each rank has some columns of every table.

Nothing here trains: the loop, the steppers and the kernels are those of one process, given a Group
(cfnade.group). gloo.py is that group under torch.distributed, owned.py a rank's part of the shards,
judging.py validation, choosing_together.py what people pick, rank_state.py the state of a run,
writing.py the model's folder, saved_columns.py a rank's columns of one, and rank_training.py the
one function that torchrun, Ray and Spark call.
"""
