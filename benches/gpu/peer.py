#!/usr/bin/env python3
"""The peer: PyTorch trains the same GPT with the same weights and batches on one GPU, compiled, with
gradients summed over the micro-batches.

    python peer.py --folder FOLDER --recipe bf16|autocast [--device cuda]

FOLDER is what our side prepared. With `bf16`, weights and optimizer are in bf16, which is fastest. With
`autocast`, weights and optimizer are in f32 and products in bf16, as in Pipewright. The program first prints
a line of JSON with its version and, on a GPU, the kernels of its attention. For each number that it reads on standard
input, it trains that many steps and prints a line of JSON with their seconds and losses, and with the GPU's clock and
power right after.
"""
import argparse
import json
import pathlib
import subprocess
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
        self.update = peer.optimizer(self.model.parameters(), zero=False)
        self.batches = peer.Batches(folder / "batches.safetensors", is_gpt=True, share=slice(None))
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


def attention_kernels(folder):
    """The names of the kernels that PyTorch runs for causal attention of the model's size."""
    size = json.loads((pathlib.Path(folder) / "size.json").read_text())["model"]
    shape = (16, size["heads"], size["context"], size["dim"] // size["heads"])
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
        torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages()}
    return sorted(name[:60] for name in names if any(part in name.lower() for part in ("flash", "fmha", "sdpa", "cudnn")))


def clock_and_power():
    """The clock of the multiprocessors and the power of the GPU now, as nvidia-smi tells them."""
    query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--recipe", choices=["bf16", "autocast"], required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    training = Training(given)
    about = f"PyTorch {torch.__version__}"
    if given.device == "cuda":
        about += f", attention by {', '.join(attention_kernels(given.folder)) or 'unknown kernels'}"
    print(json.dumps({"peer": about}), flush=True)
    for line in sys.stdin:
        seconds, losses = zip(*(training.step() for _ in range(int(line))))
        now = clock_and_power() if given.device == "cuda" else None
        print(json.dumps({"seconds": seconds, "losses": losses, "clock_and_power": now}), flush=True)


if __name__ == "__main__":
    main()
