"""CFNADE, the estimator: ratings in, predictions and recommendations out."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import polars as pl
from annotated_types import Ge, Le

from cfnade import checkpoint
from cfnade.data.scale import Scale
from cfnade.evaluation.evaluate import (
    DEFAULT_K,
    RankingScores,
    RatingScores,
    evaluate,
    evaluate_ranking,
)
from cfnade.exceptions import (
    CfnadeError,
    CheckpointError,
    PredictionError,
    TrainingError,
)
from cfnade.fitted_model import FittedModel
from cfnade.frames import (
    LIBRARIES,
    Library,
    library_of,
    read,
    to_frame,
    to_histories,
    to_history,
    to_split,
)
from cfnade.inference.catalog import as_ids
from cfnade.inference.explain import Target
from cfnade.inference.histories import History, NewItems
from cfnade.inference.predictor import Predictor, Unknown
from cfnade.inference.query import Entities
from cfnade.inference.ranking_options import RankBy, RankingOptions
from cfnade.inference.results import Predictions
from cfnade.utils.validation import check_choice, check_scalar, describe_unknown

if TYPE_CHECKING:  # training imports torch, which takes longer than everything else
    from cfnade.training.callbacks import Callback

FloatArray = npt.NDArray[np.float64]

_log = logging.getLogger("cfnade")


class NotFittedError(PredictionError, AttributeError):
    """The estimator was used before `fit` or `load`."""


class CFNADE:
    """Predict ratings with their uncertainty, and recommend items.

    Follows the conventions of scikit-learn: parameters are stored as given and checked by `fit`;
    attributes that end in an underscore exist after `fit` or `load`.

    Args: Model
        side: "user" predicts a rating from the user's other ratings, and takes new users; "item"
            predicts it from the item's other ratings; "both" from both. "auto" trains several
            models and weights them by validation. "both,user" trains both kinds; the parameters
            below then describe the first, and the others have their default recipes.
        ridge: Dimensions of the ridge component, an exact Bayesian fold-in for users with few
            ratings; 0 for none. None: 20 for side "user", else 0.
        samples: Number of Gibbs samples of a factor analysis (side "user-factors"). None: it is
            fitted by variational Bayes.
        hidden: Units of each hidden layer. None: (100,) beside a ridge component, else (500,).
        factors: Rank of factored weights, which need less memory with many items. None: full rank.
        shared: Whether the weights of a rating level are added to those of the levels below.
        activation: "tanh", "sigmoid" or "relu".
        context_scale: "sqrt" divides the sum over a user's ratings by the square root of their
            number; "sum" is the paper's.
        target_weight: "unit" weights all target ratings equally; "paper" as the paper does.
        ordinal_weight: Weight of the ordinal cost, 0 to 1; the rest is the negative log-likelihood.
            None: 0 beside a ridge component, else 1.
        use_timestamps: Whether predictions depend on the time of a rating (side "both"). `predict`
            then needs `timestamp`.
        learn_interactions: Whether to learn which items users take up next, for `recommend`. None:
            with side "auto", if it takes at most a third more time. Data without ratings are
            always learned in this way.
        metric: Metric on a hold-out that selects the model of interactions: "ndcg" or "recall".
        k: Number of top items that `metric` looks at.

    Args: Training
        time_budget: Minutes of training on two cores, for side "auto" and for data without
            ratings. None: 12 to 40 seconds, without ratings 15 to 90. A longer budget never gives
            a worse validation score.
        epochs: Maximum number of epochs. This and the following: None for the value of the side's
            default recipe.
        batch_rows: Rows of a batch.
        learning_rate: Step size of Adam.
        weight_decay: Factor of the sum of squared weights.
        schedule: Learning rate schedule: "cosine", "linear", "constant" or "plateau".
        average: Decay of the moving average of the weights; 0 for none.
        patience: Epochs without improvement after which training stops.
        refit: Whether to train again with the validation ratings, for the selected number of
            epochs.
        training_options: Other fields of `cfnade.config.TrainingConfig`, as {"smoothing": 10}.

    Args: Run
        n_seeds: Number of models to train, with successive seeds; their predictions are averaged.
        seed: Seed of all random numbers. The same seed, data and number of threads give the same
            bits.
        n_threads: Number of threads. None: PyTorch's default.
        device: Where to train, such as "cuda"; predictions are made on the CPU.
        verbose: Whether `fit` prints a line per epoch; in terminals and notebooks also the
            estimated time left.

    Attributes:
        classes_: Ratings that the columns of `predict_proba` stand for, (K,).
        scale_: The rating scale.
        n_users_: Number of users in training.
        n_items_: Number of items in training.
        history_: A record of each epoch: cost, validation scores, learning rate, seconds.
        diverged_: Why training ended early with the best weights so far; None if it did not.
        fitted_: The model; `fitted_.metadata` has the metadata of its training.
        predictor_: The predictor behind the methods; not part of the public interface.
    """

    history_: list[dict[str, Any]]
    diverged_: str | None
    fitted_: FittedModel
    predictor_: Predictor
    scale_: Scale
    classes_: FloatArray
    n_users_: int
    n_items_: int

    def __init__(
        self,
        *,
        side: str = "auto",
        ridge: int | None = None,
        samples: int | None = None,
        hidden: Sequence[int] | None = None,
        factors: int | None = None,
        shared: bool = True,
        activation: str = "tanh",
        context_scale: str = "sqrt",
        target_weight: str = "unit",
        ordinal_weight: float | None = None,
        use_timestamps: bool = False,
        learn_interactions: bool | None = None,
        metric: str = "ndcg",
        k: int = 20,
        time_budget: float | None = None,
        epochs: int | None = None,
        batch_rows: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        schedule: str | None = None,
        average: float | None = None,
        patience: int | None = None,
        refit: bool = False,
        training_options: Mapping[str, Any] | None = None,
        n_seeds: int = 1,
        seed: int = 0,
        n_threads: int | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.side = side
        self.ridge = ridge
        self.samples = samples
        self.hidden = hidden
        self.factors = factors
        self.shared = shared
        self.activation = activation
        self.context_scale = context_scale
        self.target_weight = target_weight
        self.ordinal_weight = ordinal_weight
        self.use_timestamps = use_timestamps
        self.learn_interactions = learn_interactions
        self.metric = metric
        self.k = k
        self.time_budget = time_budget
        self.epochs = epochs
        self.batch_rows = batch_rows
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.average = average
        self.patience = patience
        self.refit = refit
        self.training_options = training_options
        self.n_seeds = n_seeds
        self.seed = seed
        self.n_threads = n_threads
        self.device = device
        self.verbose = verbose
        self._output: Library | None = None  # of set_output
        self._fitted_to: Library | None = None  # of the training data

    # -- training -----------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        valid: Any = None,
        *,
        init_model: CFNADE | str | Path | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Train on ratings or interactions.

        Args:
            data: Ratings, a Split, or anything that `cfnade.load` takes. fit(X, y) takes users and
                items in the two columns of X, and their ratings in y. The test part of a Split is
                not used.
            valid: Ratings to select the best epoch and to calibrate by. None: 5 % of the data,
                sampled by the seed. Later predictions condition on both.
            init_model: A trained model or its folder. Training continues with its weights; users
                and items are matched by id. Data must hold all ratings to condition on, the
                earlier ones too. Without parameters that describe a model, it stays as it is.
            callbacks: Objects that receive the progress, such as
                cfnade.integrations.callbacks.TensorBoardCallback("runs/first").
        """
        from cfnade.training.options import RunOptions
        from cfnade.training.parameters import plan_from_parameters
        from cfnade.training.progress import ProgressCallback
        from cfnade.training.train import train
        from cfnade.training.validation import warn_below_baseline

        check_scalar("seed", self.seed, int, Ge(0), Le(2**63 - 1), error=TrainingError)
        split = to_split(data, valid, self.seed)
        parameters, initial = self.get_params(), _fitted_model(init_model)
        plan = plan_from_parameters(parameters, self._changed_params(), split.train, initial)
        options = RunOptions(
            n_threads=self.n_threads,
            device=self.device,
            init_model=initial,
            callbacks=[*callbacks, *([ProgressCallback()] if self.verbose else [])],
        )
        trained = train(split, plan, options)
        if trained.diverged is not None:
            _log.warning("%s; the best weights before that were kept", trained.diverged)
        if (warning := warn_below_baseline(trained.model.metadata)) is not None:
            _log.warning(warning)
        metadata = {"diverged": trained.diverged, "parameters": _to_json(parameters)}
        self._fitted_to = library_of(data)
        return self._set_model(replace(trained.model, metadata=trained.model.metadata | metadata))

    def _set_model(self, model: FittedModel) -> Self:
        self.predictor_ = Predictor(model)
        self.fitted_ = model
        self.history_ = model.metadata.get("history", [])
        self.diverged_ = model.metadata.get("diverged")
        self.scale_ = model.context.scale
        self.classes_ = self.scale_.array()
        self.n_users_, self.n_items_ = model.context.n_users, model.context.n_items
        return self

    # -- predictions ----------------------------------------------------------------------------

    def predict(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        new_items: NewItems | None = None,
        timestamp: Any = None,
        unknown: Unknown | None = None,
    ) -> FloatArray:
        """Return the expected rating of each pair of a user and an item, (n,).

        Args:
            users: Ids of users, or one for all items.
            items: Ids or titles of items, or one for all users.
            histories: New users, by any name: {name: {item: rating}}, or a table with the columns
                user, item and rating.
            new_items: New items, by any name: {name: {user: rating}}.
            timestamp: Seconds since 1970, one for all pairs or one for each. Only for models with
                use_timestamps=True, which need it.
            unknown: What to return for users and items that the model does not know: "mean"
                returns means, "nan" NaN, and "raise" raises a PredictionError. None: means, with a
                warning.
        """
        arguments = histories, new_items, timestamp, unknown
        return self._predict(users, items, *arguments, calibrated=False).predictions

    def predict_proba(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        new_items: NewItems | None = None,
        timestamp: Any = None,
        unknown: Unknown | None = None,
    ) -> FloatArray:
        """Return the probability of each rating in `classes_`, (n, K).

        Probabilities are calibrated. The arguments are those of `predict`.
        """
        arguments = histories, new_items, timestamp, unknown
        return self._predict(users, items, *arguments).probabilities

    def predict_frame(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        new_items: NewItems | None = None,
        timestamp: Any = None,
        unknown: Unknown | None = None,
    ) -> pl.DataFrame:
        """Return predictions with their uncertainty as a frame.

        The arguments are those of `predict`.

        Returns:
            A frame with a row for each pair and the columns user, item, title, prediction, std (the
            standard deviation), the probability of each rating, and n_user_ratings and
            n_item_ratings: how many ratings the prediction is based on. See `set_output` for the
            type of the frame.
        """
        arguments = histories, new_items, timestamp, unknown
        frame = self._predict(users, items, *arguments).to_frame()
        return to_frame(frame, self._library(users, items), users, items)

    def _predict(
        self,
        users: Any,
        items: Any,
        histories: Mapping[Any, History] | None,
        new_items: NewItems | None,
        timestamp: Any,
        unknown: Unknown | None,
        *,
        calibrated: bool = True,
    ) -> Predictions:
        predictor = self._ready()
        if histories is not None:
            histories = to_histories(histories, rated=True)
        return predictor.predict(
            users,
            items,
            histories=histories,
            new_items=new_items,
            timestamp=timestamp,
            unknown=unknown,
            calibrated=calibrated,
        )

    # -- items --------------------------------------------------------------------------------

    def recommend(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        histories: Mapping[Any, History] | None = None,
        n: int = 10,
        rank_by: RankBy | None = None,
        balance: float | None = None,
        threshold: float | None = None,
        personalization: float | None = None,
        diversity: float = 0.0,
        popularity_penalty: float = 0.0,
        min_ratings: int | None = None,
        candidate_items: Any = None,
        exclude_items: Any = None,
        genres: Any = None,
        exclude_seen: bool = True,
    ) -> pl.DataFrame:
        """Return the best items for users, best first.

        Args:
            users: Ids of known users.
            history: The ratings of one new user: {item: rating}, pairs of these, or a table with
                the columns item and rating. Items alone for a model of interactions.
            histories: The ratings of several new users, by any name.
            n: Maximum number of items.
            rank_by: "interaction" ranks by the probability that the item is the user's next
                interaction and is rated at least `threshold`; "prediction" by the predicted rating;
                "threshold" by the probability of a rating of at least `threshold`. None:
                "interaction" if the model has learned interactions, else "prediction".
            balance: With "interaction": from likely items (0) to liked items (1). None: 0.5.
            threshold: Lowest rating of a liked item. None: in the upper quarter of the scale.
            personalization: With "prediction": weight of the difference between the prediction and
                the item's average rating, 0 to 10.
            diversity: How different the items should be from each other, 0 to 1.
            popularity_penalty: With "interaction": how much to favor rare items, 0 to 1. The
                probability of an item is divided by this power of its probability for a user
                without interactions.
            min_ratings: Hide items with fewer ratings. None: 0 with "interaction", else a number
                between 1 and 20 that depends on the data.
            candidate_items: Ids or titles of the only items that may be listed.
            exclude_items: Ids or titles of items that may not be listed.
            genres: A genre, or several of which an item must have one.
            exclude_seen: Whether to hide items that the user has rated.

        Returns:
            A frame with the columns user (without `history`), rank, item, title, score (what items
            are ranked by), interaction_probability (with "interaction"), prediction, std, the
            probability of each rating, n_user_ratings, n_item_ratings, and n_hidden_items: how
            many items are missing because of `min_ratings`.
        """
        options = RankingOptions(
            n=n,
            rank_by=rank_by,
            balance=balance,
            threshold=threshold,
            personalization=personalization,
            diversity=diversity,
            popularity_penalty=popularity_penalty,
            min_ratings=min_ratings,
            candidate_items=candidate_items,
            exclude_items=exclude_items,
            genres=genres,
            exclude_seen=exclude_seen,
        )
        ids, resolved = self._resolve_users(users, history, histories)
        frame = self.predictor_.recommend(resolved, options).to_frame(ids)
        return to_frame(frame, self._library(users, history, histories))

    def similar_items(self, item: Any, *, n: int = 10) -> pl.DataFrame:
        """Return the items most similar to an item.

        Args:
            item: Id or title.
            n: Maximum number of items.

        Returns:
            A frame with the columns rank, item, title, similarity and n_item_ratings. If the model
            has learned interactions, `similarity` is how many times as likely an item is after an
            interaction with the given one; else it is the cosine of the items' vectors.
        """
        predictor = self._ready()
        index = predictor.catalog.require_index(item)
        return to_frame(predictor.similar_items(index, n), self._library())

    def find_items(self, text: str, *, n: int = 10) -> pl.DataFrame:
        """Search items by title.

        Case, accents, articles and typing errors do not matter; the last word may be incomplete.

        Args:
            text: A title or a part of it.
            n: Maximum number of items.

        Returns:
            A frame with the columns item, title, n_item_ratings and distance, closest titles first.
        """
        return to_frame(self._ready().search(text, n), self._library())

    def suggest_items_to_rate(
        self,
        user: Any = None,
        *,
        history: History | None = None,
        n: int = 10,
        exclude_items: Any = (),
    ) -> pl.DataFrame:
        """Return the items whose ratings would tell most about a user.

        Args:
            user: Id of a known user.
            history: The ratings of a new user, as in `recommend`; {} if there are none.
            n: Maximum number of items.
            exclude_items: Ids or titles of items that should not be suggested.

        Returns:
            A frame with the columns rank, item, title, uncertainty_reduction and n_item_ratings,
            best items first. The expected reduction is relative to the uncertainty about a user
            without ratings, assumes ratings of the items before, and is weighted by the probability
            that a user can rate the item. It is null if the model has no measure of uncertainty;
            then items with more ratings come first.
        """
        _, resolved = self._resolve_users(None if user is None else [user], history)
        excluded = self.predictor_.catalog.indices(as_ids(exclude_items)[0])
        items = self.predictor_.suggest_items_to_rate(resolved, n, excluded)
        return to_frame(items.to_frame(), self._library(user, history))

    def explain(
        self,
        *,
        item: Any,
        user: Any = None,
        history: History | None = None,
        target: Target | None = None,
    ) -> pl.DataFrame:
        """Return how each known rating changes the prediction of one item, strongest first.

        Each rating is left out in turn and the prediction made again, exactly.

        Args:
            item: Id or title of the item.
            user: Id of a known user.
            history: The ratings of a new user, as in `recommend`.
            target: "rating" explains the predicted rating, "interaction" the probability of the
                next interaction. None: the rating, if the model predicts ratings.

        Returns:
            A frame with the columns item, title, rating, prediction, prediction_without and
            difference, and a row for each rating of the user. For "interaction",
            interaction_probability takes the place of prediction, and lift, the ratio of the
            probabilities, that of difference. For an item-based model, the rows are the levels at
            which other users rated the item: rating, count, prediction, prediction_without (without
            all of these) and difference.
        """
        _, resolved = self._resolve_users(None if user is None else [user], history)
        if history is None:
            self.predictor_.require_known(user)
        index = self.predictor_.catalog.require_index(item)
        frame = self.predictor_.explain(resolved, index, target)
        return to_frame(frame, self._library(history))

    # -- evaluation ---------------------------------------------------------------------------

    def evaluate(self, test: Any) -> RatingScores:
        """Return RMSE, negative log-likelihood and other scores of held-out ratings.

        Args:
            test: Ratings, or anything that `cfnade.load` takes.
        """
        return evaluate(self._ready().fitted, read(test, self.scale_))

    def evaluate_ranking(
        self,
        test: Any,
        *,
        k: int | Sequence[int] = DEFAULT_K,
        threshold: float | None = None,
        max_users: int | None = None,
        exclude_seen: bool = True,
    ) -> RankingScores:
        """Return NDCG, recall and other scores of the lists that `recommend` returns.

        Args:
            test: Held-out ratings or interactions, or anything that `cfnade.load` takes.
            k: How many ranks count, or several such numbers.
            threshold: Lowest rating of a relevant item. None: in the upper quarter of the scale.
            max_users: Evaluate a sample of at most so many users.
            exclude_seen: False ranks known items as well, and the test may hold repeats.
        """
        return evaluate_ranking(
            self._ready(),
            read(test, self.scale_),
            k=k,
            threshold=threshold,
            max_users=max_users,
            exclude_seen=exclude_seen,
        )

    # -- files --------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, with_context: bool = True) -> None:
        """Write the model into a folder; docs/reference/file-formats.md describes its files.

        Args:
            folder: Created if it does not exist; a model in it is replaced.
            with_context: False leaves out all ratings. The model then answers for histories only.
        """
        checkpoint.save(self._ready().fitted, folder, with_context=with_context)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the fitted estimator of a folder.

        Its parameters are those of its training, or the defaults if the command line trained it.
        """
        model = checkpoint.load(folder)
        try:
            return cls(**_from_json(model.metadata.get("parameters", {})))._set_model(model)
        except (CfnadeError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{folder}: the parameters of its training cannot be used: {error}"
            ) from error

    # -- parameters and output ------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the parameters; `deep` is for scikit-learn and has no effect."""
        return {name: getattr(self, name) for name in _DEFAULTS}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters, for the next `fit`."""
        for name in parameters:
            if name not in _DEFAULTS:
                raise TrainingError(describe_unknown("parameter of CFNADE", name, _DEFAULTS))
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def set_output(self, library: Literal["pandas", "polars", "pyarrow"] | None) -> Self:
        """Set the type of all frames that are returned.

        Args:
            library: None returns frames of the library that the arguments of a call are of, else
                that of the training data, else polars.
        """
        if library is not None:
            check_choice("library", library, LIBRARIES, error=PredictionError)
        self._output = library
        return self

    def _changed_params(self) -> dict[str, Any]:
        """Return the parameters that are not the defaults."""
        return {
            name: getattr(self, name)
            for name, default in _DEFAULTS.items()
            if not _are_equal(getattr(self, name), default)
        }

    def __repr__(self) -> str:
        changed = [f"{name}={value!r}" for name, value in self._changed_params().items()]
        return f"CFNADE({', '.join(changed)})"

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters and model, without what a predictor caches."""
        state = self.get_params() | {"_output": self._output, "_fitted_to": self._fitted_to}
        return state | ({"fitted_": self.fitted_} if hasattr(self, "fitted_") else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = state.pop("fitted_", None)
        self.__dict__.update(state)
        if model is not None:
            self._set_model(model)

    # -- shared ---------------------------------------------------------------------------------

    def _ready(self) -> Predictor:
        """Return the predictor of a fitted model."""
        if not hasattr(self, "predictor_"):
            raise NotFittedError(
                "this CFNADE is not fitted; call fit(ratings) first, or load a saved model with "
                "CFNADE.load(folder)"
            )
        return self.predictor_

    def _library(self, *arguments: Any) -> Library | None:
        return self._output or library_of(*arguments) or self._fitted_to

    def _resolve_users(
        self, users: Any = None, history: Any = None, histories: Any = None
    ) -> tuple[Any, Entities]:
        """Return the ids, if there are any, and the users of a question."""
        predictor = self._ready()
        rated = not predictor.fitted.context.implicit
        if history is not None:
            history = to_history(history, rated=rated)
        if histories is not None:
            histories = to_histories(histories, rated=rated)
        return predictor.resolve_users(users, history=history, histories=histories)


_DEFAULTS = {name: p.default for name, p in inspect.signature(CFNADE).parameters.items()}


def _are_equal(value: Any, default: Any) -> bool:
    try:
        return value is default or bool(value == default)
    except ValueError:  # an array
        return False


def _fitted_model(init_model: CFNADE | str | Path | None) -> FittedModel | None:
    if init_model is None:
        return None
    return (
        init_model._ready().fitted
        if isinstance(init_model, CFNADE)
        else checkpoint.load(init_model)
    )


def _to_json(value: Any) -> Any:
    """Return a parameter, or several, as JSON can hold it; `_from_json` is the inverse."""
    if isinstance(value, Mapping):
        return {name: _to_json(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_json(entry) for entry in value]
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _from_json(entry) for name, entry in value.items()}
    return tuple(map(_from_json, value)) if isinstance(value, list) else value
