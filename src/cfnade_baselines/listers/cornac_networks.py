"""Mult-VAE (Liang et al. 2018) and RecVAE (Shenbin et al. 2020) with Cornac's networks.

Of Mult-VAE, which it calls VAECF: unlike the paper's, Cornac's network has no dropout, does not
scale its input, and gives the divergence its full weight from the start.

Of RecVAE: Cornac's network and steps, in the order of its `fit`. That `fit` besides ranks all items
for every training person after each epoch, for a progress bar, which takes most of its time and
changes nothing; it is left out here. Cornac's `score` leaves dropout on; here it is off, as in the
paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfnade_baselines.base import Count, NotNegative, Positive
from cfnade_baselines.cornac import cornac_data
from cfnade_baselines.libraries import library
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores

_ENCODER_PASSES, _DROPOUT = 3, 0.5  # of RecVAE: the paper's and Cornac's


@dataclass(frozen=True)
class FittedMultVAE(FittedLists):
    """Cornac's network; people go through its encoder, whoever they are."""

    network: Any

    def scores(self, given: Likes) -> Scores:
        """What the softmax would be of, at the mean of the code. Returns (people, M)."""
        import torch

        with torch.no_grad():
            code, _ = self.network.encode(_dense(given))
            return np.asarray(self.network.decoder(code).numpy())


@dataclass(frozen=True, kw_only=True)
class MultVAE(ListRival[FittedMultVAE]):
    """A variational autoencoder with a multinomial likelihood."""

    name: ClassVar[str] = "mult-vae"

    latent: Count = 100
    """How many numbers a code has."""
    hidden: Count = 300
    """Units of the one layer on either side of it."""
    epochs: Count = 50
    """Passes over the people."""
    batch_rows: Count = 100
    """People a step."""
    learning_rate: Positive = 1e-3
    """Adam's."""
    divergence_weight: NotNegative = 0.2
    """The weight of the Kullback-Leibler divergence (β)."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedMultVAE:
        """Fit with Cornac."""
        model = library("cornac.models", "cornac", self.name).VAECF(
            k=self.latent,
            autoencoder_structure=[self.hidden],
            n_epochs=self.epochs,
            batch_size=self.batch_rows,
            learning_rate=self.learning_rate,
            beta=self.divergence_weight,
            seed=seed,
        )
        with _drawing(seed, threads):
            model.fit(cornac_likes(likes, seed, self.name))
        return FittedMultVAE(model.vae)


@dataclass(frozen=True)
class FittedRecVAE(FittedLists):
    """Cornac's network; people go through its encoder, whoever they are."""

    network: Any

    def scores(self, given: Likes) -> Scores:
        """What the softmax would be of, at the mean of the code. Returns (people, M)."""
        import torch

        with torch.no_grad():
            return np.asarray(self.network(_dense(given), calculate_loss=False).numpy())


@dataclass(frozen=True, kw_only=True)
class RecVAE(ListRival[FittedRecVAE]):
    """A deep encoder, a linear decoder, and a prior that remembers the last encoder."""

    name: ClassVar[str] = "recvae"

    latent: Count = 200
    """How many numbers a code has."""
    hidden: Count = 600
    """Units of each of the encoder's five layers."""
    epochs: Count = 25
    """Rounds: three passes over the people for the encoder, then one for the decoder."""
    batch_rows: Count = 500
    """People a step."""
    learning_rate: Positive = 5e-4
    """Adam's."""
    divergence_weight: Positive = 0.005
    """The weight of the Kullback-Leibler divergence for each like of a person (γ)."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedRecVAE:
        """Alternate as Cornac does."""
        module = library("cornac.models.recvae.recvae", "cornac", self.name)
        data = cornac_likes(likes, seed, self.name)
        with _drawing(seed, threads):
            network = module.VAE(self.hidden, self.latent, likes.n_items)
            encoder, decoder = (self._adam(part) for part in (network.encoder, network.decoder))
            for _ in range(self.epochs):
                self._run(data, network, encoder, _ENCODER_PASSES, _DROPOUT)
                network.update_prior()
                self._run(data, network, decoder, 1, 0.0)
        return FittedRecVAE(network.eval())

    def _adam(self, part: Any) -> Any:
        from torch.optim import Adam

        return Adam(part.parameters(), lr=self.learning_rate)

    def _run(self, data: Any, network: Any, adam: Any, passes: int, dropout: float) -> None:
        """Cornac's own passes over the people."""
        model = library("cornac.models", "cornac", self.name).RecVAE(use_gpu=False)
        gamma = self.divergence_weight
        model.run(network, [adam], data, self.batch_rows, passes, None, gamma, dropout)


# -- what both share -----------------------------------------------------------------------------


def cornac_likes(likes: Likes, seed: int, model: str) -> Any:
    """What people like, as Cornac has it."""
    cells = likes.rows(), likes.columns.astype(np.int64), np.ones(len(likes.columns))
    return cornac_data((len(likes), likes.n_items), cells, seed, model)


def _dense(given: Likes) -> Any:
    """Ones where something is liked, a tensor. (people, M)."""
    import torch

    return torch.from_numpy(given.matrix().toarray())


@contextmanager
def _drawing(seed: int, threads: int | None) -> Iterator[None]:
    """Torch draws by the seed inside, on so many threads; outside it goes on as before."""
    import torch

    from cfnade.kernels.threads import thread_count, torch_threads

    with torch.random.fork_rng(devices=[]), torch_threads(thread_count(threads)):
        torch.manual_seed(seed)
        yield
