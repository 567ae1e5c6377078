"""CIFAR (Fig. 5): the experiment and its figures."""
