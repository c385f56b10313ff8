"""A model in Cornac's hands: a line of its Experiment's table.

python examples/with_cornac.py
"""

import cornac
from cornac.eval_methods import RatioSplit
from cornac.metrics import RMSE

import cfnade
from cfnade.integrations.cornac import CFNADERecommender

ratings = cfnade.synthetic(400, 150, 20_000, seed=1, factors=2).ratings
cells = [*zip(ratings.users, ratings.items, ratings.values, strict=True)]
models = [cornac.models.MF(seed=1), CFNADERecommender(side="user", ridge=8, epochs=4)]
split = RatioSplit(cells, test_size=0.5, seed=1)
cornac.Experiment(split, models, [RMSE()], user_based=False, save_dir=None).run()
