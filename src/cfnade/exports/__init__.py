"""A model for elsewhere: the pass that answers for somebody new, as ONNX or as a static page."""
