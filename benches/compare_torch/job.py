"""One size with its data, and a run of either side on it."""
import dataclasses
import itertools
import json
import pathlib
import random
import socket
import statistics
import struct
import subprocess

import processes

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RANKS = 2
WARM_UP = 2
# Timed steps of a run: in a round, and in the search for the fastest schedule.
STEPS = {"A": (8, 4), "B": (5, 2), "C": (100, 30), "D": (10, 4), "S": (3, 2)}
STEPS_OF_DRAWN = (5, 2)
# How far rounding moves a number, as a fraction of it.
ROUNDING = {"f32": 2.0**-24, "bf16": 2.0**-9}
# How many times the change after one rounding of every starting weight two losses may differ.
ROUNDINGS = 16


class Differs(Exception):
    """A loss differs by more than rounding explains."""


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
        self.ours_base = [binary, "--size", given.drawn.get(name, name)]
        self.steps = (given.steps,) * 2 if given.steps else STEPS.get(name, STEPS_OF_DRAWN)
        self.data = (images if name == "D" else text)(given, folder)
        steps = WARM_UP + max(self.steps)
        prepare = ["prepare", "--data", self.data, "--steps", str(steps), "--out", folder]
        subprocess.run(self.ours_base + prepare, check=True, stdout=subprocess.DEVNULL)
        self.size = json.loads((folder / "size.json").read_text())
        self.first_losses, self.bounds = None, None
        self.off, self.peer = 0.0, None

    def ours(self, schedule, timed, ranks=RANKS):
        command = self.ours_base + ["train", "--data", self.data, "--steps", str(WARM_UP + timed)]
        command += ["--dtype", self.given.dtype]
        if schedule == "single":
            command += ["--schedule", "1f1b", "--ranks", "1", "--threads", str(RANKS)]
        else:
            command += ["--schedule", schedule, "--ranks", str(ranks)]
        return self.run([command], [{}])

    def theirs(self, schedule, timed):
        command = self.peer_command(schedule, WARM_UP + timed)
        ranks = 1 if schedule == "single" else RANKS
        meeting = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        done = self.run([command] * ranks, [{**meeting, "RANK": str(rank)} for rank in range(ranks)])
        self.peer = done.said["peer"]
        return done

    def peer_command(self, schedule, steps):
        command = [self.given.python, HERE / "peer.py", "--folder", self.folder, "--schedule", schedule]
        command += ["--steps", str(steps), "--threads", str(RANKS)]
        return command + ["--autocast"] * (self.given.dtype == "bf16")

    def run(self, commands, environments):
        done = self.run_alone(commands, environments)
        self.compare(done.losses, commands[0])
        return done

    def run_alone(self, commands, environments):
        lines, memory, others = processes.run(commands, environments, self.given.limit)
        said = [json.loads(line) for line in lines]
        steps = [max(times) for times in zip(*(one["seconds"] for one in said))]
        losses = [statistics.mean(parts) for parts in zip(*(one["losses"] for one in said if one["losses"]))]
        return Run(self.size["targets"] / statistics.median(steps[WARM_UP:]), memory, losses, others, said[0])

    def compare(self, losses, command):
        self.bounds = self.bounds or self.measured_bounds()
        self.first_losses = max(self.first_losses or [], losses, key=len)
        for step, (loss, first, bound) in enumerate(zip(losses, self.first_losses, self.bounds)):
            self.off = max(self.off, abs(loss - first))
            if not abs(loss - first) <= bound:
                raise Differs(f"{' '.join(map(str, command))}: the loss of step {step} is {loss}, and another run has {first}: "
                              f"more than {bound:.1e} apart, which is what rounding may do")

    def measured_bounds(self):
        """How far apart rounding may bring the losses of each step. No number fits all work: what a rounding
        does grows from step to step, and how fast depends on model, data and learning rate. So the peer trains twice, once from
        starting weights that are each rounded another way."""
        rounding = ROUNDING[self.given.dtype]
        command = self.peer_command("single", WARM_UP + max(self.steps))
        plain, nudged = (self.run_alone([[*command, "--nudge", str(nudge)]], [{}]).losses for nudge in (0, rounding))
        moved = [max(abs(a - b), rounding * abs(a)) for a, b in zip(plain, nudged)]
        return [ROUNDINGS * most for most in itertools.accumulate(moved, max)]

    def rates(self):
        """Operations a second of the size's products: the `gemm` crate in f32, PyTorch's library in bf16."""
        command = self.ours_base + ["rate", "--threads", str(RANKS)]
        if self.given.dtype == "bf16":
            command = [self.given.python, HERE / "products.py", "--folder", self.folder, "--threads", str(RANKS)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


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


def build(given):
    """The benchmark's binary: the given one, or one that cargo builds."""
    if given.binary:
        return given.binary.resolve()
    command = ["cargo", "build", "--release", "--bench", "compare_torch", "--message-format", "json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    messages = map(json.loads, lines)
    # cargo also builds the `pipewright` command, and lists it too.
    named = (one for one in messages if one.get("target", {}).get("name") == "compare_torch")
    return next(one["executable"] for one in named if one["executable"])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


