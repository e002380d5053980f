#!/usr/bin/env python3
"""Training on one GPU against PyTorch: the same weights and batches, in turn on the same GPU.

    python3 benches/gpu/compare.py --python PYTHON_WITH_TORCH [--binary BENCH] [--stages 1 2 4] [--rounds 3] [--size gpt2]

PYTHON_WITH_TORCH has torch and safetensors. BENCH is the built bench `gpu`; without it cargo builds it.

Every round runs us with each number of stages, all on the one GPU, and then the peer in both its recipes (`peer.py`), which stays loaded: it
compiles for a minute. Figures are medians of rounds, of tokens a second by the median step; a ratio is one of the same round. MFU is
6 N + 12 L C T operations a token (causal: 6 N + 6 L C T) of 989.4 TFLOP/s, a data sheet's dense bf16; the share is the first formula's of the 790
that products of 8192^3 random numbers were seen to reach. Losses that differ by more than 2e-2 end it: all are in bf16.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WARM_UP = 3
PEAK, SEEN = 989.4e12, 790e12
TOLERANCE = 2e-2
RECIPES = ["bf16", "autocast"]


class Peer:
    """The peer with one recipe, asked for steps again and again."""

    def __init__(self, given, folder, recipe):
        command = [given.python, ROOT / "benches/gpu/peer.py", "--folder", folder, "--recipe", recipe, "--device", given.peer_device]
        command += [] if given.compile else ["--no-compile"]
        self.recipe = recipe
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = self.answer()["peer"]

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"the peer in {self.recipe} ended early")
        return json.loads(line)

    def steps(self, count):
        self.child.stdin.write(f"{count}\n")
        self.child.stdin.flush()
        return self.answer()

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Job:
    """One size, and how to run either side on it."""

    def __init__(self, given, binary, folder):
        self.given, self.folder = given, folder
        steps = WARM_UP + given.steps * given.rounds
        self.command = [binary, "--size", given.size, "--data", given.data, "--device", given.device]
        self.run(["--steps", str(steps), "prepare", "--out", folder])
        self.size = json.loads((folder / "size.json").read_text())
        self.losses = []

    def run(self, words):
        done = subprocess.run([*self.command, *words], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, done.args))} ended with {done.returncode}")
        return done.stdout

    def ours(self, stages):
        said = self.run(["--steps", str(WARM_UP + self.given.steps), "train", "--json", "--stages", str(stages)])
        if not said.startswith("{"):
            print(said.strip())
            sys.exit(0)
        said = json.loads(said)
        self.check(said["losses"], f"{stages} stages")
        return self.rate(said["seconds"][WARM_UP:])

    def rate(self, seconds):
        return self.size["targets"] / statistics.median(seconds)

    def check(self, losses, whose):
        """All begin with the same weights and batches, so the same steps have the same losses."""
        self.losses = self.losses or losses
        off = max(abs(a - b) for a, b in zip(losses, self.losses))
        if off > TOLERANCE:
            sys.exit(f"{whose}: a loss is off by {off:.1e}, more than {TOLERANCE}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=os.environ.get("PIPEWRIGHT_PEER_PYTHON", sys.executable),
                        help="a Python with torch and safetensors (or $PIPEWRIGHT_PEER_PYTHON)")
    parser.add_argument("--binary", type=pathlib.Path, help="the built bench")
    parser.add_argument("--size", default="gpt2", choices=["gpt2", "tiny"])
    parser.add_argument("--stages", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a run")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "README.md", help="a file of text")
    parser.add_argument("--device", default="cuda:0", help="ours")
    parser.add_argument("--peer-device", default="cuda", help="the peer's, by PyTorch's name")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="the peer as it is")
    return parser.parse_args()


def build():
    """The bench's binary."""
    command = ["cargo", "build", "--release", "--bench", "gpu", "--message-format", "json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    messages = map(json.loads, lines)
    return next(one["executable"] for one in messages if one.get("target", {}).get("name") == "gpu" and one["executable"])


def play(job, peers):
    """Tokens a second of every round, by name."""
    for peer in peers:
        losses = peer.steps(WARM_UP)["losses"]
        # Updates in bf16 lead elsewhere.
        job.check(losses[:1] if peer.recipe == "bf16" else losses, peer.recipe)
    rounds = []
    for number in range(1, job.given.rounds + 1):
        rates = {f"{stages} stage{'s' * (stages > 1)}": job.ours(stages) for stages in job.given.stages}
        rates |= {f"peer, {peer.recipe}": job.rate(peer.steps(job.given.steps)["seconds"]) for peer in peers}
        print(f"round {number}: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()), flush=True)
        rounds.append(rates)
    return rounds


def print_table(job, rounds, name):
    theirs = (one for one in rounds[0] if one.startswith("peer"))
    best = max(theirs, key=lambda one: statistics.median(rates[one] for rates in rounds))
    first = next(iter(rounds[0]))
    print(f"\n{name}, compiled: {job.given.compile}; {job.size['targets']:,} tokens a step, medians of {len(rounds)} rounds")
    print(f"\n| | tokens/s | of {first} | of {best} | MFU | causal | of 790 TFLOP/s |")
    print("| --- | " + " | ".join(["---"] * 6) + " |")
    for one in rounds[0]:
        rate = statistics.median(rates[one] for rates in rounds)
        of_first, of_best = (statistics.median(rates[one] / rates[other] for rates in rounds) for other in (first, best))
        full, causal = (rate * flops for flops in job.size["mfu_flops"])
        print(f"| {one} | {rate:,.0f} | {of_first:.3f} | {of_best:.3f} | {full / PEAK:.1%} | {causal / PEAK:.1%} | {full / SEEN:.1%} |")


def main():
    given = arguments()
    binary = given.binary.resolve() if given.binary else build()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(given, binary, pathlib.Path(folder))
        job.ours(given.stages[0])
        peers = [Peer(given, folder, recipe) for recipe in RECIPES]
        try:
            rounds = play(job, peers)
        finally:
            for peer in peers:
                peer.close()
        print_table(job, rounds, peers[0].name)


if __name__ == "__main__":
    main()
