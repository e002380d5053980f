#!/usr/bin/env python3
"""Trains while processes are killed, stopped, interrupted and robbed of their disk, and compares the weights.

    scripts/chaos.py PIPEWRIGHT                        1,000 faults: a quarter of an hour or less
    scripts/chaos.py PIPEWRIGHT --faults 100 --seed 7
    scripts/chaos.py PIPEWRIGHT --kinds kill stop --fabrics sockets

Each run has a small model, two or three stages, and one process (threads), several (sockets), several on hosts with
links between them (hosts; needs root, `ip` and `tc`), or several by `mpirun` (with `--fabrics mpi`, if PIPEWRIGHT was
built with MPI). A seeded list says what happens to it, and after how many steps:

    kill      SIGKILL of one process
    term      SIGTERM to one process
    int       SIGINT to one process
    stop      SIGSTOP of one process for 0.2 to 2 seconds (60 with --long), then SIGCONT
    full      its disk is full (a tmpfs; needs root)
    readonly  its disk is read-only from now on (a tmpfs; needs root)
    memory    one process gets no more memory from now on
    stranger  somebody connects to the port of process 0 and sends random bytes (sockets)
    cut       the cable of one host is pulled out (hosts)
    unplug    the same for 0.1 to 1 seconds (hosts)
    slow      all links let through 5 Mbit/s for 0.2 to 2 seconds (hosts)

With `--replace`, a process that has ended by a fault is started again, and the others wait for it (`train.restarts`).
Process 0 is not replaced: all end without it. Nobody sees when a process ends that has no memory, so that is left out.

After a fault that ends the run, all processes have to end within five seconds, with a checkpoint to go on from, and
`--resume` continues. At the end, the weights' hash has to be as in a run without faults. Ends with a table of
the times to notice and to recover, and with 1 if anything differs. What fails inside of a process, and is repeated
without ending it, is in `tests/restarts`.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hosts import Hosts

STEPS = 300
# A process that does not end in this time hangs.
PATIENCE = 60
# The longest time in which all processes must end after a fault.
NOTICED = 5
# How long a host may be silent, and the rates of links in Mbit/s.
SILENCE, FAST, SLOW = 5, 1000, 5
FABRICS = ["threads", "sockets", "hosts", "mpi"]
KINDS = ["kill", "term", "int", "full", "readonly", "memory", "stop", "stranger", "cut", "unplug", "slow"]
DISKS = ["full", "readonly"]
ONLY_ON = {"stranger": "sockets", "cut": "hosts", "unplug": "hosts", "slow": "hosts"}
CONFIG = """
[model]
dim = 16
layers = 4
heads = 2
dropout = 0.1
tied = true
[data]
path = "builtin:shakespeare"
seq = 16
[pipeline]
micro_batches = 4
micro_batch_size = 2
[train]
name = "small"
steps = {steps}
validate_every = 0
restarts = {restarts}
[checkpoint]
every = 10
"""


class Broken(Exception):
    """What must not happen."""


class Run:
    """A run in a folder of its own, in this many processes."""

    def __init__(self, program, folder, fabric, processes, hosts=None, replace=False):
        self.program, self.folder, self.fabric, self.processes = program, folder, fabric, processes
        self.hosts = hosts
        self.replaces = replace and processes > 1 and fabric != "mpi"
        (folder / "my.toml").write_text(CONFIG.format(steps=STEPS, restarts=1000 if self.replaces else 0))
        self.directory = folder / "disk" / "small"
        self.directory.parent.mkdir()
        self.port, self.commands, self.started, self.said = None, [], [], []

    def start(self):
        """Starts all processes. They go on where the run was left."""
        arguments = [self.program, "train", "my.toml", "--run-dir", self.directory, "--weights-hash"]
        if (self.directory / "checkpoints").is_dir() and any((self.directory / "checkpoints").glob("step-*")):
            arguments.append("--resume")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
        arguments += ["--set", f"pipeline.stages={max(2, self.processes)}"]
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        self.port = free_port()
        commands = [(arguments, environment)]
        if self.fabric == "mpi":
            mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(self.processes)]
            commands = [(mpirun + arguments + ["--set", "launch.fabric=mpi"], environment)]
        elif self.processes > 1:
            place = {"WORLD_SIZE": str(self.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
            within = lambda rank: []
            if self.fabric == "hosts":
                place["MASTER_ADDR"] = self.hosts.address(1)
                place |= {"PIPEWRIGHT_TOKEN": "a token of these hosts", "PIPEWRIGHT_SILENCE": str(SILENCE)}
                within = lambda rank: ["ip", "netns", "exec", self.hosts.name(rank + 1)]
            ranks = range(self.processes)
            commands = [(within(rank) + arguments, {**environment, **place, "RANK": str(rank)}) for rank in ranks]
        self.commands = commands
        self.said = [tempfile.TemporaryFile("w+", errors="replace") for _ in commands]
        self.started = [self.begin(number) for number in range(len(commands))]

    def begin(self, number):
        command, environment = self.commands[number]
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=self.said[number], stderr=subprocess.STDOUT
        )

    def replace(self):
        """Starts each process again that has ended, except process 0."""
        for number in range(1, len(self.started)):
            if self.started[number].poll() is not None:
                self.started[number] = self.begin(number)

    def texts(self):
        """What each process has said."""
        texts = []
        for said in self.said:
            said.seek(0)
            texts.append(said.read())
        return texts

    def victims(self):
        """The processes of the run: those that `mpirun` started, where it did."""
        if self.fabric != "mpi":
            return [process.pid for process in self.started]
        children = subprocess.run(["pgrep", "-P", str(self.started[0].pid)], capture_output=True, text=True)
        return [int(pid) for pid in children.stdout.split()]

    def done(self):
        """The steps whose numbers the run has written."""
        try:
            with open(self.directory / "metrics.jsonl", "rb") as lines:
                return sum(1 for _ in lines)
        except FileNotFoundError:
            return 0

    def has_ended(self):
        return all(process.poll() is not None for process in self.started)

    def await_steps(self, steps):
        """Waits until the run has done `steps` steps. Returns whether it is still running then."""
        since = time.monotonic()
        while self.done() < steps:
            if self.has_ended():
                return False
            if time.monotonic() - since > PATIENCE:
                self.end_all()
                raise Broken(f"it stands still after {self.done()} steps: {self.texts()}")
            time.sleep(0.002)
        return not self.has_ended()

    def await_end(self, patience):
        """Waits until all processes have ended. Returns the seconds."""
        since = time.monotonic()
        while not self.has_ended():
            if time.monotonic() - since > patience:
                texts = self.texts()
                self.end_all()
                raise Broken(f"it has not ended after {patience} s: {texts}")
            time.sleep(0.001)
        return time.monotonic() - since

    def end_all(self):
        for process in self.started:
            process.kill()
            process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Disk:
    """A tmpfs in which a run writes."""

    def __init__(self, run):
        self.path = run.folder / "disk"

    def mount(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "chaos", self.path], check=True)

    def fill(self):
        with open(self.path / "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass

    def read_only(self):
        """Refuses to write. A file that is open for writing must not stand in the way, so the folders are."""
        subprocess.run(["chattr", "-R", "+i", self.path], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "remount,size=1", self.path], check=False, stderr=subprocess.DEVNULL)

    def heal(self):
        subprocess.run(["chattr", "-R", "-i", self.path], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "remount,rw,size=64m", self.path], check=True)
        (self.path / "filler").unlink(missing_ok=True)

    def unmount(self):
        subprocess.run(["umount", self.path], check=False)


def annoy(port, chance):
    """A stranger at the port of process 0."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as stranger:
            stranger.sendall(chance.randbytes(chance.randrange(1, 4096)))
    except OSError:
        pass


def inject(run, disk, kind, chance, long):
    """One fault. Returns whether the run ends by it, and the seconds until all processes had ended."""
    victims = run.victims()
    if not victims:
        return False, None
    number = chance.randrange(len(victims))
    victim = victims[number]
    if kind == "stop":
        seconds = chance.uniform(1, 60) if long else chance.uniform(0.2, 2)
        os.kill(victim, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(victim, signal.SIGCONT)
        return False, None
    if kind == "stranger":
        annoy(run.port, chance)
        return False, None
    if kind == "unplug":
        run.hosts.connect(number + 1, False)
        time.sleep(chance.uniform(0.1, 1))
        run.hosts.connect(number + 1, True)
        return False, None
    if kind == "slow":
        run.hosts.links(SLOW)
        time.sleep(chance.uniform(0.2, 2))
        run.hosts.links(FAST)
        return False, None
    if kind == "memory":
        # It ends when it needs some, and that is not always.
        subprocess.run(["prlimit", "--pid", str(victim), "--as=1"], check=False, stderr=subprocess.DEVNULL)
        return False, None
    if kind == "kill" and run.replaces and number > 0:
        run.started[number].kill()
        run.started[number].wait()
        run.replace()
        return False, None
    if kind == "cut" and run.replaces:
        # Who cannot reach process 0 ends, and process 0 waits.
        run.hosts.connect(number + 1, False)
        time.sleep(SILENCE + 3)
        run.hosts.connect(number + 1, True)
        run.replace()
        return False, None
    if kind == "cut":
        run.hosts.connect(number + 1, False)
        seconds = run.await_end(PATIENCE)
        run.hosts.connect(number + 1, True)
        return True, seconds
    if kind == "full":
        disk.fill()
    elif kind == "readonly":
        disk.read_only()
    else:
        os.kill(victim, {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}[kind])
    seconds = run.await_end(PATIENCE)
    if kind in DISKS:
        # The run ends at its next checkpoint, and not before.
        seconds = None
        disk.heal()
    return True, seconds


def one_run(given, chance, expected, fabric, hosts, faults, told):
    """A run with these faults, to its end."""
    processes = 1 if fabric == "threads" else chance.choice([2, 3])
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        run = Run(given.program, Path(folder), fabric, processes, hosts, given.replace)
        disk = Disk(run)
        needs_disk = any(kind in DISKS for kind in faults)
        if needs_disk:
            disk.mount()
        try:
            left, since = list(faults), None
            while True:
                run.start()
                if since is not None:
                    begun = run.done()
                    run.await_steps(begun + 1)
                    told.append(("recovered", since[0], time.monotonic() - since[1]))
                    since = None
                lacks_memory = False
                while left and run.await_steps(min(run.done() + chance.randrange(1, 20), STEPS)):
                    kind = left.pop()
                    at = time.monotonic()
                    done = run.done()
                    ends, seconds = inject(run, disk, kind, chance, given.long)
                    told.append(("fault", kind, None))
                    if kind == "kill" and not ends and run.await_steps(min(done + 1, STEPS)):
                        told.append(("recovered", kind, time.monotonic() - at))
                    lacks_memory |= kind == "memory"
                    if seconds is not None:
                        if seconds > NOTICED + (SILENCE if kind == "cut" else 0):
                            raise Broken(f"after {kind} the last process ended in {seconds:.1f} s: {run.texts()}")
                        told.append(("noticed", kind, seconds))
                    if ends:
                        since = (kind, at)
                        break
                if since is not None:
                    continue
                run.await_end(PATIENCE)
                hashes = [re.findall(r"[0-9a-f]{64}", text) for text in run.texts()]
                found = {each[-1] for each in hashes if each}
                if not found and lacks_memory:
                    continue
                if found != {expected}:
                    raise Broken(f"weights {found}, expected {expected}: {run.texts()}")
                return
        finally:
            run.end_all()
            if hosts:
                hosts.heal(FAST)
            if needs_disk:
                disk.heal()
                disk.unmount()


def hash_without_faults(program):
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        run = Run(program, Path(folder), "threads", 1)
        run.start()
        run.await_end(PATIENCE)
        return re.findall(r"[0-9a-f]{64}", run.texts()[0])[-1]


def table(told):
    rows = sorted({kind for _, kind, _ in told})
    print(f"{'fault':<10}{'times':>6}{'all ended in s':>24}{'trained again in s':>24}")
    for kind in rows:
        count = sum(1 for what, of, _ in told if (what, of) == ("fault", kind))
        parts = []
        for what in ("noticed", "recovered"):
            seconds = [seconds for told_of, of, seconds in told if (told_of, of) == (what, kind)]
            otherwise = "at the next save" if kind in DISKS else "goes on"
            parts.append(f"{statistics.median(seconds):.3f} (worst {max(seconds):.2f})" if seconds else otherwise)
        print(f"{kind:<10}{count:>6}{parts[0]:>24}{parts[1]:>24}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--fabrics", nargs="*", choices=FABRICS, default=FABRICS[:2], help="hosts: needs root; mpi: if it was built with MPI")
    parser.add_argument("--replace", action="store_true", help="start processes again that are killed")
    parser.add_argument("--long", action="store_true", help="stop processes for up to a minute")
    given = parser.parse_args()
    given.program = given.program.resolve()
    kinds = [kind for kind in given.kinds if os.geteuid() == 0 or kind not in DISKS]
    chance = random.Random(given.seed)
    expected = hash_without_faults(given.program)
    told, wrong, runs = [], 0, 0
    count = lambda: sum(1 for what, _, _ in told if what == "fault")
    with Hosts(3) if "hosts" in given.fabrics else contextlib.nullcontext() as hosts:
        while count() < given.faults:
            fabric = given.fabrics[runs % len(given.fabrics)]
            able = [kind for kind in kinds if ONLY_ON.get(kind, fabric) == fabric]
            able = [kind for kind in able if not (given.replace and kind == "memory")]
            faults = [chance.choice(able) for _ in range(min(chance.randrange(4, 12), given.faults - count()))]
            runs += 1
            try:
                one_run(given, chance, expected, fabric, hosts, faults, told)
            except Broken as broken:
                wrong += 1
                print(f"run {runs} ({fabric}, seed {given.seed}, {faults}): {broken}", flush=True)
            print(f"\r{count()} faults in {runs} runs, {wrong} wrong", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table(told)
    print(f"{count()} faults in {runs} runs by {', '.join(given.fabrics)}, seed {given.seed}: {wrong} runs were wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
