#!/usr/bin/env python3
"""The peer: the same GPT, weights and batches trained by PyTorch on one GPU, compiled, gradients summed over the micro-batches.

    python peer.py --folder FOLDER --recipe bf16|autocast [--device cuda]

FOLDER is what our side prepared. `bf16`: weights and optimizer in bf16, as fast as it gets. `autocast`: weights and optimizer in f32, products
in bf16, as we do it. A line with a number on its standard input is that many steps; it answers with a line of JSON: their seconds and
losses. The first answer, to no question, is what it is.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
import torch.nn as nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare_torch"))
import peer


class Training:
    def __init__(self, given):
        folder = pathlib.Path(given.folder)
        size = json.loads((folder / "size.json").read_text())
        self.device, self.is_autocast = torch.device(given.device), given.recipe == "autocast"
        self.micro_batches = size["micro_batches"]
        units, names = peer.gpt(**size["model"])
        peer.load(units, names, folder / "weights.safetensors")
        self.model = nn.Sequential(*units).to(self.device, torch.float32 if self.is_autocast else torch.bfloat16)
        self.update = peer.optimizer(self.model.parameters())
        self.batches = peer.Batches(folder / "batches.safetensors", is_gpt=True)
        self.loss = torch.compile(self.loss_of) if given.compile else self.loss_of
        self.done = 0

    def loss_of(self, x, y):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_autocast):
            return peer.loss_of(self.model(x).float(), y)

    def step(self):
        x, y = (side.to(self.device) for side in self.batches(self.done))
        self.done += 1
        self.wait()
        started = time.perf_counter()
        self.update.zero_grad(set_to_none=True)
        losses = []
        for input, target in zip(x.chunk(self.micro_batches), y.chunk(self.micro_batches)):
            loss = self.loss(input, target)
            (loss / self.micro_batches).backward()
            losses.append(loss.detach())
        self.update.step()
        self.wait()
        return time.perf_counter() - started, float(torch.stack(losses).mean())

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--recipe", choices=["bf16", "autocast"], required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    training = Training(given)
    print(json.dumps({"peer": f"PyTorch {torch.__version__}"}), flush=True)
    for line in sys.stdin:
        seconds, losses = zip(*(training.step() for _ in range(int(line))))
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)


if __name__ == "__main__":
    main()
