"""Training and inference on several processes."""
