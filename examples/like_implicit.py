"""For people who come from implicit: the same calls, answered by a model of what people pick.

python examples/like_implicit.py
"""

import numpy as np
from scipy.sparse import csr_matrix

from cfnade.data.synthetic import synthetic_interactions
from cfnade.integrations.implicit import ImplicitRecommender

picks = synthetic_interactions(users=400, items=80, per_user=12, seed=1).interactions
user_items = csr_matrix((np.ones(len(picks)), (picks.users, picks.items)), (400, 80))
model = ImplicitRecommender(seed=0).fit(user_items)
ids, scores = model.recommend(7, user_items[7], N=5)
print("for user 7:", ids.tolist(), "log chances", scores.round(2).tolist())
print("like item 3:", model.similar_items(3, N=5)[0].tolist())
