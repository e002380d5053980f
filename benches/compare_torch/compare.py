#!/usr/bin/env python3
"""Compares Pipewright with torch.distributed.pipelining: the same weights, batches and cuts, in turn on the
same machine.

    python3 benches/compare_torch/compare.py --python PYTHON_WITH_TORCH
        [--sizes A B C D] [--text FILE] [--images FOLDER]

PYTHON_WITH_TORCH must have torch and safetensors. Needs cargo, and a machine with nothing else to do.

Sizes: A is a GPT of 8 layers, dim 256, 8 heads, with 8 micro-batches of 4 x 128 tokens. B has dim 512 and 8
of 2 x 256. C has no layers, dim 8 and 64 of 1 x 8: it shows what the engine costs. D is a perceptron
784-2048-2048-10 with 8 of 64 rows. There are 2 ranks with one thread each. `single` is one rank, or one
process of PyTorch, that has both cores. Without --text the text is the guide; without --images the images are
noise.

First, every schedule of both sides runs once, to find the fastest. Then every round runs the fastest of both
sides, 1f1b of both, and the `gemm` crate on 2 threads. The rate of `gemm` bounds what is possible: rate * (1
- bubble) / operations per token. The bubble is the schedule's, computed from the operations of its stages;
causal attention counts without its masked half. Figures are medians over rounds; a ratio compares figures of
the same round. Peak resident memory is summed over processes. If losses differ by more than 1e-4, the program
stops.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile

import processes
import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OURS = ["single", "1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-2p", "zb-v", "auto", "auto:2"]
THEIRS = ["single", "1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
RANKS = 2
WARM_UP = 2
# Timed steps of a run: in a round, and in the search for the fastest schedule.
STEPS = {"A": (8, 4), "B": (5, 2), "C": (100, 30), "D": (10, 4)}
TOLERANCE = 1e-4


@dataclasses.dataclass
class Run:
    """One run: targets (tokens or rows) per second, MiB, losses, and all else that it printed."""

    rate: float
    memory: float
    losses: list
    others: float
    said: dict


class Job:
    """One size with its data. Runs either side on it."""

    def __init__(self, given, binary, name, folder):
        self.given, self.name, self.folder = given, name, folder
        self.ours_base = [binary, "--size", name]
        self.data = (images if name == "D" else text)(given, folder)
        steps = WARM_UP + max(STEPS[name])
        subprocess.run(self.ours_base + ["prepare", "--data", self.data, "--steps", str(steps), "--out", folder], check=True,
                       stdout=subprocess.DEVNULL)
        self.size = json.loads((folder / "size.json").read_text())
        self.first_losses = None
        self.off, self.peer = 0.0, None

    def ours(self, schedule, timed, ranks=RANKS):
        command = self.ours_base + ["train", "--data", self.data, "--steps", str(WARM_UP + timed)]
        if schedule == "single":
            command += ["--schedule", "1f1b", "--ranks", "1", "--threads", str(RANKS)]
        else:
            command += ["--schedule", schedule, "--ranks", str(ranks)]
        return self.run([command], [{}])

    def theirs(self, schedule, timed):
        command = [self.given.python, HERE / "peer.py", "--folder", self.folder, "--schedule", schedule]
        command += ["--steps", str(WARM_UP + timed), "--threads", str(RANKS)]
        ranks = 1 if schedule == "single" else RANKS
        meeting = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        done = self.run([command] * ranks, [{**meeting, "RANK": str(rank)} for rank in range(ranks)])
        self.peer = done.said["peer"]
        return done

    def run(self, commands, environments):
        lines, memory, others = processes.run(commands, environments, self.given.limit)
        said = [json.loads(line) for line in lines]
        steps = [max(times) for times in zip(*(one["seconds"] for one in said))]
        losses = [statistics.mean(parts) for parts in zip(*(one["losses"] for one in said if one["losses"]))]
        self.compare(losses, commands[0])
        return Run(self.size["targets"] / statistics.median(steps[WARM_UP:]), memory, losses, others, said[0])

    def compare(self, losses, command):
        self.first_losses = max(self.first_losses or [], losses, key=len)
        off = max(abs(a - b) for a, b in zip(losses, self.first_losses))
        self.off = max(self.off, off)
        if off > TOLERANCE:
            sys.exit(f"{' '.join(map(str, command))}: a loss is off by {off:.1e}, more than {TOLERANCE}")

    def gemm(self):
        command = self.ours_base + ["rate", "--threads", str(RANKS)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parsed(about, own_arguments):
    """The arguments of a comparison: those that all have, and its own."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=os.environ.get("PIPEWRIGHT_PEER_PYTHON", sys.executable),
                        help="a Python with torch and safetensors (or $PIPEWRIGHT_PEER_PYTHON)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="timed steps of every run, instead of a number for each size")
    parser.add_argument("--text", type=pathlib.Path, help="a file of text for A, B and C")
    parser.add_argument("--images", type=pathlib.Path, help="a folder with a pair of IDX files of 28 x 28 for D")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a run counts as failed")
    parser.add_argument("--json", type=pathlib.Path, help="where all figures are written")
    own_arguments(parser)
    given = parser.parse_args()
    if given.steps:
        STEPS.update({size: (given.steps, given.steps) for size in STEPS})
    return given


def own_arguments(parser):
    parser.add_argument("--sizes", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--ours", nargs="+", default=OURS, help="our schedules; auto:2 has two stages a rank")
    parser.add_argument("--theirs", nargs="+", default=THEIRS, choices=THEIRS, help="the peer's schedules")
    parser.add_argument("--many-ranks", type=int, default=8, help="so many ranks against 2 at size A; 0 for none")


def text(given, folder):
    if given.text:
        return given.text.resolve()
    path = folder / "guide.txt"
    path.write_bytes(b"".join(page.read_bytes() for page in sorted((ROOT / "book/src").glob("*.md"))))
    return path


def images(given, folder):
    if given.images:
        return given.images.resolve()
    path, count, noise = folder / "images", 4096, random.Random(0)
    path.mkdir()
    pixels = struct.pack(">IIII", 0x803, count, 28, 28) + noise.randbytes(count * 28 * 28)
    (path / "noise-images-idx3-ubyte").write_bytes(pixels)
    labels = bytes(noise.randrange(10) for _ in range(count))
    (path / "noise-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)
    return path


def build():
    """The benchmark's binary."""
    command = ["cargo", "build", "--release", "--bench", "compare_torch", "--message-format", "json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    messages = map(json.loads, lines)
    # cargo also builds the `pipewright` command, and lists it too.
    return next(one["executable"] for one in messages if one.get("target", {}).get("name") == "compare_torch" and one["executable"])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fastest(job, side, schedules):
    """The fastest schedule of a side, and the speed and memory of every schedule in one run."""
    found = {}
    for schedule in schedules:
        if side == "theirs" and schedule not in (*job.size["cuts"], "single"):
            print(f"  {side:<7} {schedule:<22} needs more stages than there are units", flush=True)
            continue
        try:
            done = getattr(job, side)(schedule, STEPS[job.name][1])
        except processes.Failed as failure:
            print(f"  {side:<7} {schedule:<22} does not run: {failure}", flush=True)
            continue
        found[schedule] = {"rate": done.rate, "MiB": done.memory}
        print(f"  {side:<7} {schedule:<22} {done.rate:>9.0f} {done.memory:>7.0f} MiB", flush=True)
    if not found:
        sys.exit(f"no schedule of {side} ran")
    return max(found, key=lambda schedule: found[schedule]["rate"]), found


def play_round(job, best, peer_best):
    """Every figure of one round."""
    timed = STEPS[job.name][0]
    ours, theirs = job.ours(best, timed), job.theirs(peer_best, timed)
    same = ours if best == "1f1b" else job.ours("1f1b", timed)
    peer_same = theirs if peer_best == "1F1B" else job.theirs("1F1B", timed)
    gemm = job.gemm()
    runs = [ours, theirs, same, peer_same]
    bound = (1 - ours.said["bubble"]) / job.size["flops"]
    same_bound = (1 - same.said["bubble"]) / job.size["flops"]
    figures = {
        "ours": ours.rate, "theirs": theirs.rate, "ratio": ours.rate / theirs.rate,
        "1f1b": same.rate, "1F1B": peer_same.rate, "1f1b ratio": same.rate / peer_same.rate,
        "of bound": ours.rate / (gemm["best"] * bound), "of mean bound": ours.rate / (gemm["mean"] * bound),
        "1f1b of bound": same.rate / (gemm["best"] * same_bound), "1f1b of mean bound": same.rate / (gemm["mean"] * same_bound),
        "GFLOP/s": gemm["best"] / 1e9, "mean GFLOP/s": gemm["mean"] / 1e9,
        "MiB": ours.memory, "their MiB": theirs.memory, "1f1b MiB": same.memory, "1F1B MiB": peer_same.memory,
        "us/action": 1e6 * job.size["targets"] / same.rate / same.said["actions"],
    }
    if job.given.many_ranks and job.name == "A":
        many = job.ours("1f1b", timed, job.given.many_ranks)
        figures["many/2 ranks"] = many.rate / same.rate
        runs.append(many)
    return figures | {"others": max(run.others for run in runs)}


def measure(job):
    """The medians over the rounds, with the size and the schedules."""
    print(f"\nsize {job.name}: {'rows' if job.name == 'D' else 'tokens'}/s of every schedule, one run each", flush=True)
    best, ours = fastest(job, "ours", job.given.ours)
    peer_best, theirs = fastest(job, "theirs", job.given.theirs)
    print(f"\nsize {job.name}: ours {best}, theirs {peer_best}", flush=True)
    rounds = []
    for number in range(1, job.given.rounds + 1):
        rounds.append(play_round(job, best, peer_best))
        if number == 1:
            print_row("round", rounds[0], rounds[0])
        print_row(number, rounds[-1], rounds[-1].values())
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    print_row("median", medians, medians.values())
    print(f"losses within {job.off:.1e}", flush=True)
    return {
        "size": job.name, "best": best, "peer best": peer_best, "off": job.off, "medians": medians, "rounds": rounds,
        "ours": ours, "theirs": theirs, "peer": job.peer,
    }


def print_row(first, names, cells):
    shown = (cell if isinstance(cell, str) else f"{cell:.{0 if cell >= 1000 else 3}f}" for cell in cells)
    print(f"{first:>6}" + "".join(f"{cell:>{max(len(name), 7) + 2}}" for name, cell in zip(names, shown)), flush=True)


def main():
    given = parsed(__doc__, own_arguments)
    binary = build()
    results = []
    for name in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(Job(given, binary, name, pathlib.Path(folder))))
        if given.json:
            given.json.write_text(json.dumps(results, indent=1))
    report.print_tables(results)


if __name__ == "__main__":
    main()
