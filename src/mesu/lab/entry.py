"""An entry of an experiment: a learner, the one setting that a study varies, and the label that stands for both."""

import re
from dataclasses import dataclass, field

# How a label is made from a learner and the value of one setting. Settings that are not named here: learner-setting-value.
LABELS = {
    "memory": "{learner}-{value}",  # mesu-300000
    "sgd_lr": "{learner}-{value}",  # sgd-0.005
    "init_scale": "{learner}-start-{value}",  # mesu-start-0.2
    "splits": "{learner}@{value}",  # mesu@16
}
# The labels above, read back: a table holds the label only.
READ = {
    "memory": re.compile(r"(mesu)-([^-].*)"),
    "sgd_lr": re.compile(r"(sgd)-(.+)"),
    "init_scale": re.compile(r"(mesu)-start-(.+)"),
    "splits": re.compile(r"(.+)@(.+)"),
}


@dataclass(frozen=True)
class Entry:
    """One learner of an experiment, under one value of the setting that is varied, if one is.

    Example:
        >>> Entry("sgd").label, Entry("mesu", "memory", 300_000).label, Entry("mesu", "splits", 16).label
        ('sgd', 'mesu-300000', 'mesu@16')
        >>> Entry.read("mesu@16")
        Entry(learner='mesu', setting='splits', value=16.0)
    """

    learner: str  # which learner: the name that the experiment's settings use
    setting: str | None = None  # the setting that differs between entries of the same learner; None where none does
    value: float | None = None  # its value
    # how long a trial takes, relative to the experiment's other entries: the longest are started first
    cost: float = field(default=1.0, compare=False, repr=False)

    @property
    def label(self) -> str:
        """The name in tables, and in the names of a run's folders."""
        if self.setting is None:
            return self.learner
        form = LABELS.get(self.setting, f"{{learner}}-{self.setting}-{{value}}")
        return form.format(learner=self.learner, value=f"{self.value:.15g}")

    def get(self, setting: str, default: float) -> float:
        """The value of a setting in this entry, or the default where the entry does not vary it."""
        return default if self.setting != setting or self.value is None else self.value

    @classmethod
    def read(cls, label: str) -> "Entry":
        """The entry that a table's label stands for. A label without a setting is a learner's name."""
        for setting, pattern in READ.items():
            if match := pattern.fullmatch(label):
                try:
                    return cls(match[1], setting, float(match[2]))
                except ValueError:  # not a number: part of the learner's name
                    continue
        return cls(label)
