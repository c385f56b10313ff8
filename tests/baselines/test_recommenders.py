"""Top-n models against closed forms and the scores of the libraries."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from tests.baselines.synthetic_interactions import ITEMS, interactions_of, synthetic_interactions

from cfnade.kernels.threads import single_torch_thread
from cfnade_baselines.base import MissingDependencyError, Recommender, import_library
from cfnade_baselines.cornac import interactions_dataset
from cfnade_baselines.irspack import blend, standardize
from cfnade_baselines.registry import create_recommender

TRAIN, HISTORIES = synthetic_interactions(240, 1)[0], synthetic_interactions(30, 2)[0]
TRAIN_TABLE, HISTORY_TABLE = TRAIN.toarray(), HISTORIES.toarray()


def fit(name: str, **options: Any) -> Recommender:
    try:
        return create_recommender(name, **options).fit(TRAIN, seed=3, n_threads=1)
    except MissingDependencyError as error:
        pytest.skip(str(error))


def scores(name: str, **options: Any) -> Any:
    return fit(name, **options).score(HISTORIES)


def test_popularity_counts() -> None:
    np.testing.assert_array_equal(scores("popularity"), np.tile(TRAIN_TABLE.sum(0), (30, 1)))


def test_ease_is_every_items_ridge_regression_on_the_others() -> None:
    found = scores("ease", regularization=12.0)
    expected = np.empty_like(HISTORY_TABLE)
    for item in range(ITEMS):
        others = np.delete(TRAIN_TABLE, item, 1)
        weights = np.linalg.solve(
            others.T @ others + 12.0 * np.eye(ITEMS - 1), others.T @ TRAIN_TABLE[:, item]
        )
        expected[:, item] = np.delete(HISTORY_TABLE, item, 1) @ weights
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(("neighbors", "shrinkage"), [(5, 0.0), (20, 3.0), (500, 0.0)])
def test_neighbors_are_those_of_all_cosines(neighbors: int, shrinkage: float) -> None:
    model: Any = fit("item-knn", neighbors=neighbors, shrinkage=shrinkage)
    found = model.score(HISTORIES)
    n_similar = ((TRAIN_TABLE.T @ TRAIN_TABLE) > 0).sum(0) - 1  # without the item itself
    kept = (model.recommender_.W.toarray() > 0).sum(0)
    np.testing.assert_array_equal(kept, np.minimum(n_similar, neighbors))
    for person in range(30):
        for item in range(0, ITEMS, 6):
            alike = []
            for other in range(ITEMS):
                both = float(TRAIN_TABLE[:, item] @ TRAIN_TABLE[:, other])
                norm = np.sqrt(TRAIN_TABLE[:, item].sum() * TRAIN_TABLE[:, other].sum()) + shrinkage
                alike.append(0.0 if other == item else both / norm)
            least = sorted(alike)[-neighbors] if neighbors < ITEMS else -1.0
            sure = sum(
                a for a, g in zip(alike, HISTORY_TABLE[person], strict=True) if g and a > least
            )
            tied = sum(
                a for a, g in zip(alike, HISTORY_TABLE[person], strict=True) if g and a == least
            )
            assert sure - 1e-5 <= found[person, item] <= sure + tied + 1e-5


def test_ials_solves_for_new_users() -> None:
    """(α0 VᵀV + Σ v vᵀ + reg (α0 M + n) I) u = Σ v, over the items of the user."""
    options = {"factors": 5, "unobserved_weight": 0.3, "regularization": 0.05, "epochs": 6}
    model: Any = fit("ials", **options)
    items = model.recommender_.get_item_embedding().astype(float)
    expected = []
    for row in HISTORY_TABLE > 0:
        rated = items[row]
        left = 0.3 * items.T @ items + rated.T @ rated
        left += 0.05 * (0.3 * ITEMS + row.sum()) * np.eye(5)
        expected.append(items @ np.linalg.solve(left, rated.sum(0)))
    np.testing.assert_allclose(model.score(HISTORIES), expected, atol=1e-3)


def test_als_solves_for_new_users() -> None:
    """(VᵀV + Σ (α - 1) v vᵀ + reg I) u = α Σ v, over the items of the user."""
    model: Any = fit(
        "implicit-als", factors=5, regularization=2.0, interaction_weight=4.0, epochs=6
    )
    items = model.model_.item_factors.astype(float)
    expected = []
    for row in HISTORY_TABLE > 0:
        rated = items[row]
        left = items.T @ items + 3.0 * rated.T @ rated + 2.0 * np.eye(5)
        expected.append(items @ np.linalg.solve(left, 4.0 * rated.sum(0)))
    np.testing.assert_allclose(model.score(HISTORIES), expected, atol=1e-4)


def test_bpr_takes_the_mean_of_item_factors() -> None:
    model: Any = fit("implicit-bpr", factors=5, epochs=10)
    table = model.item_factors_.astype(float)
    assert table.shape == (ITEMS, 6)
    for user, found in enumerate(model.score(HISTORIES)):
        factors = table[HISTORY_TABLE[user] > 0, :-1].mean(0)
        np.testing.assert_allclose(found, table[:, :-1] @ factors + table[:, -1], atol=1e-5)
    empty = model.score(interactions_of(np.zeros((1, ITEMS))))
    np.testing.assert_allclose(empty[0], table[:, -1], atol=1e-6)


def test_mult_vae_scores_training_users_as_cornac_does() -> None:
    """Cornac scores a user by the softmax of the logits."""
    options = {"latent": 4, "hidden": 10, "epochs": 5, "batch_rows": 50}
    logits = fit("mult-vae", **options).score(TRAIN)
    models = import_library("cornac.models", "cornac", "this test")
    library = models.VAECF(
        k=4, autoencoder_structure=[10], n_epochs=5, batch_size=50, beta=0.2, seed=3
    )
    with single_torch_thread():
        library.fit(interactions_dataset(TRAIN, 3, "this test"))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for user in range(0, 240, 40):
        np.testing.assert_allclose(library.score(user), probabilities[user], rtol=1e-4)


def test_recvae_learns_what_cornac_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `fit`, without the ranking after each epoch, leads to the same network."""
    model = fit("recvae", latent=4, hidden=10, epochs=3, batch_rows=50, learning_rate=1e-3)
    models = import_library("cornac.models", "cornac", "this test")
    monkeypatch.setattr("cornac.eval_methods.ranking_eval", lambda **_: ([0.0], None))
    library = models.RecVAE(
        latent_dim=4, hidden_dim=10, n_epochs=3, batch_size=50, lr=1e-3, use_gpu=False, seed=3
    )
    with single_torch_thread():
        library.fit(interactions_dataset(TRAIN, 3, "this test"))
    library.recvae_model.eval()  # it leaves dropout on
    found = model.score(TRAIN)
    for user in range(0, 240, 40):
        np.testing.assert_allclose(library.score(user), found[user], rtol=1e-3, atol=1e-4)


def test_a_blend_is_the_sum_of_standardized_scores() -> None:
    base = {"factors": 6, "regularization": 0.02, "epochs": 5}
    found = scores("ease+ials", weight=0.3, ease_regularization=20.0, **base)
    ease, ials = scores("ease", regularization=20.0), scores("ials", **base)
    for person in range(30):
        a, b = ((s[person] - s[person].mean()) / s[person].std() for s in (ease, ials))
        np.testing.assert_allclose(found[person], 0.7 * a + 0.3 * b, atol=1e-4)
    for weight, end in ((0.0, ease), (1.0, ials)):
        np.testing.assert_allclose(blend(ease, ials, weight), standardize(end), atol=1e-5)


def test_equal_scores_are_standardized_to_zero() -> None:
    np.testing.assert_array_equal(standardize(np.full((2, 5), 3.0, np.float32)), 0.0)


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("ials", "irspack", "irspack"),
        ("ease+ials", "irspack", "irspack"),
        ("implicit-als", "implicit.cpu.als", "implicit"),
        ("mult-vae", "cornac.models", "cornac"),
    ],
)
def test_a_missing_library_is_named(
    name: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"needs {package}.*pip install 'cfnade\[compare\]'"
    with pytest.raises(MissingDependencyError, match=message):
        create_recommender(name).fit(TRAIN, n_threads=1)
