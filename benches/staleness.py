#!/usr/bin/env python3
"""What staleness does: two processes with a replica each, kept alike by reductions or by a parameter server.

    python3 benches/staleness.py --data tinyshakespeare.txt --load none bursts

Each process has a core of its own. With the load `core`, another program is busy on the core of process 1 all
the time; with `bursts` it moves from one core to the other after every `--burst` seconds. With `--rate`, the
processes are in two network namespaces, and the link between them is so slow; this needs root.

Prints a row for each setting: tokens a second, the loss of a validation after the last step (the least, the
mean and the most of all rounds), how stale weights were, and how much of the cores other programs took in the
worst round.
"""
import argparse
import contextlib
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/pipewright"
PORT = 29731
HOSTS = ["pw-stale-0", "pw-stale-1"]
BUSY = """
import os, sys, time
burst, until = float(sys.argv[1]), time.time()
core = 1
while True:
    os.sched_setaffinity(0, {core})
    until += burst
    while time.time() < until:
        pass
    core = core if sys.argv[2] == "core" else 1 - core
"""


@contextlib.contextmanager
def slow_link(rate):
    """Two network namespaces with a link of this rate."""
    run = lambda words: subprocess.run(words.split(), check=True)
    try:
        for host in HOSTS:
            run(f"ip netns add {host}")
        run(f"ip link add pw0 netns {HOSTS[0]} type veth peer name pw1 netns {HOSTS[1]}")
        for number, host in enumerate(HOSTS):
            inside = f"ip netns exec {host}"
            run(f"{inside} ip address add 10.77.0.{number + 1}/24 dev pw{number}")
            run(f"{inside} ip link set pw{number} up")
            run(f"{inside} ip link set lo up")
            run(f"{inside} tc qdisc add dev pw{number} root tbf rate {rate} burst 256kb latency 400ms")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False)


@contextlib.contextmanager
def busy(load, burst):
    """Another program that takes its share of a core."""
    if load == "none":
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", BUSY, str(burst), load])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def busy_seconds():
    """Seconds in which all cores were busy, and the seconds of the processes that this one has waited for."""
    user, nice, system, _, _, irq, soft = map(int, open("/proc/stat").readline().split()[1:8])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def alone(given, *setting):
    """A run of a setting in which other programs took little of the cores. The last of the tries, if none is."""
    for _ in range(given.tries):
        (all_before, own_before), since = busy_seconds(), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = train(given, *setting, pathlib.Path(folder) / "run")
        all_after, own_after = busy_seconds()
        others = all_after - all_before - (own_after - own_before)
        share = others / (time.monotonic() - since) / os.cpu_count()
        if share < 0.04:
            break
    return *found, share


def train(given, load, staleness, folder):
    """Tokens a second, the validation loss, and what the run says of staleness."""
    settings = {
        "data.path": given.data, "data.seq": 64, "data.seed": given.seed,
        "pipeline.stages": 1, "pipeline.replicas": 2, "pipeline.micro_batches": 4,
        "pipeline.micro_batch_size": 4, "pipeline.pin": "false",
        "optimizer.schedule": "constant", "optimizer.learning_rate": given.learning_rate,
        "train.validate_every": given.steps, "checkpoint.every": 0,
    }
    if staleness is not None:
        settings |= {"pipeline.sync": "server", "pipeline.max_staleness": staleness}
    command = [BINARY, "train", "examples/gpt-text.toml", "--run-dir", folder, "--steps", str(given.steps)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    host = "10.77.0.1" if given.rate else "127.0.0.1"
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": str(PORT)}
    with busy(load, given.burst):
        processes = []
        for rank in range(2):
            inside = ["ip", "netns", "exec", HOSTS[rank]] if given.rate else []
            words = inside + ["taskset", "-c", str(rank)] + command
            environment = os.environ | place | {"RANK": str(rank)}
            processes.append(subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True))
        said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"a process failed: {said}")
    seconds = float(re.search(r"done: \d+ steps in ([\d.]+) s", said[0])[1])
    loss = float(re.search(r"validation loss ([\d.]+)", said[0])[1])
    stale = re.search(r"weights at most (\d+) steps old, ([\d.]+) on average", said[0])
    return given.steps * 4 * 4 * 64 / seconds, loss, (int(stale[1]), float(stale[2])) if stale else (0, 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the text to train on")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tries", type=int, default=3, help="of a run while other programs are busy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4, 8])
    parser.add_argument("--load", nargs="+", choices=["none", "core", "bursts"], default=["none"])
    parser.add_argument("--burst", type=float, default=0.5, help="seconds")
    parser.add_argument("--rate", help="of the link, such as 200mbit")
    given = parser.parse_args()
    given.data = pathlib.Path(given.data).resolve()
    print("| load | sync | tokens/s | validation loss | most stale | stale on average | other programs |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with slow_link(given.rate) if given.rate else contextlib.nullcontext():
        for load in given.load:
            results = {staleness: [] for staleness in [None, *given.staleness]}
            for _ in range(given.rounds):
                for staleness, found in results.items():
                    found.append(alone(given, load, staleness))
            for staleness, found in results.items():
                rates, losses, stale, others = zip(*found)
                words = "reduce" if staleness is None else f"server, {staleness}"
                loss = f"{min(losses):.4f}, {statistics.mean(losses):.4f}, {max(losses):.4f}"
                print(
                    f"| {load} | {words} | {statistics.median(rates):,.0f} | {loss} "
                    f"| {max(one[0] for one in stale)} | {statistics.mean(one[1] for one in stale):.1f} "
                    f"| {100 * max(others):.0f} % |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
