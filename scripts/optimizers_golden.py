#!/usr/bin/env python3
"""Makes what PyTorch's optimizers do with known weights and gradients: stages/tests/golden/optimizers.json, and
how far their first step moves each tensor of models in Hugging Face's form: tests/golden/hf/optimizers.json.

    python3 scripts/optimizers_golden.py stages/tests/golden/optimizers.json tests/golden/hf

Needs torch 2.9 or newer, and safetensors. Weights and gradients are sines of squares, so that the test can make them again. Lion is not in torch:
its formula stands here. PyTorch's Muon multiplies in bf16; here it multiplies in f64, and is close to PyTorch's.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torch.optim import _muon

STEPS = 5
SHAPES = {"wide": [5, 12], "tall": [40, 3], "square": [7, 7], "row": [1, 9], "vector": [21], "cube": [2, 3, 5]}


def numbers(shape, start):
    count = torch.Size(shape).numel()
    return torch.sin(start + 0.7 * torch.arange(count, dtype=torch.float64) ** 2).to(torch.float32).reshape(shape)


def orthogonal(grad, ns_coefficients, ns_steps, eps):
    a, b, c = ns_coefficients
    x = grad.double()
    if x.shape[0] > x.shape[1]:
        return orthogonal(grad.T, ns_coefficients, ns_steps, eps).T
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.float()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(first * mean + (1 - first) * p.grad))
                mean.copy_(second * mean + (1 - second) * p.grad)


OPTIMIZERS = {
    "lion": lambda p: Lion(p, lr=3e-3, weight_decay=0.2),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.02, weight_decay=0.1),
    "adafactor, small rate": lambda p: torch.optim.Adafactor(p, lr=1e-3, weight_decay=0.0),
    "muon": lambda p: torch.optim.Muon(p, lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
}


def main(path):
    found = {}
    for kind, make in OPTIMIZERS.items():
        for name, shape in SHAPES.items():
            if kind == "muon" and len(shape) != 2:
                continue
            p = torch.nn.Parameter(numbers(shape, 0.3))
            optimizer = make([p])
            with torch.no_grad():
                for step in range(STEPS):
                    p.grad = 0.05 * numbers(shape, 1.0 + 2.0 * step)
                    optimizer.step()
            found.setdefault(kind, {})[name] = {"shape": shape, "weights": p.detach().flatten().tolist()}
    with open(path, "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


def first_steps(folder):
    """The norm of the change of each tensor of a folder. hf_golden.py has made the gradients."""
    made = {
        "muon": lambda p: torch.optim.Muon([p], lr=0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        "adafactor": lambda p: torch.optim.Adafactor([p], lr=0.01, weight_decay=0.0),
    }
    weights, golden = load_file(folder / "model.safetensors"), load_file(folder / "golden.safetensors")
    norms = {kind: {} for kind in made}
    for name, weight in weights.items():
        grad = golden.get(f"grad.{name}", golden.get(f"grad.transformer.{name}"))
        by_adamw = weight.dim() != 2 or any(word in name for word in ("embed", "wte", "wpe", "lm_head"))
        for kind in ["adafactor"] if by_adamw else made:
            p = torch.nn.Parameter(weight.clone())
            p.grad = grad
            made[kind](p).step()
            norms[kind][name.removeprefix("transformer.")] = float(f"{(p.detach() - weight).norm().item():.6g}")
    return norms


def families(folder):
    found = {family: first_steps(folder / family) for family in ["llama", "qwen2", "mixtral", "gpt2"]}
    with open(folder / "optimizers.json", "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    given = _muon._zeropower_via_newtonschulz
    sample = numbers([5, 12], 0.1)
    exact = orthogonal(sample, (3.4445, -4.775, 2.0315), 5, 1e-7)
    assert (given(sample, (3.4445, -4.775, 2.0315), 5, 1e-7).float() - exact).abs().max() < 0.05
    _muon._zeropower_via_newtonschulz = orthogonal
    torch.set_num_threads(1)
    main(sys.argv[1])
    families(pathlib.Path(sys.argv[2]))
