"""implicit's own tests of recommenders, run with ours; see docs/how-to/integrate.md."""

from __future__ import annotations

import unittest

from recommender_base_test import (  # type: ignore[import-not-found]
    RecommenderBaseTestMixin,
)

from cfnade.integrations.implicit import ImplicitRecommender


class TestImplicitRecommender(unittest.TestCase, RecommenderBaseTestMixin):  # type: ignore[misc]
    def _get_model(self) -> ImplicitRecommender:
        return ImplicitRecommender(n_threads=1)
