"""A model in Surprise's hands: cross-validated beside SVD on the same folds.

python examples/with_surprise.py
"""

import polars as pl
from surprise import SVD, Dataset, Reader
from surprise.model_selection import KFold, cross_validate

import cfnade
from cfnade.integrations.surprise import CFNADEAlgo

ratings = cfnade.synthetic(400, 150, 20_000, seed=1, factors=2).ratings
frame = pl.DataFrame({"user": ratings.users, "item": ratings.items, "rating": ratings.values})
data = Dataset.load_from_df(frame.to_pandas(), Reader(rating_scale=(1, 5)))
for algorithm in (SVD(random_state=0), CFNADEAlgo(side="user", ridge=8, epochs=4)):
    scores = cross_validate(algorithm, data, ["RMSE"], cv=KFold(2, random_state=0))
    print(type(algorithm).__name__, "RMSE", scores["test_rmse"].mean().round(4))
