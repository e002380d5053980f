#!/usr/bin/env python3
"""Training of ResNet-18 on images of CIFAR-10's size: ours in 2 stages, and PyTorch with 2 threads.

    benches/compare_torch/resnet.py PIPEWRIGHT [--rounds 3] [--steps 6] [--schedules 1f1b zb-h1]
    benches/compare_torch/resnet.py PIPEWRIGHT --device cuda:0 --dtype bf16 [--steps 30]

Needs torch, in the Python that runs this. PIPEWRIGHT is the program, compiled with optimisation. The images are random
bytes. A step is 128 images in f32, with SGD and momentum: for us 8 micro-batches of 16 through 2 stages with a thread
each, for PyTorch all at once, channels first and channels last (`torch.channels_last`), where oneDNN computes it.
PyTorch's time has no data loading in it, ours has crops and flips. On a GPU ours is one stage with one micro-batch of 128
images, as PyTorch's; in bf16 PyTorch computes under autocast. All run in turn. Prints images a second, medians of
the steps after the first two, and the largest resident memory of each process.
"""
import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BATCH, WARM_UP = 128, 2


def network():
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Identity()
            if stride > 1:
                self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu_(self.bn1(self.conv1(x)))))
            return F.relu_(y + self.shortcut(x))

    layers, inputs = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)], 64
    for outputs, stride in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        layers.append(Block(inputs, outputs, stride))
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def by_torch(form, steps, device, dtype):
    """What a worker prints: seconds of each step, and its largest resident memory in MiB."""
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(1)
    form = torch.channels_last if form == "last" else torch.contiguous_format
    device = torch.device(device)
    model = network().to(device, memory_format=form)
    images = torch.randn(BATCH, 3, 32, 32).to(device, memory_format=form)
    labels = torch.randint(10, (BATCH,)).to(device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    seconds = []
    for _ in range(WARM_UP + steps):
        wait()
        since = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        wait()
        seconds.append(time.perf_counter() - since)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak}))


def ours(options, schedule, folder):
    """Images a second, and MiB."""
    run = Path(folder) / "run"
    steps = str(WARM_UP + options.steps)
    command = [options.pipewright, "train", ROOT / "examples/resnet-cifar10.toml", "--steps", steps, "--run-dir", run]
    settings = [f"data.path={folder}/data_batch_1.bin", f"pipeline.schedule={schedule}", "data.validation=0"]
    settings += ["train.validate_every=0", "checkpoint.every=0", "checkpoint.beside=false", "optimizer.warmup_steps=2"]
    settings += [f"pipeline.devices={options.device}", f"pipeline.dtype={options.dtype}"]
    if options.device != "cpu":
        settings += ["pipeline.stages=1", "pipeline.micro_batches=1", f"pipeline.micro_batch_size={BATCH}"]
    command += [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("pipewright failed")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(run)
    return statistics.median(line["tokens_per_second"] for line in lines[WARM_UP:]), usage.ru_maxrss / 1024


def theirs(options, form, _):
    command = [sys.executable, __file__, "--torch", form, "--steps", str(options.steps)]
    command += ["--device", options.device, "--dtype", options.dtype]
    printed = subprocess.run(command, check=True, capture_output=True, text=True,
                             env=os.environ | {"LD_LIBRARY_PATH": options.peer_library_path}).stdout
    told = json.loads(printed)
    return BATCH / statistics.median(told["seconds"][WARM_UP:]), told["peak"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipewright", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "zb-h1"])
    parser.add_argument("--device", default="cpu", help="cpu or a GPU, such as cuda:0")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--peer-library-path", default=os.environ.get("LD_LIBRARY_PATH", ""),
                        help="PyTorch's LD_LIBRARY_PATH, when it is not to have our libraries of CUDA")
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        return by_torch(options.torch, options.steps, options.device, options.dtype)
    where = ["2 stages", "2 threads"] if options.device == "cpu" else [f"{options.device}, {options.dtype}"] * 2
    schedules = options.schedules if options.device == "cpu" else ["1f1b"]
    ways = {f"ours, {where[0]}, {name}": (ours, name) for name in schedules}
    ways |= {f"PyTorch, {where[1]}, channels {form}": (theirs, form) for form in ("first", "last")}
    rates, peaks = {way: [] for way in ways}, {}
    with tempfile.TemporaryDirectory() as folder:
        drawn = random.Random(1)
        records = (bytes([drawn.randrange(10)]) + drawn.randbytes(3072) for _ in range(1024))
        (Path(folder) / "data_batch_1.bin").write_bytes(b"".join(records))
        for _ in range(options.rounds):
            for way, (run, which) in ways.items():
                rate, peaks[way] = run(options, which, folder)
                rates[way].append(rate)
    best = max(statistics.median(rates[way]) for way in ways if way.startswith("PyTorch"))
    for way, each in rates.items():
        median = statistics.median(each)
        print(f"{way:36} {median:7.1f} images/s  {median / best:5.2f} of PyTorch's best  {peaks[way]:6.0f} MiB  "
              f"{[round(rate, 1) for rate in each]}")


main()
