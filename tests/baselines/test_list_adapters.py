"""Models of lists against closed forms and the libraries' own answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.baselines.listing import ITEMS, likes_of, made_up, table_of

from cfnade.exceptions import ModelError
from cfnade.kernels.threads import single_torch_thread
from cfnade_baselines.base import MissingError
from cfnade_baselines.libraries import library
from cfnade_baselines.listers import ease, item_knn, make_lister
from cfnade_baselines.listers.blend import FittedBlend, standardised
from cfnade_baselines.listers.cornac_networks import cornac_likes
from cfnade_baselines.listers.list_rival import FittedLists

LIKES, STRANGERS = made_up(240, 1)[0], made_up(30, 2)[0]
TABLE, GIVEN = table_of(LIKES), table_of(STRANGERS)


def fit(name: str, **options: Any) -> FittedLists:
    try:
        return make_lister(name, **options).fit(LIKES, seed=3, threads=1)
    except MissingError as error:
        pytest.skip(str(error))


def scores(name: str, **options: Any) -> Any:
    return fit(name, **options).scores(STRANGERS)


def test_popularity_counts() -> None:
    np.testing.assert_array_equal(scores("popularity"), np.tile(TABLE.sum(0), (30, 1)))


@pytest.mark.parametrize("exact", [True, False])
def test_ease_is_every_items_ridge_regression_on_the_others(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ease, "_EXACT", ITEMS if exact else ITEMS - 1)
    monkeypatch.setattr(ease, "_ROWS", 7)  # as many blocks as a large catalogue has
    found = scores("ease", regularisation=12.0)
    expected = np.empty_like(GIVEN)
    for item in range(ITEMS):
        others = np.delete(TABLE, item, 1)
        weights = np.linalg.solve(
            others.T @ others + 12.0 * np.eye(ITEMS - 1), others.T @ TABLE[:, item]
        )
        expected[:, item] = np.delete(GIVEN, item, 1) @ weights
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_ease_inverts_in_place() -> None:
    matrix = TABLE.T @ TABLE + np.eye(ITEMS)
    expected, upper = np.linalg.inv(matrix), np.triu(matrix)
    ease.invert(upper)
    np.testing.assert_allclose(upper, expected, atol=1e-12)
    with pytest.raises(ModelError, match="give a larger regularisation"):
        ease.invert(-np.eye(3))


@pytest.mark.parametrize(("neighbours", "shrinkage"), [(5, 0.0), (20, 3.0), (500, 0.0)])
def test_neighbours_are_those_of_all_cosines(
    neighbours: int, shrinkage: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_knn, "_ITEMS", 13)
    found = scores("item-knn", neighbours=neighbours, shrinkage=shrinkage)
    for person in range(30):
        for item in range(0, ITEMS, 6):
            alike = []
            for other in range(ITEMS):
                both = float(TABLE[:, item] @ TABLE[:, other])
                norm = np.sqrt(TABLE[:, item].sum() * TABLE[:, other].sum()) + shrinkage
                alike.append(0.0 if other == item else both / norm)
            least = sorted(alike)[-neighbours] if neighbours < ITEMS else -1.0
            sure = sum(a for a, g in zip(alike, GIVEN[person], strict=True) if g and a > least)
            tied = sum(a for a, g in zip(alike, GIVEN[person], strict=True) if g and a == least)
            assert sure - 1e-5 <= found[person, item] <= sure + tied + 1e-5


def test_ials_solves_for_new_people() -> None:
    """(α0 VᵀV + Σ v vᵀ + reg (α0 M + n) I) u = Σ v, over what is given."""
    options = {"factors": 5, "unobserved_weight": 0.3, "regularisation": 0.05, "epochs": 6}
    model: Any = fit("ials", **options)
    items = model.recommender.get_item_embedding().astype(float)
    expected = []
    for row in GIVEN > 0:
        own = items[row]
        left = 0.3 * items.T @ items + own.T @ own
        left += 0.05 * (0.3 * ITEMS + row.sum()) * np.eye(5)
        expected.append(items @ np.linalg.solve(left, own.sum(0)))
    np.testing.assert_allclose(model.scores(STRANGERS), expected, atol=1e-3)


def test_als_solves_for_new_people() -> None:
    """(VᵀV + Σ (α - 1) v vᵀ + reg I) u = α Σ v, over what is given."""
    model: Any = fit("implicit-als", factors=5, regularisation=2.0, like_weight=4.0, epochs=6)
    items = model.model.item_factors.astype(float)
    expected = []
    for row in GIVEN > 0:
        own = items[row]
        left = items.T @ items + 3.0 * own.T @ own + 2.0 * np.eye(5)
        expected.append(items @ np.linalg.solve(left, 4.0 * own.sum(0)))
    np.testing.assert_allclose(model.scores(STRANGERS), expected, atol=1e-4)


def test_bpr_takes_the_mean_of_what_is_liked() -> None:
    model: Any = fit("implicit-bpr", factors=5, epochs=10)
    table = model.item_factors.astype(float)
    assert table.shape == (ITEMS, 6)
    for person, found in enumerate(model.scores(STRANGERS)):
        taste = table[GIVEN[person] > 0, :-1].mean(0)
        np.testing.assert_allclose(found, table[:, :-1] @ taste + table[:, -1], atol=1e-5)
    nobody = model.scores(likes_of(np.zeros((1, ITEMS))))
    np.testing.assert_allclose(nobody[0], table[:, -1], atol=1e-6)


def test_mult_vae_scores_training_people_as_cornac_does() -> None:
    """By their row: Cornac's softmax of our scores is what Cornac says of the person's index."""
    options = {"latent": 4, "hidden": 10, "epochs": 5, "batch_rows": 50}
    logits = fit("mult-vae", **options).scores(LIKES)
    models = library("cornac.models", "cornac", "this test")
    theirs = models.VAECF(
        k=4, autoencoder_structure=[10], n_epochs=5, batch_size=50, beta=0.2, seed=3
    )
    with single_torch_thread():
        theirs.fit(cornac_likes(LIKES, 3, "this test"))
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for person in range(0, 240, 40):
        np.testing.assert_allclose(theirs.score(person), chances[person], rtol=1e-4)


def test_recvae_learns_what_cornac_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `fit`, without the ranking after each epoch, leads to the same network."""
    model = fit("recvae", latent=4, hidden=10, epochs=3, batch_rows=50, learning_rate=1e-3)
    models = library("cornac.models", "cornac", "this test")
    monkeypatch.setattr("cornac.eval_methods.ranking_eval", lambda **_: ([0.0], None))
    theirs = models.RecVAE(
        latent_dim=4, hidden_dim=10, n_epochs=3, batch_size=50, lr=1e-3, use_gpu=False, seed=3
    )
    with single_torch_thread():
        theirs.fit(cornac_likes(LIKES, 3, "this test"))
    theirs.recvae_model.eval()  # it leaves dropout on
    found = model.scores(LIKES)
    for person in range(0, 240, 40):
        np.testing.assert_allclose(theirs.score(person), found[person], rtol=1e-3, atol=1e-4)


def test_a_blend_is_the_sum_of_standardised_scores() -> None:
    base = {"factors": 6, "regularisation": 0.02, "epochs": 5}
    found = scores("ease+ials", weight=0.3, ease_regularisation=20.0, **base)
    one, other = scores("ease", regularisation=20.0), scores("ials", **base)
    for person in range(30):
        a, b = ((s[person] - s[person].mean()) / s[person].std() for s in (one, other))
        np.testing.assert_allclose(found[person], 0.7 * a + 0.3 * b, atol=1e-4)
    ends = [FittedBlend((fit("ease"), fit("popularity")), w).scores(STRANGERS) for w in (0.0, 1.0)]
    np.testing.assert_allclose(ends[0], standardised(scores("ease")), atol=1e-5)
    np.testing.assert_allclose(ends[1], standardised(scores("popularity")), atol=1e-5)


def test_equal_scores_are_standardised_to_nothing() -> None:
    np.testing.assert_array_equal(standardised(np.full((2, 5), 3.0, np.float32)), 0.0)


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("ials", "irspack", "irspack"),
        ("ease+ials", "irspack", "irspack"),
        ("implicit-als", "implicit.cpu.als", "implicit"),
        ("implicit-bpr", "implicit.cpu.bpr", "implicit"),
        ("mult-vae", "cornac.models", "cornac"),
        ("recvae", "cornac.models.recvae.recvae", "cornac"),
        ("ease", "scipy.linalg.lapack", "scipy"),
        ("item-knn", "scipy.sparse", "scipy"),
    ],
)
def test_a_missing_library_is_named(
    name: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingError, match=rf"needs {package}.*pip install 'cfnade\[compare\]'"):
        make_lister(name).fit(LIKES, threads=1)
