"""PMF, BiasMF, Mult-VAE and RecVAE of Cornac, without early stopping.

PMF and BiasMF pass over the ratings in the order given, so these are shuffled once by the seed;
with a seed Cornac uses one thread.

Mult-VAE (Liang et al. 2018; Cornac calls it VAECF): unlike the paper's, Cornac's network has no
dropout, does not scale its input, and gives the divergence its full weight from the start.

RecVAE (Shenbin et al. 2020): Cornac's network and steps, in the order of its `fit`. That `fit` also
ranks all items for every training user after each epoch, for a progress bar, which takes most of
its time and changes nothing; this is left out here. Cornac's `score` leaves dropout on; here it is
off, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Lt

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    FloatArray,
    IntArray,
    NonNegative,
    Positive,
    Recommender,
    Scores,
    import_library,
)
from cfnade_baselines.factor_model import FactorModel

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_ENCODER_PASSES, _DROPOUT = 3, 0.5  # of RecVAE: the paper's and Cornac's


# -- ratings ---------------------------------------------------------------------------------------


@options(ModelError)
class BiasMF(FactorModel):
    """Matrix factorization with biases (Koren et al. 2009), by stochastic gradient descent."""

    name: ClassVar[str] = "biasmf"
    library: ClassVar[str] = "cornac"

    factors: Count = 100
    """Number of factors."""
    epochs: Count = 40
    """Passes over the ratings."""
    learning_rate: Positive = 0.01
    """Step size."""
    regularization: NonNegative = 0.05
    """L2 penalty of factors and biases, at each rating."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid, n_threads
        model = _fit_cornac("MF", self, train, seed, use_bias=True)
        biases = model.u_biases, model.i_biases
        factors = model.u_factors, model.i_factors
        self._set_factors(train, float(model.global_mean), biases, factors)


@options(ModelError)
class PMF(FactorModel):
    """Factors without biases (Mnih and Salakhutdinov 2007), by RMSProp.

    Predicts the mean of all ratings where the user or the item is unknown.
    """

    name: ClassVar[str] = "pmf"
    library: ClassVar[str] = "cornac"

    variant: Literal["linear", "non_linear"] = "non_linear"
    """non_linear puts the product of the factors through a sigmoid."""
    factors: Count = 10
    """Number of factors."""
    epochs: Count = 50
    """Passes over the ratings."""
    learning_rate: Positive = 0.001
    """Step size."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Decay of the mean squared gradients (Cornac's gamma)."""
    regularization: NonNegative = 0.01
    """L2 penalty of the factors, at each rating."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid, n_threads
        model = _fit_cornac("PMF", self, train, seed, gamma=self.momentum, variant=self.variant)
        no_biases = np.zeros(train.n_users), np.zeros(train.n_items)
        self._set_factors(train, 0.0, no_biases, (model.U, model.V))
        self._set(
            rating_mean_=float(train.values.mean()),
            # Cornac maps the observed ratings, not the scale, to 0..1.
            bounds_=(float(train.values.min()), float(train.values.max())),
            has_factors_=[np.any(f, axis=1) for f in (self.user_factors_, self.item_factors_)],
        )

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return expected ratings, (n,)."""
        scores = self.raw_scores(users, items)
        if self.variant == "non_linear":
            low, high = self.bounds_
            scores = low + (high - low) / (1.0 + np.exp(-scores))
        has_user, has_item = self.has_factors_
        is_known = (users >= 0) & (items >= 0) & has_user[users] & has_item[items]
        low, high = self.range_
        return np.clip(np.where(is_known, scores, self.rating_mean_), low, high)


def _fit_cornac(
    kind: str, options: BiasMF | PMF, train: Dataset, seed: int, **arguments: Any
) -> Any:
    models = import_library("cornac.models", "cornac", options.name)
    model = getattr(models, kind)(
        k=options.factors,
        max_iter=options.epochs,
        learning_rate=options.learning_rate,
        lambda_reg=options.regularization,
        seed=seed,
        **arguments,
    )
    order = np.random.default_rng(seed).permutation(len(train))
    pairs = train.users[order].astype(np.int64), train.items[order].astype(np.int64)
    sizes = train.n_users, train.n_items
    return model.fit(_cornac_dataset(sizes, (*pairs, train.values[order]), seed, options.name))


def _cornac_dataset(
    sizes: tuple[int, int], ratings: tuple[IntArray, IntArray, FloatArray], seed: int, model: str
) -> Any:
    """Return Cornac's data set, in which every user and item has its own index."""
    users, items = ({i: i for i in range(size)} for size in sizes)
    data = import_library("cornac.data", "cornac", model)
    return data.Dataset(*sizes, users, items, ratings, seed=seed)


# -- top-n lists -----------------------------------------------------------------------------------


@options(ModelError)
class MultVAE(Recommender):
    """A variational autoencoder with a multinomial likelihood."""

    name: ClassVar[str] = "mult-vae"
    library: ClassVar[str] = "cornac"

    latent: Count = 100
    """Dimension of the code."""
    hidden: Count = 300
    """Units of the hidden layer of encoder and decoder."""
    epochs: Count = 50
    """Passes over the users."""
    batch_rows: Count = 100
    """Users per step."""
    learning_rate: Positive = 1e-3
    """Adam's step size."""
    divergence_weight: NonNegative = 0.2
    """Weight of the Kullback-Leibler divergence (β)."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        model = import_library("cornac.models", "cornac", self.name).VAECF(
            k=self.latent,
            autoencoder_structure=[self.hidden],
            n_epochs=self.epochs,
            batch_size=self.batch_rows,
            learning_rate=self.learning_rate,
            beta=self.divergence_weight,
            seed=seed,
        )
        with _torch_seed(seed, n_threads):
            model.fit(interactions_dataset(interactions, seed, self.name))
        self._set(network_=model.vae)

    def score(self, interactions: csr_matrix) -> Scores:
        """Return the logits at the mean of the code, (B, M)."""
        import torch

        with torch.no_grad():
            code, _ = self.network_.encode(_dense(interactions))
            return np.asarray(self.network_.decoder(code).numpy())


@options(ModelError)
class RecVAE(Recommender):
    """A deep encoder, a linear decoder, and a prior that includes the previous encoder."""

    name: ClassVar[str] = "recvae"
    library: ClassVar[str] = "cornac"

    latent: Count = 200
    """Dimension of the code."""
    hidden: Count = 600
    """Units of each of the encoder's five layers."""
    epochs: Count = 25
    """Rounds: three passes over the users for the encoder, then one for the decoder."""
    batch_rows: Count = 500
    """Users per step."""
    learning_rate: Positive = 5e-4
    """Adam's step size."""
    divergence_weight: Positive = 0.005
    """Weight of the Kullback-Leibler divergence for each interaction of a user (γ)."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        module = import_library("cornac.models.recvae.recvae", "cornac", self.name)
        data = interactions_dataset(interactions, seed, self.name)
        with _torch_seed(seed, n_threads):
            network = module.VAE(self.hidden, self.latent, interactions.shape[1])
            encoder, decoder = (self._adam(part) for part in (network.encoder, network.decoder))
            for _ in range(self.epochs):
                self._run(data, network, encoder, _ENCODER_PASSES, _DROPOUT)
                network.update_prior()
                self._run(data, network, decoder, 1, 0.0)
        self._set(network_=network.eval())

    def score(self, interactions: csr_matrix) -> Scores:
        """Return the logits at the mean of the code, (B, M)."""
        import torch

        with torch.no_grad():
            return np.asarray(self.network_(_dense(interactions), calculate_loss=False).numpy())

    def _adam(self, part: Any) -> Any:
        from torch.optim import Adam

        return Adam(part.parameters(), lr=self.learning_rate)

    def _run(self, data: Any, network: Any, adam: Any, passes: int, dropout: float) -> None:
        """Make Cornac's own passes over the users."""
        model = import_library("cornac.models", "cornac", self.name).RecVAE(use_gpu=False)
        gamma = self.divergence_weight
        model.run(network, [adam], data, self.batch_rows, passes, None, gamma, dropout)


def interactions_dataset(interactions: csr_matrix, seed: int, model: str) -> Any:
    """Return interactions as Cornac's data set."""
    pairs = interactions.tocoo()
    ratings = pairs.row, pairs.col.astype(np.int64), np.ones(interactions.nnz)
    return _cornac_dataset(interactions.shape, ratings, seed, model)


def _dense(interactions: csr_matrix) -> Any:
    import torch

    return torch.from_numpy(interactions.toarray())


@contextmanager
def _torch_seed(seed: int, n_threads: int | None) -> Iterator[None]:
    """Seed torch and limit its threads inside the block; its state outside does not change."""
    import torch

    from cfnade.kernels.threads import thread_count, torch_threads

    with torch.random.fork_rng(devices=[]), torch_threads(thread_count(n_threads)):
        torch.manual_seed(seed)
        yield
