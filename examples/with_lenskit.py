"""A model in LensKit's hands: the scorer of a pipeline, which also answers for somebody new.

python examples/with_lenskit.py          # in an environment with LensKit
"""

import pandas as pd  # type: ignore[import-untyped]
from lenskit import operations
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.pipeline import topn_pipeline

import cfnade
from cfnade.integrations.lenskit import CFNADEScorer

drawn = cfnade.synthetic(400, 150, 20_000, seed=1, factors=2).ratings
frame = {"user_id": drawn.users, "item_id": drawn.items, "rating": drawn.values}
pipeline = topn_pipeline(CFNADEScorer(side="user", ridge=8, epochs=4), predicts_ratings=True)
pipeline.train(from_interactions_df(pd.DataFrame(frame)))
print(operations.recommend(pipeline, 7, n=3).to_df())
somebody = RecQuery(history_items=ItemList([1, 2, 3], rating=[5.0, 1.0, 4.0]))
listed = operations.recommend(pipeline, somebody, n=3)
print(len(listed), "for somebody new:", listed.ids().tolist())
