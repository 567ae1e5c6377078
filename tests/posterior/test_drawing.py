"""Drawn networks against mu + sigma * e by hand: vectorised, looped, tied, and with layers that draw their outputs."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from tests.posterior.networks import ESTIMATORS, VECTORISABLE, drawn_by_hand, leaves, make, mlp
from torch import nn

import mesu
from mesu.posterior.drawing import Turns
from mesu.posterior.layers import Local
from mesu.posterior.noise import Noise


def test_transformer_draws_its_linear_layers_in_evaluation_too():
    # torch's fused inference path reads the weights itself, past the layers that draw their outputs
    net = mesu.Bayesian(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        deterministic=["self_attn", "norm1", "norm2"],
        vectorize=False,
        seed=0,
        estimator="local",
    ).eval()
    with torch.no_grad():
        out = net(torch.randn(2, 5, 8), samples=2)
    assert not torch.equal(out[0], out[1])
    assert torch.backends.mha.get_fastpath_enabled()  # other people's networks keep it


def test_transformer_has_gradients_in_evaluation_too():
    _, net, inputs = make("transformer", estimator="weights")
    net.eval()(*inputs, samples=2).square().sum().backward()
    assert all((pair.std.grad != 0).any() for pair in net.pairs())


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("name", VECTORISABLE)
def test_weights_are_mu_plus_sigma_e(name, vectorize):
    module, net, inputs = make(name, estimator="weights", vectorize=vectorize)
    module, net = module.double(), net.double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    wanted = drawn_by_hand(net, module, inputs, samples=4)
    for ours, theirs in zip(leaves(net(*inputs, samples=4)), leaves(wanted), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm", "lstm-batch-first", "gru", "conv1d", "conv3d"])
def test_looped_layers_are_mu_plus_sigma_e(name):
    module, net, inputs = make(name, estimator="weights")
    wanted = drawn_by_hand(net, module, inputs, samples=3)
    for ours, theirs in zip(leaves(net(*inputs, samples=3)), leaves(wanted), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", VECTORISABLE)
def test_vectorised_equals_looped(name):
    _, net, inputs = make(name, estimator="weights", vectorize=True)
    net = net.double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    looped = copy.deepcopy(net)
    looped.vectorize = False
    for _ in range(2):  # twice: the noise has moved on alike
        pairs = zip(leaves(net(*inputs, samples=5)), leaves(looped(*inputs, samples=5)), strict=True)
        assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-13) for a, b in pairs)


def test_gradients_are_those_of_the_drawn_weights():
    # eq. 12: dC/dmu = mean dC/dw, dC/dsigma = mean e dC/dw
    net = mesu.Bayesian(nn.Linear(3, 2, bias=False), estimator="weights", seed=4).double()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    net.nll(x, y, samples=6).backward()
    pair, noise = next(net.pairs()), Noise(4)
    g_mean, g_std = torch.zeros(2, 3).double(), torch.zeros(2, 3).double()
    for _ in range(6):
        e = noise.normal((6,), like=pair.mean).view(2, 3)
        w = (pair.mean + pair.std * e).detach()
        error = (x @ w.T).softmax(-1) - F.one_hot(y, 2)
        g_mean += error.T @ x / 6
        g_std += e * (error.T @ x) / 6
    assert torch.allclose(pair.mean.grad, g_mean)
    assert torch.allclose(pair.std.grad, g_std)


def test_local_linear_layers_by_hand():
    net = mesu.Bayesian(mlp(3, 5, 2), seed=1, estimator="local").double()
    x, noise = torch.randn(4, 3, dtype=torch.float64), Noise(1)
    w1, b1, w2, b2 = net.pairs()
    for ours in net(x, samples=1)[0], net(x):  # one sample is drawn layer by layer
        a = x
        for w, b, activation in ((w1, b1, torch.tanh), (w2, b2, lambda t: t)):
            mean = a @ w.mean.T + b.mean
            var = a**2 @ (w.std**2).T + b.std**2
            a = activation(mean + var.sqrt() * noise.normal(mean.shape, like=mean))
        assert torch.allclose(ours, a)


def test_local_convolution_by_hand():
    net = mesu.Bayesian(
        nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode="circular"), seed=1, estimator="local"
    ).double()
    x = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    w, b = net.pairs()
    padded = F.pad(x, (1, 1, 1, 1), mode="circular")
    mean = F.conv2d(padded, w.mean, b.mean, stride=2)
    var = F.conv2d(padded**2, w.std**2, b.std**2, stride=2)
    assert torch.allclose(net(x), mean + var.sqrt() * Noise(1).normal(mean.shape, like=mean))


def test_local_and_weights_have_the_same_mean_and_variance():
    x = torch.randn(1, 3, dtype=torch.float64)
    net = mesu.Bayesian(nn.Linear(3, 2), init_std=0.5, seed=0, estimator="local").double()
    w, b = net.pairs()
    mean, var = x @ w.mean.T + b.mean, x**2 @ (w.std**2).T + b.std**2
    with torch.no_grad():
        for estimator in ESTIMATORS:
            out = net.sample(x, samples=20_000, estimator=estimator)
            assert torch.all((out.mean(0) - mean).abs() < 5 * (var / 20_000).sqrt())
            assert torch.all((out.var(0) / var - 1).abs() < 5 * (2 / 20_000) ** 0.5)


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("name", ["mlp", "conv1d", "conv2d", "conv3d"])
def test_rows_share_drawn_weights_but_not_local_draws(name, vectorize):
    for estimator in ESTIMATORS:
        _, net, (x,) = make(name, estimator=estimator, vectorize=vectorize)
        net = net.double()
        out = net(x[:1].double().expand(4, *x.shape[1:]), samples=6)
        same_row = torch.allclose(out[:, :1].expand_as(out), out, rtol=1e-12)
        assert same_row == (estimator == "weights")
        # every example meets six different networks, whichever the estimator
        for row in range(4):
            assert len({tuple(values) for values in out[:, row].flatten(1).tolist()}) == 6


def test_zero_input_has_a_finite_gradient():
    net = mesu.Bayesian(nn.Linear(3, 2, bias=False), seed=0, estimator="local")
    net(torch.zeros(4, 3), samples=2).sum().backward()
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in net.parameters())


class Branches(nn.Module):
    """Looks at its numbers, which vmap refuses."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        out = self.linear(x)
        return out if out.sum().item() > 0 else -out


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_module_that_cannot_be_vectorised_is_looped(estimator):
    x = torch.randn(4, 3)
    net = mesu.Bayesian(Branches(), estimator=estimator, seed=0)
    looped = mesu.Bayesian(Branches(), estimator=estimator, vectorize=False, seed=0)
    looped.load_state_dict(net.state_dict())
    for _ in range(2):
        assert torch.equal(net(x, samples=3), looped(x, samples=3))
    net.vectorize = True
    with pytest.raises(RuntimeError, match="vmap"):
        net(x, samples=3)


class Tied(nn.Module):
    """A language model's usual tie: the decoder is the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.decoder = nn.Linear(3, 7, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, x):
        return self.decoder(self.embedding(x))


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_tied_weights_are_drawn_once(estimator, vectorize):
    net = mesu.Bayesian(Tied(), estimator=estimator, vectorize=vectorize, seed=3)
    (pair,) = net.pairs()
    assert not any(isinstance(m, Local) for m in net.modules())
    x, e = torch.arange(7), Noise(3).normal((21,)).view(7, 3)
    w = pair.mean + pair.std * e
    assert torch.allclose(net(x, samples=2)[0], F.embedding(x, w) @ w.T, atol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_two_tied_layers_are_drawn_once(estimator):
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    module[2].weight = module[0].weight
    net = mesu.Bayesian(module, estimator=estimator, seed=3)
    (pair,) = net.pairs()
    w = pair.mean + pair.std * Noise(3).normal((9,)).view(3, 3)
    x = torch.randn(4, 3)
    assert torch.allclose(net(x), torch.tanh(x @ w.T) @ w.T, atol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_layer_used_in_two_places_is_drawn_once(estimator):
    layer = nn.Linear(3, 3, bias=False)
    net = mesu.Bayesian(nn.Sequential(layer, nn.Tanh(), layer), estimator=estimator, seed=3)
    (pair,) = net.pairs()
    w = pair.mean + pair.std * Noise(3).normal((9,)).view(3, 3)
    x = torch.randn(4, 3)
    assert torch.allclose(net(x), torch.tanh(x @ w.T) @ w.T, atol=1e-6)


class Meeting(nn.Module):
    """A network whose forward pass calls a function between its layers, for example to wait for another thread."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.between = [lambda: None]

    def __deepcopy__(self, memo):
        twin = Meeting()
        twin.load_state_dict(self.state_dict())
        return twin

    def forward(self, x):
        x = self.first(x)
        self.between[0]()
        return self.second(x)


def in_threads(*tasks):
    """The results of functions that run at the same time, each in a thread of its own."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


def test_a_second_thread_may_draw_and_predict_while_one_trains():
    module, x = Meeting(), torch.randn(4, 3)
    net, alone = (mesu.Bayesian(module, vectorize=False, seed=0, estimator="local") for _ in range(2))
    expected = [alone.sample(x, samples=3, noise=Noise(seed)) for seed in (1, 2)]
    barrier = threading.Barrier(2)
    net.module.between[0] = lambda: barrier.wait(600)  # both threads are inside the network before either goes on

    def trains():
        out = net.sample(x, samples=3, noise=Noise(1))
        out.sum().backward()
        return out

    out = in_threads(trains, lambda: net.sample(x, samples=3, noise=Noise(2)))
    assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))
    assert all((pair.std.grad != 0).any() for pair in net.pairs())


def test_one_thread_draws_while_another_runs_the_network_at_its_means():
    module, x = Meeting(), torch.randn(4, 3)
    net, alone = (mesu.Bayesian(module, vectorize=False, seed=0, estimator="local") for _ in range(2))
    expected = [alone.sample(x, samples=1, noise=Noise(1))[0], alone.at_mean(x)]
    barrier = threading.Barrier(2)
    net.module.between[0] = lambda: barrier.wait(600)
    out = in_threads(lambda: net.sample(x, samples=1, noise=Noise(1))[0], lambda: net.at_mean(x))
    assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))


@pytest.mark.parametrize("estimator", ["linear", "local", "weights"])
def test_a_network_learns_the_same_while_two_threads_predict(estimator):
    # with local layers training draws no weight, so that it must not meet those which a prediction has drawn
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    net, alone = (mesu.Bayesian(module, estimator=estimator, seed=0) for _ in range(2))
    x, y, done = torch.randn(9, 6), torch.randint(3, (9,)), threading.Event()

    def trains(posterior):
        torch.manual_seed(1)
        opt = mesu.MESU(posterior, memory=1000)
        try:
            for _ in range(40):
                posterior.nll(x, y, samples=2).backward()
                opt.step()
                opt.zero_grad()
        finally:
            done.set()

    def predicts():
        answers = [mesu.predict(net, x, samples=3).epistemic]
        while not done.is_set():
            answers.append(mesu.predict(net, x, samples=3).epistemic)
        return answers

    _, *answers = in_threads(lambda: trains(net), predicts, predicts)
    trains(alone)
    assert all(torch.equal(a.mean, b.mean) for a, b in zip(net.pairs(), alone.pairs(), strict=True))
    assert all(part.training for part in net.modules())
    assert all((each > 0).any() for each in [*answers[0], *answers[1]])


def test_whoever_changes_a_network_waits_for_its_readers_and_they_for_him():
    turns, events = Turns(), []
    inside, asks, leave = threading.Event(), threading.Event(), threading.Event()

    def reads():
        with turns.shared(), turns.shared():
            inside.set()
            assert leave.wait(60)
            events.append("read")

    def changes():
        assert inside.wait(60)
        asks.set()
        with turns, turns, turns.shared():
            events.append("changed")

    def reads_later():
        assert asks.wait(60)
        leave.set()
        with turns.shared():
            pass

    in_threads(reads, changes, reads_later)
    assert events == ["read", "changed"]


class WatchedLock:
    """The posterior's lock, which tells when somebody asks for it."""

    def __init__(self, lock, asked):
        self.lock, self.asked = lock, asked

    def __enter__(self):
        self.asked()
        self.lock.__enter__()

    def __exit__(self, *error):
        self.lock.__exit__(*error)

    def shared(self):
        self.asked()
        return self.lock.shared()


@pytest.mark.parametrize(
    "read",
    [
        lambda net: [net.at_mean(torch.ones(1, 3))],
        lambda net: [pair.mean for pair in net.pairs()],
        lambda net: [value for name, value in net.state_dict().items() if name != "_extra_state"],
        lambda net: [net.sample(torch.ones(1, 3), samples=1, noise=Noise(2), estimator="weights")],
    ],
    ids=["at_mean", "pairs", "state_dict", "sample"],
)
def test_drawn_weights_of_one_thread_are_never_seen_by_another(read):
    net = mesu.Bayesian(Meeting(), estimator="weights", vectorize=False, seed=0)
    expected = [value.detach().clone() for value in read(net)]
    inside, answered = threading.Event(), threading.Event()
    drawing_thread = []

    def asked():
        if drawing_thread and threading.get_ident() not in drawing_thread:
            answered.set()  # the reader waits for the lock

    def between():
        if threading.get_ident() in drawing_thread:
            inside.set()
            assert answered.wait(600)

    def draws():
        drawing_thread.append(threading.get_ident())
        net(torch.zeros(1, 3))

    def reads():
        assert inside.wait(600)
        try:
            return [value.detach().clone() for value in read(net)]
        finally:
            answered.set()  # without a lock, the reader has its answer while the weights are drawn

    net._turns, net.module.between[0] = WatchedLock(net._turns, asked), between
    _, found = in_threads(draws, reads)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


class AsksTorch(nn.Module):
    """A transformer block that looks at torch's switch for fused attention while it runs."""

    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.seen = []

    def forward(self, x):
        self.seen.append(torch.backends.mha.get_fastpath_enabled())
        return self.block(x)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_attention_takes_its_ordinary_path_without_a_switch_for_the_whole_process(estimator):
    module, x = AsksTorch(), torch.randn(4, 5, 8)
    nets = [mesu.Bayesian(module, estimator=estimator, seed=0).eval() for _ in range(2)]
    with torch.no_grad():
        out = nets[0](x, samples=3)
        mean = nets[0].at_mean(x)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            expected = nets[1](x, samples=3)
            expected_mean = nets[1].at_mean(x)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert torch.equal(out, expected)
    assert torch.equal(mean, expected_mean)
    assert nets[0].module.seen == [True] * 4


class Squares(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Bilinear(4, 4, 3)

    def forward(self, x):
        return self.layer(x, x)


@pytest.mark.parametrize(
    ("make_one", "x"),
    [
        (lambda: nn.Sequential(nn.EmbeddingBag(5, 4), nn.Linear(4, 3)), torch.tensor([[0, 1], [2, 4]])),
        (Squares, torch.ones(2, 4)),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), torch.ones(2, 4)),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_vmap_would_loop_over_with_a_warning_is_looped_without(make_one, x, estimator):
    torch.manual_seed(0)
    net = mesu.Bayesian(make_one(), estimator=estimator, seed=0)
    assert net(x, samples=4).std(0).min() > 0
    net.nll(x, torch.tensor([0, 2]), samples=2).backward()
    assert (mesu.predict(net, x, samples=4).epistemic > 0).all()


def test_a_layer_whose_hook_keeps_a_weight_can_be_copied_and_predicted_after_draws():
    torch.manual_seed(0)
    net = mesu.Bayesian(nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 3)), seed=0)
    x = torch.randn(6, 4)
    seen = mesu.predict(net, x, samples=4)
    assert (seen.epistemic > 0).all()
    twin = copy.deepcopy(net)
    assert torch.equal(mesu.predict(twin, x, samples=4).probs, seen.probs)
    with pytest.raises(TypeError, match="has hooks, which a closed form cannot run"):
        mesu.predict(net, x, samples=0)
