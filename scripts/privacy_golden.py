#!/usr/bin/env python3
"""Makes what others say of differential privacy, for the tests in tests/golden/privacy.

    python3 scripts/privacy_golden.py

Needs torch, safetensors, opacus and dp-accounting. Writes accountant.json: epsilon of many trainings by the RDP
accountants of opacus and of Google's dp-accounting, which leaves out orders whose series is long, and so gives more
for them; and mlp.safetensors: a small perceptron that opacus
trains without noise, with the gradient of each sample clipped. Some samples are above the limit and some below.
"""
import json
import logging
import pathlib

import dp_accounting
import torch
from dp_accounting import rdp
from opacus import GradSampleModule
from opacus.accountants.analysis import rdp as opacus_rdp
from opacus.optimizers import DPOptimizer
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/privacy"
ORDERS = [1 + tenths / 10 for tenths in range(1, 100)] + list(range(11, 64))
STEPS, SAMPLES, CLIP, RATE = 5, 6, 1.9, 0.5


def by_opacus(noise, rate, steps, delta):
    spent = opacus_rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=ORDERS)
    return opacus_rdp.get_privacy_spent(orders=ORDERS, rdp=spent, delta=delta)[0]


def by_google(noise, rate, steps, delta):
    accountant = rdp.RdpAccountant(ORDERS)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant.compose(event, steps)
    return accountant.get_epsilon(delta)


def accountant():
    cases = []
    for noise in (0.4, 0.7, 1.0, 1.3, 2.5, 8.0):
        for rate in (0.0001, 0.004, 0.0667, 0.5, 1.0):
            for steps in (1, 100, 20_000):
                for delta in (1e-5, 1e-9):
                    epsilon, other = (by(noise, rate, steps, delta) for by in (by_opacus, by_google))
                    cases.append([noise, rate, steps, delta, max(epsilon, 0.0), max(other, 0.0)])
    text = ",\n".join(json.dumps(case) for case in cases)
    (FOLDER / "accountant.json").write_text(f"[\n{text}\n]\n")


def mlp():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.ReLU(), torch.nn.Linear(10, 4))
    x, y = torch.randn(STEPS, SAMPLES, 6), torch.randint(0, 4, (STEPS, SAMPLES))
    names = {"0": "fc0", "2": "fc1"}
    named = lambda: {
        f"{names[name.split('.')[0]]}.{name.split('.')[1]}": p.detach().clone() for name, p in model.named_parameters()
    }
    tensors = {"x": x, "y": y, "clip": torch.tensor([CLIP]), "rate": torch.tensor([RATE])}
    tensors |= {f"init.{name}": value for name, value in named().items()}
    private = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(private.parameters(), lr=RATE), noise_multiplier=0.0, max_grad_norm=CLIP,
        expected_batch_size=SAMPLES,
    )
    clipped = 0
    for inputs, targets in zip(x, y):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(inputs), targets).backward()
        squares = sum(p.grad_sample.flatten(1).square().sum(1) for p in private.parameters())
        clipped += (squares.sqrt() > CLIP).sum().item()
        optimizer.step()
    assert STEPS < clipped < STEPS * SAMPLES - STEPS, clipped
    tensors |= {f"final.{name}": value for name, value in named().items()}
    save_file(tensors, FOLDER / "mlp.safetensors")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    logging.disable()
    accountant()
    mlp()
