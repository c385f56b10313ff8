"""Mult-VAE (Liang et al. 2018) as Cornac fits it, where it is called VAECF.

Unlike the paper's, Cornac's network has no dropout, does not scale its input, and gives the
divergence its full weight from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfnade.errors import ModelError
from cfnade.options import check_fields
from cfnade_rivals.interface import Count, NotNegative, Positive
from cfnade_rivals.libraries import library
from cfnade_rivals.listers.cornac_networks import cornac_data, dense, drawing
from cfnade_rivals.listers.likes import Likes
from cfnade_rivals.listers.list_rival import Scores, require_likes


@dataclass(frozen=True)
class FittedMultVAE:
    """Cornac's network; people go through its encoder, whoever they are."""

    network: Any

    def scores(self, given: Likes) -> Scores:
        """What the softmax would be of, at the mean of the code. Returns (people, M)."""
        import torch

        with torch.no_grad():
            code, _ = self.network.encode(dense(given))
            return np.asarray(self.network.decoder(code).numpy())


@dataclass(frozen=True, kw_only=True)
class MultVAE:
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

    def __post_init__(self) -> None:
        check_fields(self, ModelError)

    def fit(self, likes: Likes, *, seed: int = 0, threads: int | None = None) -> FittedMultVAE:
        """Fit with Cornac."""
        require_likes(likes)
        model = library("cornac.models", "cornac", self.name).VAECF(
            k=self.latent,
            autoencoder_structure=[self.hidden],
            n_epochs=self.epochs,
            batch_size=self.batch_rows,
            learning_rate=self.learning_rate,
            beta=self.divergence_weight,
            seed=seed,
        )
        with drawing(seed, threads):
            model.fit(cornac_data(likes, seed, self.name))
        return FittedMultVAE(model.vae)
