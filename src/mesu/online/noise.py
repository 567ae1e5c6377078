"""The noise of a stream's targets, from how far its last predictions were off, each before its row was learned.

A squared error is noise and the network's own uncertainty together: e for the mean of recent errors, u for that of recent
epistemic variances. The weights learn with noise of max(e, u): a target that is trusted more than the network itself makes
them leap. What is reported of a prediction adds up to e on average, so that intervals hold what they say:

    aleatoric = max(e - u, 0.3 e)        epistemic variances times min(1, 0.7 e / u)
"""

import numpy as np

LEAST = 1e-3  # noise of a target, in units of its spread: a stream without noise must not stop the weights
# Rows. Noise that has grown shows in the few, before it does in the many.
MANY, FEW = 256, 64
ANEW = 32  # errors that count from before the noise was estimated anew: those that it was estimated from
LEAST_ALEATORIC = 0.3  # as a share of e
TINY = 1e-12


def of_all(errors: np.ndarray, epistemic: np.ndarray) -> float:
    """The noise over the whole window."""
    return max(float(errors.mean()), float(epistemic.mean()), LEAST**2) ** 0.5


def of_recent(errors: np.ndarray, epistemic: np.ndarray, since: int) -> float:
    """The noise now, from the errors and epistemic variances of the last rows.

    Args:
        errors: Squared.
        epistemic: Variances.
        since: Rows since the noise was last found anew.
    """
    return max(*_means(errors, epistemic, since), LEAST**2) ** 0.5


def reported(errors: np.ndarray, epistemic: np.ndarray, since: int) -> tuple[float, float]:
    """The aleatoric variance that predictions report, and what their epistemic variances are multiplied by."""
    e, u = _means(errors, epistemic, since)
    e = max(e, TINY)
    return max(e - u, LEAST_ALEATORIC * e), min(1.0, (1 - LEAST_ALEATORIC) * e / max(u, TINY))


def _means(errors: np.ndarray, epistemic: np.ndarray, since: int) -> tuple[float, float]:
    many = errors[-min(MANY, ANEW + since) :]
    own = epistemic[-min(ANEW, since) :] if since else np.zeros(1)  # of the weights as they are, not as they were
    few = errors[-FEW:] if len(many) >= FEW else many
    return max(float(many.mean()), float(few.mean())), float(own.mean())
