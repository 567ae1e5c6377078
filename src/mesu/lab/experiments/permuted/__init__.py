"""Permuted digits and Permuted MNIST (Fig. 3): the experiment and its figures."""
