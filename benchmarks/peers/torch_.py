"""PyTorch with a heap of arrivals: the parameter server that a user would write for one run.

Each worker has a copy of the network at the version that it read; its gradient is computed when it
arrives. One Python loop, one thread: the networks are small.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from benchmarks.peers.heapq_ import arrivals
from benchmarks.peers.schedule import Numbers, draws

Layers = list[tuple[np.ndarray, np.ndarray]]  # weights f[inputs, outputs] and biases f[outputs]
Batch = Callable[[int, int], tuple[torch.Tensor, torch.Tensor]]  # (worker, step) -> inputs, classes


def network(widths: Sequence[int], layers: Layers | None = None) -> nn.Sequential:
    """Make a perceptron with ReLU between its layers; with these weights, if they are given."""
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = nn.Sequential(*parts[:-1])
    if layers is not None:
        with torch.no_grad():
            for part, (weight, bias) in zip(linear(model), layers, strict=True):
                part.weight.copy_(torch.tensor(np.asarray(weight).T.copy()))
                part.bias.copy_(torch.tensor(np.asarray(bias).copy()))
    return model


def linear(model: nn.Sequential) -> list[nn.Linear]:
    """Return the layers that have weights."""
    return [part for part in model if isinstance(part, nn.Linear)]


def tensors(x: object, y: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy inputs and classes from arrays."""
    return torch.tensor(np.array(x, np.float32)), torch.tensor(np.array(y, np.int64))


def drawn(x: np.ndarray, y: np.ndarray, size: int, seed: int = 0) -> Batch:
    """Make mini-batches of so many examples, drawn with replacement."""
    inputs, classes = tensors(x, y)
    generator = torch.Generator().manual_seed(seed)

    def batch(worker: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        del worker, step
        chosen = torch.randint(len(inputs), (size,), generator=generator)
        return inputs[chosen], classes[chosen]

    return batch


def train(
    n: int,
    numbers: Numbers,
    updates: int,
    server: nn.Sequential,
    batch: Batch,
    rate: float,
    *,
    table: np.ndarray | None = None,
    seed: int = 0,
) -> Layers:
    """Train one run by SGD with gradients as stale as they arrive.

    Args:
        n: workers.
        numbers: the policy.
        updates: how many updates to make.
        server: the network at version 0; it is trained in place.
        batch: the mini-batches.
        rate: the learning rate.
        table: f[n, J] seconds of computation (worker, step); None: exponential times.
        seed: of the exponential times.

    Returns:
        The weights and biases after the last update.
    """
    torch.set_num_threads(1)
    workers = [copy.deepcopy(server) for _ in range(n)]
    step = [0] * n
    optimizer = torch.optim.SGD(server.parameters(), lr=rate)
    optimizer.zero_grad()
    loss_of = nn.CrossEntropyLoss()
    losses: list[torch.Tensor] = []
    made = 0
    for arrival in arrivals(n, numbers, draws(table, seed)):
        model = workers[arrival.worker]
        inputs, classes = batch(arrival.worker, step[arrival.worker])
        model.zero_grad()
        loss = loss_of(model(inputs), classes) / numbers.k
        loss.backward()
        losses.append(loss.detach())
        for ours, theirs in zip(server.parameters(), model.parameters(), strict=True):
            assert theirs.grad is not None
            ours.grad = theirs.grad.clone() if ours.grad is None else ours.grad + theirs.grad
        if arrival.commit:
            optimizer.step()
            optimizer.zero_grad()
            made += 1
            if made == updates:
                break
        with torch.no_grad():
            for worker in arrival.start:
                step[worker] += 1
                for ours, theirs in zip(
                    server.parameters(), workers[worker].parameters(), strict=True
                ):
                    theirs.copy_(ours)
    return [(part.weight.detach().numpy().T, part.bias.detach().numpy()) for part in linear(server)]
