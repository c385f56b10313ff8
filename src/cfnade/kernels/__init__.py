"""The compute engine: compiled CPU kernels for the two sparse hot spots and the training step.

- `simd`, `simd_math`, `tiles`, `blocks`, `costs`, `adam`: building blocks, 16 numbers at a time
- `context`, `targets`, `rows`: the kernels, serial over a range of work; `threads` runs the ranges
- `sampling`, `grouping`: batches drawn and sorted by column
- `autograd`: the kernels as torch functions; `step`: the fused training step
- `predict`: given cells, and all columns of one row; `prepare`: compile ahead, and say so
"""
