"""Measures: continual-learning scores of an accuracy matrix, out-of-distribution detection, calibration.

The accuracy matrix ``A`` has a row for each task learned and a column for each task tested: ``A[i, j]`` is the accuracy on
task j after learning task i, NaN where it was not measured. ``T`` is the last row.
"""

import numpy as np

Array = np.ndarray


def _matrix(accuracy) -> Array:
    a = np.asarray(accuracy, dtype=float)
    if a.ndim != 2 or a.shape[0] == 0 or a.shape[1] < a.shape[0]:
        raise ValueError(f"an accuracy matrix needs a row per task learned and a column per task, got shape {a.shape}")
    return a


def average_accuracy(accuracy) -> float:
    """Mean over all tasks learned so far of the accuracy at the end: mean_j A[T, j], j <= T."""
    a = _matrix(accuracy)
    return float(np.mean(a[-1, : a.shape[0]]))


def window_accuracy(accuracy, window: int = 5) -> float:
    """Mean accuracy at the end on the last `window` tasks learned: the paper's "last five", inside the memory."""
    a = _matrix(accuracy)
    if window < 1:
        raise ValueError(f"window must be 1 task or more, got {window!r}")
    return float(np.mean(a[-1, : a.shape[0]][-window:]))


def running_window_accuracy(accuracy, window: int = 5) -> float:
    """Mean of `window_accuracy` after every task from the `window`-th on: the average over the whole stream.

    It varies less between seeds than the one number at the end, which depends on a few tasks.
    """
    a = _matrix(accuracy)
    if not window >= 1:
        raise ValueError(f"window must be 1 task or more, got {window!r}")
    first = min(window, len(a))
    return float(np.mean([window_accuracy(a[:rows], window) for rows in range(first, len(a) + 1)]))


def newest_accuracy(accuracy) -> float:
    """Accuracy on the task just learned, at the end: A[T, T]."""
    a = _matrix(accuracy)
    return float(a[-1, a.shape[0] - 1])


def plasticity(accuracy) -> float:
    """Mean accuracy on each task right after learning it: mean_j A[j, j]. Falls when a network becomes unable to learn."""
    return float(np.mean(np.diagonal(_matrix(accuracy))))


def forgetting(accuracy) -> float:
    """Mean over earlier tasks of the best accuracy ever reached minus the accuracy at the end (Chaudhry et al., 2018).

    The best is over the measured values only: if old tasks are tested rarely, the true best may be higher. NaN if a task was
    never tested before the end, or not at the end.
    """
    a = _matrix(accuracy)
    if a.shape[0] < 2:
        return 0.0
    earlier = a.shape[0] - 1
    # on task j, only rows from j on: before that it had not been learned; fmax ignores NaN without a warning
    best = [np.fmax.reduce(a[j:-1, j]) for j in range(earlier)]
    return float(np.mean(best - a[-1, :earlier]))


def backward_transfer(accuracy) -> float:
    """Mean over earlier tasks of A[T, j] - A[j, j]: below zero when later tasks hurt (Lopez-Paz and Ranzato, 2017)."""
    a = _matrix(accuracy)
    if a.shape[0] < 2:
        return 0.0
    earlier = a.shape[0] - 1
    return float(np.mean(a[-1, :earlier] - np.diagonal(a)[:earlier]))


def forward_transfer(accuracy, baseline) -> float:
    """Mean over later tasks of the accuracy just *before* learning them, minus `baseline` (an untrained network's).

    Args:
        accuracy: The matrix, measured on the next task too: A[j - 1, j] must be there.
        baseline: Accuracy of the untrained network on each task, or one number (chance).
    """
    a = _matrix(accuracy)
    if a.shape[0] < 2:
        return 0.0
    base = np.broadcast_to(np.asarray(baseline, dtype=float), a.shape[1:])
    ahead = [a[j - 1, j] - base[j] for j in range(1, a.shape[0])]
    if np.isnan(ahead).any():
        raise ValueError(
            "forward transfer needs the accuracy on each task before it is learned: A[j - 1, j] is missing"
        )
    return float(np.mean(ahead))


def memory_rigidity(accuracy) -> float:
    """1 / |A[0, 0] - A[T, T]|: large when the last task is learned as well as the first was (Fig. 3c)."""
    diagonal = np.diagonal(_matrix(accuracy))
    gap = abs(float(diagonal[0] - diagonal[-1]))
    return float("inf") if gap == 0 else 1.0 / gap


def auroc(inside, outside) -> float:
    """How well an uncertainty detects outliers: P(outside > inside) + P(equal)/2, computed exactly from ranks.

    Args:
        inside: Uncertainty of in-distribution examples.
        outside: Uncertainty of out-of-distribution examples.
    """
    inside, outside = (np.asarray(values, dtype=float).ravel() for values in (inside, outside))
    if inside.size == 0 or outside.size == 0:
        raise ValueError(f"AUROC needs examples of both kinds, got {inside.size} inside and {outside.size} outside")
    if np.isnan(inside).any() or np.isnan(outside).any():
        raise ValueError("AUROC cannot rank NaN: the uncertainty of some example is not a number")
    ordered = np.sort(inside)
    # for each outlier, the insiders below it, and half of those equal to it
    below = np.searchsorted(ordered, outside, side="left").sum()
    up_to = np.searchsorted(ordered, outside, side="right").sum()
    return float((below + up_to) / 2 / (inside.size * outside.size))


def auroc_by_thresholds(inside, outside, thresholds) -> float:
    """The area under a ROC curve through a few thresholds: often published, and usually lower than `auroc`.

    Uncertainties between the same two thresholds count as equal. An overconfident network has all of them below the first
    threshold: its value is then 0.5, even if the exact ranks separate outliers well.

    Args:
        inside: Uncertainty of in-distribution examples.
        outside: Uncertainty of out-of-distribution examples.
        thresholds: Above each of them an example counts as an outlier.
    """
    edges = np.sort(np.asarray(thresholds, dtype=float).ravel())
    if edges.size == 0:
        raise ValueError("there must be a threshold, got none")
    return auroc(*(np.searchsorted(edges, np.asarray(values, dtype=float).ravel()) for values in (inside, outside)))


def _probabilities(probs, labels) -> tuple[Array, Array]:
    probs, labels = np.asarray(probs, dtype=float), np.asarray(labels)
    if probs.ndim != 2 or labels.shape != probs.shape[:1] or labels.size == 0:
        raise ValueError(f"need probabilities [B, C] and labels [B], got {probs.shape} and {labels.shape}")
    if labels.min() < 0 or labels.max() >= probs.shape[1]:
        raise ValueError(f"labels must be between 0 and {probs.shape[1] - 1}, got {labels.min()} to {labels.max()}")
    return probs, labels


def accuracy(probs, labels) -> float:
    """Share of rows whose most probable class is the label."""
    probs, labels = _probabilities(probs, labels)
    return float(np.mean(probs.argmax(1) == labels))


def calibration_error(probs, labels, bins: int = 15) -> float:
    """Expected calibration error: confidence minus accuracy, in absolute value, averaged over equal-width bins."""
    probs, labels = _probabilities(probs, labels)
    if bins < 1:
        raise ValueError(f"bins must be 1 or more, got {bins!r}")
    confidence = probs.max(1)
    right = probs.argmax(1) == labels
    # bin i holds the confidences in (i/bins, (i+1)/bins]
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gap = np.bincount(index, confidence - right, minlength=bins)
    return float(np.abs(gap).sum() / labels.size)


def brier_score(probs, labels) -> float:
    """Mean squared distance between the probabilities and the one-hot label; 0 is perfect, 2 the worst."""
    probs, labels = _probabilities(probs, labels)
    target = np.zeros_like(probs)
    target[np.arange(labels.size), labels] = 1.0
    return float(np.mean(((probs - target) ** 2).sum(1)))


def negative_log_likelihood(probs, labels) -> float:
    """Mean of -log p(label), in nats; infinite when a label was given no probability at all."""
    probs, labels = _probabilities(probs, labels)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(probs[np.arange(labels.size), labels])))
