"""Learning rules: one rule, one file, plain arithmetic.

A rule is a pure elementwise function written with operators (and two `primitives`) beside the equation it
implements, so the same lines run on torch tensors (`mesu.optim`) and, compiled, on scalars (`mesu.engine`). Two shapes of rule:

- a *posterior* rule moves a Gaussian: ``step(q, g, c) -> Gaussian``, with ``q`` the means and standard deviations,
  ``g`` the gradients with respect to each, ``c`` the rule's `Constants`;
- a *weight* rule moves a plain weight: ``step(w, g, state, c) -> (w, State)``, with ``initial(w)`` the state to start
  from and, for rules that are told of task boundaries, ``consolidate(...) -> State``. Rules that only add a penalty to the
  gradient give the sum as ``penalised(w, g, state, c)``, which any optimiser can follow, and ``followed(...) -> State`` if
  they record the path of the weight.

Every file gives its parts in the same order: the equations, `Constants` with the function that builds and checks it,
`State` where there is one, `step`, `consolidate`. `mesu.rules.parts` lists them all. The type of its `Constants` identifies a
rule, wherever it is defined; `POSTERIOR_RULES` and `WEIGHT_RULES` are catalogues of those that come with the library.
"""

from mesu.rules import (
    bayes_by_backprop,
    bayesian_synapse,
    bounds,
    curvature,
    dynamics,
    ewc,
    ewc_online,
    ewc_stream,
    foovb,
    mesu,
    mesu_paper,
    newton,
    paced,
    parts,
    primitives,
    sgd,
    si,
    si_per_task,
)
from mesu.rules.gaussian import Gaussian

POSTERIOR_RULES = {
    "mesu-paper": mesu.paper,
    "mesu-exact": mesu.exact,
    "mesu-exact-plain": mesu.exact_plain,
    "foo-vb": foovb.step,
    "newton": newton.step,
    "bayes-by-backprop": bayes_by_backprop.step,
    "bayesian-synapse": bayesian_synapse.step,
}
WEIGHT_RULES = {
    "sgd": sgd,
    "ewc": ewc,
    "ewc-online": ewc_online,
    "ewc-stream": ewc_stream,
    "si": si,
    "si-per-task": si_per_task,
}

__all__ = [
    "POSTERIOR_RULES",
    "WEIGHT_RULES",
    "Gaussian",
    "bayes_by_backprop",
    "bayesian_synapse",
    "bounds",
    "curvature",
    "dynamics",
    "ewc",
    "ewc_online",
    "ewc_stream",
    "foovb",
    "mesu",
    "mesu_paper",
    "newton",
    "paced",
    "parts",
    "primitives",
    "sgd",
    "si",
    "si_per_task",
]
