"""River models and a drift detector, as `mesu.river`; they live in `mesu.online`."""

from mesu.online.drift import DriftRetrainingClassifier, EpistemicDrift
from mesu.online.river import MESUClassifier, MESURegressor

__all__ = ["DriftRetrainingClassifier", "EpistemicDrift", "MESUClassifier", "MESURegressor"]
