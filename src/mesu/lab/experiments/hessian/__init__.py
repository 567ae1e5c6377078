"""Sigma against curvature (Supplementary Note 1): the experiment and its figures."""
