"""mesu: Bayesian continual learning and forgetting for PyTorch.

net = mesu.Bayesian(nn.Sequential(nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10)))
opt = mesu.MESU(net, memory=300_000)
for x, y in stream:
    net.nll(x, y).backward()
    opt.step(); opt.zero_grad()
p = mesu.predict(net, x, samples=100)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mesu import measures, rules
from mesu.engine import EngineFallback
from mesu.health import LearningWarning
from mesu.learners import BayesianLearner, WeightLearner
from mesu.memory import MemoryReport, memory_for, memory_report
from mesu.merging import merge
from mesu.monitor import MLflow, Monitor, TensorBoard
from mesu.online.alarm import DriftAlarm, Signals
from mesu.online.keyed import Keyed
from mesu.online.loading import load
from mesu.optim import EWC, FOOVB, MESU, SI, BayesByBackprop, BayesianSynapse, EWCOnline, EWCStream, StepRefused
from mesu.posterior.bayesian import Bayesian, Pair
from mesu.posterior.predictor import predictor
from mesu.posterior.replicas import Cost
from mesu.prediction import Prediction, RegressionPrediction, predict
from mesu.replay import Replay
from mesu.version import __version__

if TYPE_CHECKING:
    from mesu.online.sklearn import MESUClassifier, MESURegressor

__all__ = [
    "EWC",
    "FOOVB",
    "MESU",
    "SI",
    "BayesByBackprop",
    "Bayesian",
    "BayesianLearner",
    "BayesianSynapse",
    "Cost",
    "DriftAlarm",
    "EWCOnline",
    "EWCStream",
    "EngineFallback",
    "Keyed",
    "LearningWarning",
    "MESUClassifier",
    "MESURegressor",
    "MLflow",
    "MemoryReport",
    "Monitor",
    "Pair",
    "Prediction",
    "RegressionPrediction",
    "Replay",
    "Signals",
    "StepRefused",
    "TensorBoard",
    "WeightLearner",
    "__version__",
    "load",
    "measures",
    "memory_for",
    "memory_report",
    "merge",
    "predict",
    "predictor",
    "rules",
]


def __getattr__(name: str) -> Any:
    # scikit-learn, polars and River take a second to import, or are not there: only those who ask for them wait
    if name in ("MESUClassifier", "MESURegressor"):
        from mesu.online import sklearn as estimators

        return getattr(estimators, name)
    if name in ("data", "river", "streams"):
        try:
            return import_module(f"mesu.{name}")
        except ImportError as error:  # says which package to install; an attribute must not raise anything else
            raise AttributeError(str(error)) from error
    raise AttributeError(f"module 'mesu' has no attribute {name!r}")
