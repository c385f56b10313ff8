"""Data without ratings: who clicked what. Lists for known and new people, and why.

python examples/clicks.py
"""

from __future__ import annotations

import cfnade
from cfnade.data.synthetic import synthetic_interactions

clicks = synthetic_interactions(
    users=400, items=80, per_user=12, seed=1
).interactions  # or a file: clicks.csv
parts = cfnade.split(clicks, "liang:50")
model = cfnade.CFNADE().fit(parts)
scores = model.evaluate_ranking(parts.test, k=20).by_k[20]
print(f"NDCG@20 of people held out whole: {scores['ndcg'].mean:.3f}")
print(model.recommend([1, 2], n=3))
print(model.recommend(history=[5, 17], n=3))  # somebody new, who picked these
print(model.explain(history=[5, 17], item=3))
print(model.similar_items(5, n=3))
