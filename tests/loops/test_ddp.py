"""DistributedDataParallel: two processes with half a batch each are one process with the whole."""

import copy

import pytest
import torch
from tests.loops.processes import run

import mesu

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="torch was built without gloo",
)

START = """
import copy, os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import mesu
from mesu.posterior import Categorical

torch.set_num_threads(1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=world)
torch.manual_seed(0)


class Likeliest(Categorical):
    '''Its drawn labels are the likeliest ones, so that they do not depend on who draws them.'''

    def sample(self, out, noise):
        return out.argmax(1)


def perceptron():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def moved(net, cost, rows, labels, steps=3):
    opt = mesu.MESU(net, memory=1000)
    for _ in range(steps):
        cost(rows, labels).backward()
        opt.step()
        opt.zero_grad()


def same_everywhere(net):
    for parameter in net.parameters():
        others = [torch.empty_like(parameter) for _ in range(world)]
        dist.all_gather(others, parameter.detach())
        assert all(torch.equal(parameter, other) for other in others)


x, y = torch.randn(8, 4).double(), torch.randint(3, (8,))
mine = slice(4 * rank, 4 * rank + 4)
module = perceptron()
"""
END = """
dist.barrier()
dist.destroy_process_group()
print("done")
"""

WHOLE = """
alone = mesu.Bayesian(module, likelihood=Likeliest(), seed=0)
net = copy.deepcopy(alone)
moved(alone, alone.nll, x, y)
ddp = DDP(mesu.Cost(net))
cost = ddp(x[mine], y[mine])
assert torch.equal(cost, net.nll(x[mine], y[mine]))  # its value is that of this process's rows
moved(ddp.module.net, ddp, x[mine], y[mine])
for one, other in zip(alone.parameters(), net.parameters(), strict=True):
    assert torch.allclose(one, other, rtol=1e-6, atol=1e-9), (one - other).abs().max()
same_everywhere(net)
"""


def test_two_processes_with_half_a_batch_each_step_as_one_with_the_whole():
    assert all("done" in printed for printed in run(START + WHOLE + END))


NOISE = """
net = mesu.Bayesian(module, estimator=ESTIMATOR, seed=0)
ranks = [copy.deepcopy(net) for _ in range(world)]  # on one process, with the noises of all ranks
ddp = DDP(mesu.Cost(net))
opt, at_once = mesu.MESU(net, memory=1000), [mesu.MESU(each, memory=1000) for each in ranks]
for step in range(3):
    ddp(x[mine], y[mine], samples=2).backward()
    states = [None] * world
    if step == 0:  # what each process has drawn with follows from here
        ddp.zero_grad()
        dist.all_gather_object(states, net.noise.state)
        for each, state in zip(ranks, states, strict=True):
            each.noise.state = state
        assert not torch.equal(*[each.noise.normal((5,)) for each in copy.deepcopy(ranks)]), "the same noise on both"
        continue
    for number, each in enumerate(ranks):
        each.nll(x[4 * number : 4 * number + 4], y[4 * number : 4 * number + 4], samples=2).backward()
    for parameters in zip(*[each.parameters() for each in ranks], strict=True):
        total = sum(parameter.grad for parameter in parameters)
        for parameter in parameters:
            parameter.grad = total.clone()
    for each in (opt, *at_once):
        each.step()
        each.zero_grad()
    for one, other in zip(ranks[0].parameters(), net.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-9), (one - other).abs().max()
same_everywhere(net)
"""


@pytest.mark.parametrize("estimator", ["linear", "local", "weights"])
def test_processes_draw_noise_of_their_own_and_stay_equal(estimator):
    run(START + NOISE.replace("ESTIMATOR", repr(estimator)) + END)


PAST = """
ddp = DDP(mesu.Bayesian(module, seed=0))
try:
    ddp.module.nll(x[mine], y[mine])
except RuntimeError as error:
    assert "goes past it" in str(error) and "ddp = DistributedDataParallel(mesu.Cost(net))" in str(error), error
else:
    raise AssertionError("nll past DDP was not refused")
with torch.no_grad():
    ddp.module.nll(x[mine], y[mine])
assert (mesu.predict(ddp, x[mine], samples=5).epistemic > 0).all()


class Step(nn.Module):
    '''As the frameworks have it: the cost is made inside of a forward that is not the network's.'''

    def __init__(self):
        super().__init__()
        self.net = mesu.Bayesian(module, likelihood=Likeliest(), seed=0)

    def forward(self, rows, labels):
        return self.net.nll(rows, labels)


alone, step = mesu.Bayesian(module, likelihood=Likeliest(), seed=0), Step()
step.net.load_state_dict(alone.state_dict())
moved(alone, alone.nll, x, y)
moved(step.net, DDP(step), x[mine], y[mine])
for one, other in zip(alone.parameters(), step.net.parameters(), strict=True):
    assert torch.allclose(one, other, rtol=1e-6, atol=1e-9)
"""


def test_a_cost_that_goes_past_ddp_is_refused_and_one_inside_of_another_network_is_not():
    run(START + PAST + END)


SHARDED = """
from torch.distributed.fsdp import fully_shard

# the first axis of every parameter is cut evenly: 6 and 4 rows on 2 processes
module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)).double()
alone = mesu.Bayesian(module, likelihood=Likeliest(), seed=0)
net = copy.deepcopy(alone)
moved(alone, alone.nll, x, y)
cost = mesu.Cost(net)
fully_shard(cost)
cost.set_gradient_divide_factor(1.0)  # FSDP takes the mean otherwise
moved(net, cost, x[mine], y[mine])
for one, other in zip(alone.parameters(), net.parameters(), strict=True):
    assert torch.allclose(one, other.full_tensor(), rtol=1e-6, atol=1e-9)
cost.unshard()
PREDICTED = mesu.predict(net, x, samples=5)
assert torch.allclose(PREDICTED.probs, mesu.predict(alone, x, samples=5).probs, atol=1e-6)
"""


def test_sharded_weights_step_as_whole_ones():
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(getattr(fsdp, "FSDPModule", None), "set_gradient_divide_factor"):
        pytest.skip("this torch has no fully_shard whose gradients can be summed")
    run(START + SHARDED + END)


def test_alone_nothing_is_changed_or_refused():
    net = mesu.Bayesian(torch.nn.Linear(4, 3), seed=0)
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        twin = copy.deepcopy(net)
        ddp = torch.nn.parallel.DistributedDataParallel(net)
        assert torch.equal(ddp(x), twin(x))
        assert torch.equal(ddp.module.nll(x, y), twin.nll(x, y))
        ddp.module.nll(x, y).backward()
    finally:
        torch.distributed.destroy_process_group()
    with pytest.raises(TypeError, match=r"Cost takes a mesu\.Bayesian, got Linear"):
        mesu.Cost(torch.nn.Linear(4, 3))
