"""The paper's numbers, for comparison with ours, by the label of an entry: accuracies as fractions."""

from mesu.lab.entry import Entry

# Fig. 3, 200 tasks, 50 hidden units, five seeds
PERMUTED_MNIST = {
    "mesu": {"last_five_accuracy": 0.9134, "newest_accuracy": 0.9468, "ood_auroc": 0.94, "rigidity": 328.0},
    "ewc-online": {"last_five_accuracy": 0.8854, "newest_accuracy": 0.9275, "ood_auroc": 0.87, "rigidity": 49.0},
    "si": {"last_five_accuracy": 0.8696, "newest_accuracy": 0.9109, "ood_auroc": 0.87, "rigidity": 27.0},
    "foo-vb": {"last_five_accuracy": 0.6866, "newest_accuracy": 0.6880, "ood_auroc": 0.61, "rigidity": 3.8},
    "ewc-stream": {"last_five_accuracy": 0.6573, "newest_accuracy": 0.9330, "ood_auroc": 0.90, "rigidity": 68.0},
    "sgd": {"last_five_accuracy": 0.5536, "newest_accuracy": 0.9310, "ood_auroc": 0.86, "rigidity": 60.0},
    # the study of N, width 50
    "mesu-180000": {"last_five_accuracy": 0.869},
    "mesu-300000": {"last_five_accuracy": 0.913},
    "mesu-600000": {"last_five_accuracy": 0.895},
    "mesu-1200000": {"last_five_accuracy": 0.874},
    "mesu-2400000": {"last_five_accuracy": 0.841},
    "mesu-inf": {"last_five_accuracy": 0.693},  # N = 1e15
}

# mean over all tasks seen so far, after so many tasks
PERMUTED_MNIST_ALL_TASKS = {
    "mesu": {10: 0.794, 50: 0.319, 100: 0.212, 199: 0.152},
    "foo-vb": {10: 0.863, 50: 0.576, 100: 0.472, 199: 0.400},
}

# Fig. 4, MNIST, 1,000 epochs, one run; its AUROC is by 1,000 thresholds
VANISHING = {
    "mesu-180000": {"published_auroc": 0.997, "layer_std": 0.037, "accuracy": 0.977},
    "mesu-1e+15": {"published_auroc": 0.727, "layer_std": 0.009},
    "foo-vb": {"published_auroc": 0.731},
    "ewc-stream": {"published_auroc": 0.912},
    "sgd": {"published_auroc": 0.915},
}

# Supplementary Note 1: Pearson correlation with the true Hessian's diagonal after so many steps
HESSIAN = {
    "mesu": {1_000: 0.957, 10_000: 0.951, 100_000: 0.985, 1_000_000: 0.989},
    "foo-vb": {1_000: 0.960, 10_000: 0.968, 100_000: 0.982, 1_000_000: 0.992},
    "ewc": {1_000: 0.984, 10_000: 0.986, 100_000: 0.988, 1_000_000: 0.940},
    "si": {1_000: 0.985, 10_000: 0.960, 100_000: 0.901, 1_000_000: 0.797},
}

# Fig. 2, fifty draws, the paper's own features
ANIMALS = {
    "mesu-paper": {"all_tasks_accuracy": 0.930, "newest_accuracy": 0.971, "ood_auroc": 0.860},
    "sgd-0.005": {"all_tasks_accuracy": 0.790, "newest_accuracy": 0.981, "ood_auroc": 0.680},
}

# Fig. 5, mean over the eleven tasks at the end, one seed
CIFAR = {
    Entry(learner, "splits", splits).label: {"mean_accuracy": value / 100}
    for learner, values in {
        "mesu": (73.5, 74.2, 71.8, 70.9, 70.0),
        "ewc": (71.9, 68.0, 63.5, 56.0, 53.4),
        "si": (71.2, 67.6, 61.5, 56.8, 53.8),
        "adam": (56.0, 66.4, 68.4, 68.2, 67.7),
    }.items()
    for splits, value in zip((1, 2, 4, 8, 16), values, strict=True)
}

PAPER = {
    "cifar": CIFAR,
    "animals": ANIMALS,
    "permuted-mnist": PERMUTED_MNIST,
    "vanishing": VANISHING,
    "hessian": {
        learner: {f"pearson_{steps}": value for steps, value in values.items()} for learner, values in HESSIAN.items()
    },
}

# what the report says beside the paper's numbers
NOTES = {
    "animals": "The paper's features are not public in full: ResNet18's are made anew here, close to them and not the same, "
    "and EfficientNet-Lite0's are another network's.",
}


def paper_number(experiment: str, learner: str, measure: str) -> float | None:
    """The paper's value of a measure at the end of its full-scale run; None where it gives none."""
    return PAPER.get(experiment, {}).get(learner, {}).get(measure)
