"""Vanishing uncertainty (Fig. 4): the experiment and its figures."""
