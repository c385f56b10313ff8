"""A model in scikit-learn's hands: cross-validated, and searched for better settings.

python examples/with_scikit_learn.py
"""

from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import cfnade
from cfnade.integrations.sklearn import CFNADERegressor

ratings = cfnade.synthetic(400, 150, 20_000, seed=1, factors=2).ratings
X = [*zip(ratings.user_ids[ratings.users], ratings.item_ids[ratings.items], strict=True)]
folds = KFold(2, shuffle=True, random_state=0)  # data often come user by user
model = CFNADERegressor(side="user", ridge=8, hidden=(20,))
print("R² of each fold:", cross_val_score(model, X, ratings.values, cv=folds).round(3))
search = GridSearchCV(model, {"epochs": [0, 4]}, cv=folds).fit(X, ratings.values)
print("best:", search.best_params_, "of a pair:", search.predict([X[0]]).round(2))
