"""Sigma over time (Proposition 5): the experiment and its figures."""
