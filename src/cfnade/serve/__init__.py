"""A saved model over HTTP: distributions, lists and reasons for people it has never seen.

docs/serve.md says how to run it. Everything here knows the Predictor only.
"""
