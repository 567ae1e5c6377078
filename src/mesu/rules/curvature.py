"""Sigma's gradient where the curvature h of the cost is known, and not drawn: the estimator "linear".

By Stein's lemma g_sigma = sigma E[H]. A rule solves implicit equations: the gradient that it asks for is the one at the sigma
after the step. Drawn gradients are only known at the old sigma. A curvature is the same at both, so here it can be given,

    g_sigma = sigma' h        1/sigma'^2 = 1/sigma^2 + h

and without forgetting the exact step is Bayes' rule.
"""

from mesu.rules.primitives import between, root

# sigma^2 h at most: one update may narrow sigma by a factor of a thousand million, as in `mesu.rules.mesu`
LIMIT = 1e18


def gradient_of_sigma(std, h):
    """The gradient at the sigma that the evidence leaves."""
    evidence = between(std * std * h, 0.0, LIMIT)
    return evidence / (std * root(1.0 + evidence))
