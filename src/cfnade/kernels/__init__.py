"""The compute engine: compiled CPU kernels for the two sparse hot spots and the training step.

- `compiled`, `simd`, `tiles`, `costing`, `adam`, `memory`: what kernels are made of
- `passes`: the kernels over columns, serial over a range of work; `threads` runs the ranges
- `grouping`, `drawing`, `block_drawing`: ratings by column, batches and blocks of them
- `network`, `engine`: a network given by its tensors, and the training step
- `forward`, `request`, `bounds`, `spelling`: many cells, one row, lists, words
- `prepare`: compile ahead, and say so
"""
