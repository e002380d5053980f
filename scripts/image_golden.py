#!/usr/bin/env python3
"""Trains small networks of convolutions with PyTorch, and records what it computes.

    python3 scripts/image_golden.py tests/golden/images

Needs torch and safetensors. Each network gets NAME.safetensors with batches (x: [steps, rows, height, width,
channels], y: [steps, rows]), init.*, grad.* (of the mean loss of the first step), final.* (with running means), the
losses, and logits of the first batch in evaluation after the last step; in f32 on the CPU, by SGD with momentum. Row r
of a step belongs to micro-batch r / ROWS. Weights of convolutions are [inputs, kernel, kernel, outputs].

Running means take a share of a tenth of the mean over a step's micro-batches, which is PyTorch's rule if there is one
micro-batch. The files are kept with the tests; this script makes them again.
"""
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

STEPS, MICRO_BATCHES, ROWS, CLASSES, SIDES = 3, 2, 5, 4, (9, 8)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    channels = 3

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(Block(4, 4, 1), Block(4, 4, 1))
        self.layer2 = nn.Sequential(Block(4, 8, 2))
        self.layer3 = nn.Sequential(Block(8, 16, 2))
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Cnn(nn.Module):
    channels = 1

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, 1, 1)
        self.conv2 = nn.Conv2d(6, 8, 3, 1, 1)
        self.fc = nn.Linear(2 * 2 * 8, CLASSES)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.fc(x.permute(0, 2, 3, 1).flatten(1))


class Layers(nn.Module):
    """Sizes that the models do not have."""

    channels = 3

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 5, 2, 2)
        self.norm1 = nn.GroupNorm(3, 12)
        self.conv2 = nn.Conv2d(12, 10, 2)
        self.norm2 = nn.GroupNorm(5, 10)
        self.fc = nn.Linear(10, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(self.norm1(self.conv1(x)), 3, 1, 1)
        return self.fc(self.norm2(self.conv2(x)).mean((2, 3)))


def in_our_order(tensor):
    return (tensor.permute(1, 2, 3, 0) if tensor.dim() == 4 else tensor).contiguous().clone()


def record(model):
    norms = {name: one for name, one in model.named_modules() if isinstance(one, nn.BatchNorm2d)}
    for norm in norms.values():
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
        norm.momentum = 1.0  # so that it shows what the last micro-batch had
    running = {f"{name}.{which}": getattr(norm, which).clone()
               for name, norm in norms.items() for which in ("running_mean", "running_var")}
    x = torch.randn(STEPS, MICRO_BATCHES * ROWS, *SIDES, model.channels)
    y = torch.randint(0, CLASSES, (STEPS, MICRO_BATCHES * ROWS))
    golden = {"x": x, "y": y}
    parameters = dict(model.named_parameters())
    golden |= {f"init.{name}": in_our_order(one.data) for name, one in parameters.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.05, momentum=0.9, weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, means = 0.0, {name: 0.0 for name in running}
        for at in range(0, MICRO_BATCHES * ROWS, ROWS):
            images = x[step, at:at + ROWS].permute(0, 3, 1, 2)
            part = F.cross_entropy(model(images), y[step, at:at + ROWS], reduction="sum") / (MICRO_BATCHES * ROWS)
            part.backward()
            loss += part.item()
            state = model.state_dict()
            means = {name: mean + state[name] / MICRO_BATCHES for name, mean in means.items()}
        running = {name: 0.9 * one + 0.1 * means[name] for name, one in running.items()}
        losses.append(loss)
        if step == 0:
            golden |= {f"grad.{name}": in_our_order(one.grad) for name, one in parameters.items()}
        optimizer.step()
    model.load_state_dict(model.state_dict() | running)
    model.eval()
    with torch.no_grad():
        golden["logits"] = model(x[0].permute(0, 3, 1, 2)).clone()
    golden |= {f"final.{name}": in_our_order(one.data) for name, one in parameters.items()}
    golden |= {f"final.{name}": one for name, one in running.items()}
    golden["losses"] = torch.tensor(losses)
    return golden


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, model in (("resnet", ResNet), ("cnn", Cnn), ("layers", Layers)):
        torch.manual_seed(7)
        save_file(record(model()), folder / f"{name}.safetensors")


main()
