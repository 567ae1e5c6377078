"""The models that are compared, each with its library's defaults except IVON's rate.

MESU's defaults were chosen on most of these streams: docs/streams.md says on which.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.streams.adapters import RiverClassifier, RiverRegressor, ScikitClassifier, ScikitRegressor
from benchmarks.streams.data import Stream
from benchmarks.streams.ivon_mlp import IVONPerceptron
from benchmarks.streams.least_squares import LeastSquares
from river import dummy, forest, linear_model, preprocessing, stats, tree
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

from mesu.river import MESUClassifier, MESURegressor

SHORT = 2_000  # examples: about one task of digits; chosen by hand, once, for all streams


class Contestant(NamedTuple):
    """A model as tables and figures know it."""

    label: str
    colour: str
    build: Callable[[Stream, int], Any]
    kind: str = "both"  # what it is for: "classes", "numbers" or "both"


def mesu_model(stream: Stream, seed: int, **choices: Any) -> Any:
    """MESU's classifier or regressor for River."""
    if stream.regression:
        return RiverRegressor(MESURegressor(seed=seed, **choices))
    return RiverClassifier(MESUClassifier(seed=seed, **choices))


def _hoeffding(stream: Stream, seed: int) -> Any:
    if stream.regression:
        # scaled, as River's own examples have it: the linear models in its leaves run off to 1e9 otherwise
        return RiverRegressor(preprocessing.StandardScaler() | tree.HoeffdingAdaptiveTreeRegressor(seed=seed))
    return RiverClassifier(tree.HoeffdingAdaptiveTreeClassifier(seed=seed))


def _forest(stream: Stream, seed: int) -> Any:
    if stream.regression:
        return RiverRegressor(preprocessing.StandardScaler() | forest.ARFRegressor(seed=seed))
    return RiverClassifier(forest.ARFClassifier(seed=seed))


def _linear(stream: Stream, seed: int) -> Any:
    scaler: Any = preprocessing.StandardScaler()
    if stream.regression:
        return RiverRegressor(preprocessing.TargetStandardScaler(scaler | linear_model.LinearRegression()))
    two = len(stream.classes) == 2
    return RiverClassifier(scaler | (linear_model.LogisticRegression() if two else linear_model.SoftmaxRegression()))


def _sgd(stream: Stream, seed: int) -> Any:
    if stream.regression:
        return ScikitRegressor(SGDRegressor(random_state=seed))
    return ScikitClassifier(SGDClassifier(loss="log_loss", random_state=seed), stream.classes)


def _mlp(stream: Stream, seed: int) -> Any:
    if stream.regression:
        return ScikitRegressor(MLPRegressor(random_state=seed))
    return ScikitClassifier(MLPClassifier(random_state=seed), stream.classes)


def _baseline(stream: Stream, seed: int) -> Any:
    if stream.regression:
        return RiverRegressor(dummy.StatisticRegressor(stats.Mean()))
    return RiverClassifier(dummy.PriorClassifier())


def _bayesian_line(stream: Stream, seed: int) -> Any:
    scaler: Any = preprocessing.StandardScaler()
    return RiverRegressor(preprocessing.TargetStandardScaler(scaler | linear_model.BayesianLinearRegression()))


# Okabe and Ito's colours, as in mesu.lab.drawing.style
MODELS = {
    "mesu": Contestant("MESU", "#D55E00", mesu_model),
    "mesu-short": Contestant(
        f"MESU, memory {SHORT:,}", "#8040A8", lambda stream, seed: mesu_model(stream, seed, memory=SHORT)
    ),
    "mesu-line": Contestant(
        "MESU, no hidden layer", "#F4A582", lambda stream, seed: mesu_model(stream, seed, hidden=()), "numbers"
    ),
    "forest": Contestant("River adaptive random forest", "#0072B2", _forest),
    "hoeffding": Contestant("River Hoeffding adaptive tree", "#009E73", _hoeffding),
    "linear": Contestant("River linear model", "#E69F00", _linear),
    "sgd": Contestant("scikit-learn SGD", "#7F7F7F", _sgd),
    "mlp": Contestant("scikit-learn MLP", "#56B4E9", _mlp),
    "ivon": Contestant("IVON, torch", "#CC79A7", IVONPerceptron),
    "squares": Contestant(
        "recursive least squares", "#4D9221", lambda stream, seed: LeastSquares(len(stream.columns)), "numbers"
    ),
    "bayes": Contestant("River Bayesian linear regression", "#B8860B", _bayesian_line, "numbers"),
    "baseline": Contestant("most common class so far", "#1f2328", _baseline),
}


def takes(model: str, stream: Stream) -> bool:
    """Whether a model is for streams of this kind."""
    return MODELS[model].kind in ("both", "numbers" if stream.regression else "classes")


def name_of(model: str, regression: bool) -> str:
    """What a reader calls it."""
    return "mean so far" if model == "baseline" and regression else MODELS[model].label
