"""Compiled CPU kernels: sparse sums, scores, costs, gradients and Adam, for training and inference.

Reading order:

- `engine`: one training step
- `sampling`, `block_sampling`, `column_groups`: batches of context and targets, grouped by column
- `column_passes`, `ordinal_cost`, `adam`: sums, scores, costs and updates, column by column
- `hidden_layers`: dense layers between the two tables
- `register_products`, `simd`, `buffers`: what these kernels are made of
- `threads`, `jit`, `warmup`: threads, compilation, compilation ahead of use
- `scoring`, `top_k`, `newton`, `edit_distance`: inference, the last one for titles
- `posterior`, `factor_analysis`, `neighborhood`: closed-form components
- `sparse`, `neighbor_regression`, `blending`: interaction models
- `synthetic_sampling`: synthetic data

Letters in shapes: B rows of a batch, T targets, M columns, K levels, D width of a table, H hidden
units, J factors.
"""
