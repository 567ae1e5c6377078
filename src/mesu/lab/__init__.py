"""The lab: the paper's experiments, their data, runs, reports and the `mesu` command. Needs `mesu[lab]`."""
