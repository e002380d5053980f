#!/usr/bin/env python3
"""What the loss of a process costs: one of two is killed, and started again or replaced by a spare.

    python3 benches/lost_process.py PIPEWRIGHT [--rounds 3]

PIPEWRIGHT is the program, compiled with optimisation. Two processes of one rank each train size A, with a snapshot
every 10 steps. Process 1 is killed in the first, the fifth and the last step after a snapshot. Prints the seconds from
then until this step is done, which includes the steps that are repeated, beside the seconds of a step. Then it prints
what a step costs with `train.restarts` and without, in turn.
"""
import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

EVERY = 10
AGES = [0, 4, 9]
CONFIG = """
[model]
dim = 256
layers = 8
heads = 8

[data]
path = "builtin:shakespeare"
seq = 128

[pipeline]
stages = 2
micro_batches = 8
micro_batch_size = 4
threads_per_rank = 1

[train]
name = 'lost'
steps = 1000000
validate_every = 0

[checkpoint]
every = 0
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Run:
    """Two processes, and a spare if there should be one."""

    def __init__(self, program, restarts, has_spare=False):
        self.folder = tempfile.TemporaryDirectory()
        self.metrics = Path(self.folder.name) / "runs/lost/metrics.jsonl"
        (Path(self.folder.name) / "my.toml").write_text(CONFIG)
        self.place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.args = [program, "train", "my.toml", "--set", f"train.restarts={restarts}"]
        self.args += ["--set", f"train.snapshot_every={EVERY}"]
        self.processes = [self.start(rank) for rank in (0, 1)]
        self.spare = self.command([*self.args, "--spare"], {}) if has_spare else None

    def command(self, args, place):
        env = {**os.environ, **self.place, **place}
        return subprocess.Popen(args, cwd=self.folder.name, env=env, stdout=subprocess.DEVNULL)

    def start(self, rank):
        return self.command(self.args, {"RANK": str(rank), "WORLD_SIZE": "2"})

    def lines(self):
        return self.metrics.read_text().splitlines() if self.metrics.exists() else []

    def await_steps(self, count):
        while len(self.lines()) < count:
            if self.processes[0].poll() is not None:
                raise SystemExit("process 0 has ended")
            time.sleep(0.001)

    def seconds(self, begin, end):
        return statistics.median(json.loads(line)["seconds"] for line in self.lines()[begin:end])

    def end(self):
        for process in [*self.processes, self.spare]:
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.wait()


def lost(program, age, has_spare):
    """Seconds from the death of process 1 until its step is done, and the seconds of a step."""
    run = Run(program, 1, has_spare)
    killed_in = 2 * EVERY + age
    run.await_steps(killed_in)
    time.sleep(run.seconds(EVERY, killed_in) / 2)
    begin = time.monotonic()
    run.processes[1].kill()
    run.processes[1].wait()
    if not has_spare:
        run.processes[1] = run.start(1)
    run.await_steps(killed_in + 1)
    seconds = time.monotonic() - begin
    step = run.seconds(EVERY, killed_in)
    run.end()
    return seconds, step


def step_of(program, restarts):
    run = Run(program, restarts)
    run.await_steps(4 * EVERY)
    run.end()
    lines = [json.loads(line)["seconds"] for line in run.lines()[EVERY:4 * EVERY]]
    return statistics.mean(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for has_spare in (False, True):
        for age in AGES:
            rounds = [lost(given.program, age, has_spare) for _ in range(given.rounds)]
            seconds, steps = zip(*rounds)
            who = "a spare" if has_spare else "started again"
            print(f"{who}, {age} steps after a snapshot: {statistics.median(seconds):.2f} s "
                  f"({min(seconds):.2f} to {max(seconds):.2f}), a step {statistics.median(steps):.3f} s", flush=True)
    pairs = [[step_of(given.program, restarts) for restarts in (0, 3)] for _ in range(given.rounds)]
    ratios = [with_restarts / without for without, with_restarts in pairs]
    print(f"a step with train.restarts: {statistics.median(ratios):.3f} of one without "
          f"({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
