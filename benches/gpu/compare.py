#!/usr/bin/env python3
"""Compares training on one GPU with PyTorch: the same weights and batches, in turn on the same GPU.

    python3 benches/gpu/compare.py --python PYTHON_WITH_TORCH [--binary BENCH] [--stages 1 2 4] [--rounds 3]
        [--size gpt2]

PYTHON_WITH_TORCH must have torch and safetensors. BENCH is the built bench `gpu`; without it cargo builds it.

Every round runs our side with each number of stages, all on the one GPU, and then the peer with both its
recipes (`peer.py`). The peer stays loaded, because it compiles for a minute. Figures are medians over rounds
of tokens per second, by the median step; a ratio compares figures of the same round. MFU counts 6 N + 12 L C
T operations per token (causal: 6 N + 6 L C T), as a share of 989.4 TFLOP/s, the dense bf16 rate in the data
sheet. The last share is the first formula's, of the 790 TFLOP/s that products of 8192^3 random numbers have
reached.

All sides start with the same weights and batches. So the first losses must agree within 2e-2 (the precision
of bf16), and our losses must have the same bits for any number of stages. Later losses of the peer differ by
more, because the first updates of AdamW depend on little but the signs of gradients. The table shows these
differences. If something fails, or the program is told to end (SIGTERM), it prints a table of what was
measured, and its exit status is 1.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WARM_UP = 3
PEAK, SEEN = 989.4e12, 790e12
TOLERANCE = 2e-2
RECIPES = ["bf16", "autocast"]


class Ended(Exception):
    """A process ended early. The text says which one, and how."""


class Peer:
    """The peer with one recipe. It stays loaded between rounds."""

    def __init__(self, given, folder, recipe):
        command = [given.python, ROOT / "benches/gpu/peer.py", "--folder", folder, "--recipe", recipe, "--device", given.peer_device]
        command += [] if given.compile else ["--no-compile"]
        self.name = f"peer, {recipe}"
        environment = os.environ | {"LD_LIBRARY_PATH": given.peer_library_path}
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, count):
        try:
            self.child.stdin.write(f"{count}\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # There will be no answer.

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise Ended(f"{self.name}: ended with {self.child.wait()}")
        return json.loads(line)

    def steps(self, count):
        self.ask(count)
        return self.answer()


class Job:
    """One size. Runs our side on it, and keeps the results."""

    def __init__(self, given, binary, folder):
        self.given = given
        self.command = [binary, "--size", given.size, "--data", given.data, "--device", given.device]
        self.run(["--steps", str(WARM_UP + given.steps * given.rounds), "prepare", "--out", folder])
        self.size = json.loads((folder / "size.json").read_text())
        self.about = "PyTorch"
        self.losses = None
        self.off = {}
        self.rounds = []
        self.problems = []

    def run(self, words):
        done = subprocess.run([*self.command, *words], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise Ended(f"{' '.join(map(str, done.args))} ended with {done.returncode}")
        return done.stdout

    def ours(self, stages):
        said = self.run(["--steps", str(WARM_UP + self.given.steps), "train", "--json", "--stages", str(stages)])
        if not said.startswith("{"):
            print(said.strip())
            sys.exit(0)
        said = json.loads(said)
        name, losses = our_name(stages), said["losses"]
        self.losses = self.losses or losses
        self.compare(name, losses)
        if losses != self.losses:
            self.problem(f"{name}: the losses are not the bits of our first run")
        return self.rate(said["seconds"][WARM_UP:])

    def rate(self, seconds):
        return self.size["targets"] / statistics.median(seconds)

    def compare(self, name, losses):
        """Notes how much losses differ from our first run: the first loss, and the worst later one."""
        first, *later = (abs(one - other) for one, other in zip(losses, self.losses or []))
        self.off[name] = [max(pair) for pair in zip([first, max(later)], self.off.get(name, [0, 0]))]
        if not first <= TOLERANCE:
            self.problem(f"{name}: the first loss is off by {first:.1e}, more than {TOLERANCE}")

    def attempt(self, measure):
        """The result of `measure`. If it ends early, notes a problem and returns None."""
        try:
            return measure()
        except Ended as problem:
            return self.problem(problem)

    def problem(self, text):
        print(f"problem: {text}", flush=True)
        self.problems.append(text)


def our_name(stages):
    return f"{stages} stage{'s' * (stages > 1)}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=os.environ.get("PIPEWRIGHT_PEER_PYTHON", sys.executable),
                        help="a Python with torch and safetensors (or $PIPEWRIGHT_PEER_PYTHON)")
    parser.add_argument("--binary", type=pathlib.Path, help="the built bench")
    parser.add_argument("--size", default="gpt2", choices=["gpt2", "tiny"])
    parser.add_argument("--stages", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round that would not end within these")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a run")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "README.md", help="a file of text")
    parser.add_argument("--device", default="cuda:0", help="ours")
    parser.add_argument("--peer-library-path", default=os.environ.get("LD_LIBRARY_PATH", ""),
                        help="the peer's LD_LIBRARY_PATH, when it is not to have our libraries of CUDA")
    parser.add_argument("--rows", type=pathlib.Path, help="a file that gets a row for the peer, beside what was guessed")
    parser.add_argument("--peer-device", default="cuda", help="the peer's, by PyTorch's name")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="the peer as it is")
    return parser.parse_args()


def build():
    """The bench's binary."""
    command = ["cargo", "build", "--release", "--bench", "gpu", "--message-format", "json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    messages = map(json.loads, lines)
    return next(one["executable"] for one in messages if one.get("target", {}).get("name") == "gpu" and one["executable"])


def play(job, peers, began):
    """Measures round by round. Appends to the job's rounds: tokens per second, by name."""
    given = job.given
    for peer in peers:
        peer.ask(WARM_UP)
    # Our side is measured once while the peers compile.
    job.attempt(lambda: job.ours(given.stages[0]))
    sides = [(our_name(stages), lambda stages=stages: job.ours(stages)) for stages in given.stages]
    for peer in peers:
        if job.attempt(lambda: warm_up(job, peer)):
            sides.append((peer.name, lambda peer=peer: job.rate(peer.steps(given.steps)["seconds"])))
    longest = 0
    for number in range(1, given.rounds + 1):
        started = time.monotonic()
        if started + longest > began + given.seconds:
            print(f"no time for round {number}")
            break
        rates = {}
        job.rounds.append(rates)
        for name, measure in sides:
            rate = job.attempt(measure)
            if rate:
                rates[name] = rate
                print(f"round {number}: {name} {rate:,.0f} tokens/s", flush=True)
        longest = max(longest, time.monotonic() - started)


def warm_up(job, peer):
    job.about = peer.answer()["peer"]
    losses = peer.answer()["losses"]
    if job.losses:
        job.compare(peer.name, losses)
    return True


def print_table(job):
    rounds = [rates for rates in job.rounds if rates]
    names = list(dict.fromkeys(name for rates in rounds for name in rates))
    if not names:
        return
    median = {name: statistics.median(rates[name] for rates in rounds if name in rates) for name in names}
    best = max((name for name in names if name.startswith("peer")), key=median.get, default="the peer")

    def ratio(name, other):
        ratios = [rates[name] / rates[other] for rates in rounds if name in rates and other in rates]
        return f"{statistics.median(ratios):.3f}" if ratios else "-"

    print(f"\n{job.about}, compiled: {job.given.compile}; {job.size['targets']:,} tokens a step, medians, rounds: {len(rounds)}")
    print(f"\n| | tokens/s | of {names[0]} | of {best} | MFU | causal | of 790 TFLOP/s | first loss off by | later |")
    print("| --- | " + " | ".join(["---"] * 8) + " |")
    for name in names:
        full, causal = (median[name] * flops for flops in job.size["mfu_flops"])
        off = " | ".join(f"{off:.1e}" for off in job.off.get(name, [float("nan")] * 2))
        shares = f"{full / PEAK:.1%} | {causal / PEAK:.1%} | {full / SEEN:.1%}"
        print(f"| {name} | {median[name]:,.0f} | {ratio(name, names[0])} | {ratio(name, best)} | {shares} | {off} |")


def add_row(job):
    """A row of the bench's table, for the peer with the recipe that was guessed."""
    rates = [rates["peer, bf16"] for rates in job.rounds if "peer, bf16" in rates]
    if job.given.rows and rates:
        job.command += ["--rows", job.given.rows]
        print(job.run(["peer", str(statistics.median(rates))]))


def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    given, began = arguments(), time.monotonic()
    signal.signal(signal.SIGTERM, stop)
    binary = given.binary.resolve() if given.binary else build()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job = Job(given, binary, folder)
        peers = [Peer(given, folder, recipe) for recipe in RECIPES]
        try:
            play(job, peers, began)
        except KeyboardInterrupt:
            job.problem("stopped before its end")
        finally:
            print_table(job)
            job.attempt(lambda: add_row(job))
            for peer in peers:
                peer.child.kill()
    for problem in job.problems:
        print(f"problem: {problem}")
    sys.exit(bool(job.problems))


if __name__ == "__main__":
    main()
