"""Notices that gradients have been clipped by their norm, which leaves little of a cost that is a sum over the batch."""

import warnings
from typing import Any

import torch

STEPS = 5  # clipped in a row, before it is said
WATCHED = 200  # steps: the norm of a sum is largest at the beginning, so that a clipped one is clipped there
SAME = 1e-5  # relative: clip_grad_norm_ leaves a total norm within 1e-6 of what it was told
MOVED = 1e-3  # relative: by how much the gradients themselves have to differ meanwhile


class ClippingWatch:
    """Says once that gradients are clipped: their total norm is the same in every step, and they themselves are not."""

    def __init__(self) -> None:
        self.left = WATCHED
        self.norms: list[tuple[float, float]] = []  # of the last steps: in total, and the means' share

    def see(self, groups: list[dict[str, Any]]) -> None:
        """Look at the gradients of a step."""
        if self.left == 0 or torch.compiler.is_compiling():
            return
        self.left -= 1
        means = [p.grad for group in groups for p in group["params"][::2] if p.grad is not None]
        stds = [p.grad for group in groups for p in group["params"][1::2] if p.grad is not None]
        if not means or not stds:
            return
        mean, std = _norm(means), _norm(stds)
        total = (mean**2 + std**2) ** 0.5
        self.norms = [*self.norms[1 - STEPS :], (total, mean)]
        if len(self.norms) == STEPS and _same(self.norms):
            self.left = 0
            warnings.warn(
                f"the gradients of the last {STEPS} steps all have the norm {total:.6g}: they seem to be clipped. The cost is "
                "a sum over the batch, of which clipping leaves little, and the network hardly learns. Switch clipping off "
                "(clip_grad_norm_, gradient_clip_val=None in Lightning, max_grad_norm=0 in the Trainer of transformers): "
                "max_step bounds every step already, in sigmas",
                stacklevel=5,
            )


def _norm(gradients: list[torch.Tensor]) -> float:
    return float(sum(torch.linalg.vector_norm(g.detach()).item() ** 2 for g in gradients) ** 0.5)


def _same(norms: list[tuple[float, float]]) -> bool:
    totals, shares = zip(*norms, strict=True)
    constant = 0 < max(totals) < float("inf") and max(totals) - min(totals) <= SAME * max(totals)
    return constant and max(shares) - min(shares) > MOVED * max(totals)
