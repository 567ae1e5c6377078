"""River models and a drift detector, as `mesu.river`; they live in `mesu.online.river`."""

from mesu.online.river import EpistemicDrift, MESUClassifier, MESURegressor

__all__ = ["EpistemicDrift", "MESUClassifier", "MESURegressor"]
