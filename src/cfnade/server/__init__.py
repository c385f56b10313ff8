"""The HTTP service: predictions, top-n lists and explanations of a saved model, and its web page.

docs/how-to/serve.md describes its use.
"""
