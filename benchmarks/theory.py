"""The figure of docs/concepts/theory.md, drawn from the rules alone: `python -m benchmarks.theory`.

Four panels: sigma and its timescale, one step of the exact rule beside eq. 9, the pull of the prior beside that of the Bayesian
synapse, and the two forms of eq. 6 beside what they should be.
"""

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesu.lab.drawing.panels import plain_log
from mesu.lab.drawing.style import INK, figure_style
from mesu.rules import Gaussian, bayesian_synapse, curvature, dynamics, mesu

PLACE = Path(__file__).parents[1] / "docs" / "figures" / "theory.png"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def main() -> None:
    """Draw the figure."""
    with figure_style():
        figure = Figure(figsize=(8.6, 6.4), layout="constrained")
        for axes, draw in zip(figure.subplots(2, 2).flat, (course, step, pull, slip), strict=True):
            draw(axes)
            for axis in (axes.xaxis, axes.yaxis):
                if axis.get_scale() == "log":
                    plain_log(axis, *axis.get_view_interval())
        figure.savefig(PLACE, dpi=120)
    print(f"drawn: {PLACE}")


def course(axes: Axes) -> None:
    """Sigma from several starts, by the rule (dots) and by Proposition 5 (lines), in timescales."""
    memory, prior_std, h = 1_000.0, 1.0, 0.05
    t_c = dynamics.timescale(memory)
    times = np.linspace(0, 3 * t_c, 200)
    for first, colour in zip((0.03, 0.3, 1.0), COLOURS, strict=False):
        axes.plot(times / t_c, dynamics.sigma_after(times, first, h, memory, prior_std), color=colour)
        sigmas = _run(first, h, memory, prior_std, int(3 * t_c))
        where = np.arange(0, len(sigmas), 400)
        axes.plot(where / t_c, sigmas[where], "o", color=colour, markersize=3)
    axes.axhline(float(dynamics.resting_std(h, memory, prior_std)), color=INK, linestyle=":", linewidth=0.9)
    axes.set(
        title="sigma from three starts", xlabel="updates, in timescales 2 N / lr_std", ylabel="sigma", yscale="log"
    )


def _run(first: float, h: float, memory: float, prior_std: float, updates: int) -> np.ndarray:
    c = mesu.constants(memory, prior_std=prior_std)
    q, zero = Gaussian(torch.zeros(()), torch.tensor(first, dtype=torch.float64)), torch.zeros(())
    sigmas = [first]
    for _ in range(updates):
        q = mesu.paper(q, Gaussian(zero, h * q.std), c)
        sigmas.append(float(q.std))
    return np.array(sigmas)


def step(axes: Axes) -> None:
    """The new sigma after one example, by how strong its evidence is: eq. 9, the exact step, and Bayes' rule."""
    strength = torch.linspace(0, 6, 200, dtype=torch.float64)  # sigma g_sigma: the curvature in units of the precision
    c = mesu.constants(memory=1e12)
    q, g = Gaussian(0 * strength, 1 + 0 * strength), Gaussian(0 * strength, strength)
    axes.plot(strength, mesu.paper(q, g, c).std, color=COLOURS[1], label="eq. 9")
    axes.plot(strength, mesu.exact(q, g, c).std, color=COLOURS[0], label="exact step")
    known = curvature.step(q, g, mesu.for_curvature(c)).std
    axes.plot(strength, known, color=COLOURS[2], label="curvature known: Bayes' rule")
    axes.axhline(0, color=INK, linewidth=0.9, linestyle=":")
    axes.set(title="one step of sigma", xlabel="sigma g_sigma", ylabel="new sigma / old", ylim=(-1, 1.05))
    axes.legend(frameon=False)


def pull(axes: Axes) -> None:
    """How fast a mean without gradients goes to the prior, by sigma: MESU's clock is its own variance."""
    memory, tau = 1_000.0, 4_000.0
    sigmas = torch.logspace(-1.3, 0, 50, dtype=torch.float64)
    q, none = Gaussian(1 + 0 * sigmas, sigmas), Gaussian(0 * sigmas, 0 * sigmas)
    ours, theirs = (
        rule(q, none, c).mean
        for rule, c in (
            (mesu.paper, mesu.constants(memory)),
            (bayesian_synapse.step, bayesian_synapse.constants(tau)),
        )
    )
    axes.plot(sigmas, 1 - ours, color=COLOURS[0], label="MESU, N = 1,000")
    axes.plot(sigmas, 1 - theirs, color=COLOURS[3], label="Bayesian synapse, tau = 4,000")
    axes.set(
        title="share of the mean forgotten by an update",
        xlabel="sigma / sigma of the prior",
        xscale="log",
        yscale="log",
    )
    axes.legend(frameon=False)


def slip(axes: Axes) -> None:
    """The pull on sigma of the forgetting term as printed in eq. 6, and with its half, beside eq. 9's."""
    memory, prior_std = 1_000.0, 1.0
    sigmas = torch.linspace(0.05, 1, 100, dtype=torch.float64)
    likelihood = 1 / sigmas**2 - 1 / prior_std**2  # 1 / sigma_L^2
    none = Gaussian(0 * sigmas, 0 * sigmas)
    eq_9 = mesu.paper(Gaussian(0 * sigmas, sigmas), none, mesu.constants(memory)).std - sigmas
    # d F / d sigma of the KL term is 2 d_sigma / sigma^2 to first order, so d_sigma = sigma^2 / 2 * the term's slope
    printed = sigmas**2 / 2 * 2 * sigmas * likelihood / memory
    half = sigmas**2 / 2 * sigmas * likelihood / memory
    axes.plot(sigmas, eq_9 * memory, color=COLOURS[0], label="eq. 9", linewidth=3, alpha=0.5)
    axes.plot(sigmas, half * memory, color=INK, linestyle="--", label="from eq. 6 with the half")
    axes.plot(sigmas, printed * memory, color=COLOURS[1], label="from eq. 6 as printed")
    axes.set(title="how forgetting widens sigma", xlabel="sigma / sigma of the prior", ylabel="N times the change")
    axes.legend(frameon=False)


if __name__ == "__main__":
    main()
