"""How many passes a small set needs: held-out log-likelihood and calibration of `MESUClassifier(epochs=...)`, three splits."""

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

import mesu

PASSES = (1, 5, 10, 20)
SETS = {
    "iris": datasets.load_iris(return_X_y=True),
    "wine": datasets.load_wine(return_X_y=True),
    "breast cancer": datasets.load_breast_cancer(return_X_y=True),
    "digits": datasets.load_digits(return_X_y=True),
    "made up": datasets.make_classification(1000, 20, n_informative=8, n_classes=3, flip_y=0.1, random_state=0),
}


def measured(X: np.ndarray, y: np.ndarray, passes: int) -> tuple[float, float]:
    """Negative log-likelihood in nats and calibration error of held-out rows, averaged over the splits."""
    scores = []
    for seed in range(3):
        learned, held_out, classes, truth = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
        probs = mesu.MESUClassifier(epochs=passes, random_state=seed).fit(learned, classes).predict_proba(held_out)
        scores.append(
            (mesu.measures.negative_log_likelihood(probs, truth), mesu.measures.calibration_error(probs, truth))
        )
    nll, calibration = np.mean(scores, axis=0)
    return float(nll), float(calibration)


def main() -> None:
    """Print the table as Markdown."""
    print(f"| set | {' | '.join(f'{n} passes' if n > 1 else '1 pass' for n in PASSES)} |")
    print("|---" * (len(PASSES) + 1) + "|")
    for name, (X, y) in SETS.items():
        cells = (f"{nll:.3f}, {calibration:.3f}" for nll, calibration in (measured(X, y, n) for n in PASSES))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
