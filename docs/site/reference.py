"""The API reference: a page for each group of public names, from their docstrings."""

from pathlib import Path
from typing import NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).parents[2] / "src"


class Group(NamedTuple):
    """A page of the reference."""

    title: str
    about: str
    names: tuple[str, ...]  # modules with all of their public names, or single names


GROUPS = {
    "posterior": Group(
        "Posterior", "A network whose weights are Gaussians.", ("mesu.Bayesian", "mesu.Pair", "mesu.Cost")
    ),
    "prediction": Group(
        "Prediction",
        "Averages over drawn networks, with their uncertainty.",
        ("mesu.predict", "mesu.predictor", "mesu.Prediction", "mesu.RegressionPrediction"),
    ),
    "optimisers": Group(
        "Optimisers",
        "Learning rules as `torch.optim` optimisers.",
        (
            *("mesu.MESU", "mesu.FOOVB", "mesu.BayesByBackprop", "mesu.BayesianSynapse"),
            *("mesu.EWC", "mesu.EWCOnline", "mesu.EWCStream", "mesu.SI", "mesu.optim.SIPerTask", "mesu.optim.SGD"),
            *("mesu.StepRefused", "mesu.optim.PosteriorOptimizer", "mesu.optim.WeightOptimizer"),
        ),
    ),
    "memory": Group(
        "Memory",
        "How long to remember, what is still remembered, and what keeps a network from learning.",
        ("mesu.MemoryReport", "mesu.memory_for", "mesu.memory_report", "mesu.LearningWarning"),
    ),
    "monitor": Group(
        "Monitor",
        "Numbers of a training loop, in TensorBoard, MLflow or a function of your own.",
        ("mesu.Monitor", "mesu.TensorBoard", "mesu.MLflow"),
    ),
    "learners": Group(
        "Learners",
        "A stream in chunks, compiled where it can be.",
        ("mesu.BayesianLearner", "mesu.WeightLearner", "mesu.Replay", "mesu.learners.Learner"),
    ),
    "estimators": Group(
        "scikit-learn estimators",
        "A model that lives on a stream, behind scikit-learn's interface.",
        ("mesu.MESUClassifier", "mesu.MESURegressor", "mesu.load", "mesu.DriftAlarm", "mesu.Signals"),
    ),
    "river": Group("River", "The same models behind River's interface, and drift detectors.", ("mesu.river",)),
    "merging": Group(
        "Merging, and a model a key",
        "Models that learned apart become one; many small models share a base.",
        ("mesu.merge", "mesu.Keyed"),
    ),
    "avalanche": Group("Avalanche", "A posterior in Avalanche's strategies.", ("mesu.avalanche",)),
    "rules": Group("Rules", "The arithmetic of each learning rule, beside its equations.", ("mesu.rules",)),
    "measures": Group("Measures", "Forgetting, transfer, calibration, AUROC.", ("mesu.measures",)),
    "streams": Group("Streams", "Sequences of tasks.", ("mesu.streams",)),
    "data": Group("Data sets", "Data sets, fetched and checked.", ("mesu.data",)),
    "engine": Group(
        "Engine",
        "The compiled loop for perceptrons on the CPU.",
        (
            *("mesu.EngineFallback", "mesu.engine.PosteriorEngine", "mesu.engine.WeightEngine"),
            *("mesu.engine.learn_together", "mesu.engine.why_not", "mesu.engine.compiled"),
        ),
    ),
    "testing": Group(
        "Testing",
        "Contract checks for rules, learners and streams of your own.",
        ("mesu.testing", "mesu.learners.contract.check_learner", "mesu.lab.stream_contract.check_stream"),
    ),
}
WITH_SUBMODULES = ("mesu.rules",)
BELOW_THE_GUIDES = "---\nsearch:\n  boost: 0.5\n---\n"  # in the results of a search


def groups() -> dict[str, Group]:
    """The groups whose module is there."""
    return {page: group for page, group in GROUPS.items() if _exists(group.names[0])}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages in the navigation."""
    for section in config.nav or []:
        if "Reference" in section:
            pages = [{group.title: f"reference/{page}.md"} for page, group in groups().items()]
            section["Reference"] = ["reference/index.md", *pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Write the pages."""
    lines = ["# Reference\n", "Every public name, with its docstring.\n", "| page | what | names |", "|---|---|---|"]
    for page, group in groups().items():
        parts = [BELOW_THE_GUIDES, f"# {group.title}\n", f"{group.about}\n"]
        for name in group.names:
            parts.append(f"::: {name}")
            if name in WITH_SUBMODULES:
                parts.append("    options: {show_submodules: true}")
            parts.append("")
        files.append(File.generated(config, f"reference/{page}.md", content="\n".join(parts)))
        names = ", ".join(f"[`{name}`][{name}]" for name in group.names)
        lines.append(f"| [{group.title}]({page}.md) | {group.about} | {names} |")
    lines += ["", "::: mesu.__version__"]
    files.append(File.generated(config, "reference/index.md", content="\n".join(lines)))
    return files


def _exists(name: str) -> bool:
    if name.count(".") != 1 or name.split(".")[1][0].isupper():
        return True
    path = SOURCE / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file() or name in ("mesu.predict", "mesu.load", "mesu.merge")
