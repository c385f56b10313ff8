"""RecVAE (Shenbin et al. 2020): Cornac's network and steps, in the order of its `fit`.

That `fit` besides ranks all items for every training person after each epoch, for a progress bar,
which takes most of its time and changes nothing; it is left out here. Cornac's `score` leaves
dropout on; here it is off, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfnade.errors import ModelError
from cfnade.options import check_fields
from cfnade_rivals.interface import Count, Positive
from cfnade_rivals.libraries import library
from cfnade_rivals.listers.cornac_networks import cornac_data, dense, drawing
from cfnade_rivals.listers.likes import Likes
from cfnade_rivals.listers.list_rival import Scores, require_likes

_ENCODER_PASSES, _DROPOUT = 3, 0.5  # the paper's and Cornac's


@dataclass(frozen=True)
class FittedRecVAE:
    """Cornac's network; people go through its encoder, whoever they are."""

    network: Any

    def scores(self, given: Likes) -> Scores:
        """What the softmax would be of, at the mean of the code. Returns (people, M)."""
        import torch

        with torch.no_grad():
            return np.asarray(self.network(dense(given), calculate_loss=False).numpy())


@dataclass(frozen=True, kw_only=True)
class RecVAE:
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

    def __post_init__(self) -> None:
        check_fields(self, ModelError)

    def fit(self, likes: Likes, *, seed: int = 0, threads: int | None = None) -> FittedRecVAE:
        """Alternate as Cornac does."""
        require_likes(likes)
        module = library("cornac.models.recvae.recvae", "cornac", self.name)
        data = cornac_data(likes, seed, self.name)
        with drawing(seed, threads):
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
