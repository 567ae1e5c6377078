"""River models and drift detectors, as `mesu.river`; they live in `mesu.online`."""

from mesu.online.drift import DriftAlarm, DriftRetrainingClassifier, EpistemicDrift
from mesu.online.river import MESUClassifier, MESURegressor

__all__ = ["DriftAlarm", "DriftRetrainingClassifier", "EpistemicDrift", "MESUClassifier", "MESURegressor"]
