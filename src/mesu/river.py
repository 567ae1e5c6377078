"""River models and a drift detector, as `mesu.river`; they live in `mesu.integrations.river`."""

from mesu.integrations.river import EpistemicDrift, MESUClassifier, MESURegressor

__all__ = ["EpistemicDrift", "MESUClassifier", "MESURegressor"]
