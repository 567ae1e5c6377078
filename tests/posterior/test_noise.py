"""The posterior's own noise: seeded, undisturbed by other random code, and continued exactly by copies and states."""

import copy
import pickle

import pytest
import torch

from mesu.posterior.noise import Noise


def test_same_seed_same_stream_and_another_seed_another():
    assert torch.equal(Noise(3).normal((50,)), Noise(3).normal((50,)))
    assert not torch.equal(Noise(3).normal((50,)), Noise(4).normal((50,)))


def test_stream_moves_on():
    noise = Noise(0)
    assert not torch.equal(noise.normal((5,)), noise.normal((5,)))


def test_draws_are_torch_normals_of_the_seed():
    wanted = torch.randn(7, generator=torch.Generator().manual_seed(11))
    assert torch.equal(Noise(11).normal((7,)), wanted)


def test_normals_are_standard():
    z = Noise(0).normal((200_000,), like=torch.zeros((), dtype=torch.float64))
    assert abs(z.mean()) < 4 / 200_000**0.5
    assert abs(z.square().mean() - 1) < 4 * (2 / 200_000) ** 0.5


def test_uniforms_fill_minus_one_to_one():
    u = Noise(0).uniform(torch.zeros(100_000))
    assert -1 <= u.min() < -0.999
    assert 0.999 < u.max() <= 1
    assert abs(u.mean()) < 4 * (1 / 3 / 100_000) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_takes_the_dtype_of_what_it_is_for(dtype):
    like = torch.zeros(3, dtype=dtype)
    assert Noise(0).normal((2, 3), like=like).dtype == dtype
    assert Noise(0).uniform(like).dtype == dtype


def test_global_generator_and_noise_do_not_disturb_each_other():
    noise, undisturbed = Noise(5), Noise(5)
    noise.normal((3,)), undisturbed.normal((3,))
    torch.manual_seed(9)
    wanted = torch.rand(4)
    torch.manual_seed(9)
    second = noise.normal((3,))
    assert torch.equal(torch.rand(4), wanted)
    assert torch.equal(second, undisturbed.normal((3,)))


def test_without_a_seed_the_global_seed_rules():
    torch.manual_seed(1)
    first = Noise().normal((4,))
    other = Noise().normal((4,))
    torch.manual_seed(1)
    assert torch.equal(Noise().normal((4,)), first)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda noise: pickle.loads(pickle.dumps(noise))])
def test_copies_continue_the_stream_on_their_own(twin_of):
    noise = Noise(2)
    noise.normal((13,))
    twin = twin_of(noise)
    wanted = noise.normal((9,))
    noise.normal((100,))
    assert torch.equal(twin.normal((9,)), wanted)


def test_state_restores_the_stream():
    noise = Noise(2)
    noise.normal((13,))
    state = noise.state
    wanted = noise.normal((9,))
    assert state.dtype == torch.uint8
    noise.state = state
    assert torch.equal(noise.normal((9,)), wanted)
    other = Noise(77)
    other.state = state
    assert torch.equal(other.normal((9,)), wanted)


def test_saved_state_does_not_move_with_the_stream():
    noise = Noise(2)
    state = noise.state
    kept = state.clone()
    noise.normal((9,))
    assert torch.equal(state, kept)
    assert not torch.equal(noise.state, kept)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda noise: pickle.loads(pickle.dumps(noise))])
def test_counter_is_part_of_copies_and_state(twin_of):
    noise, other = Noise(2), Noise(77)
    noise.step = 12
    twin = twin_of(noise)
    other.state = noise.state
    assert (twin.seed, twin.step) == (other.seed, other.step) == (2, 12)
    noise.step += 1
    assert (twin.step, other.step) == (12, 12)
