"""Runs commands side by side and counts what the operating system says they used."""
import os
import pathlib
import subprocess
import tempfile
import time


class Failed(Exception):
    """What a command wrote last before it failed."""


def run(commands, environments, limit):
    """The last line each command printed, the MiB that all had resident at their peaks, and the cores other processes took.

    A process counts with at least what this one had when it started it, some 15 MiB: so Linux counts. When one fails, or
    after `limit` seconds, all end.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs = [pathlib.Path(folder) / str(index) for index in range(len(commands))]
        started, busy = time.monotonic(), busy_seconds()
        children = [start(*each) for each in zip(commands, environments, logs)]
        try:
            used = wait(children, logs, started + limit)
        finally:
            for child in children:
                if child.returncode is None:
                    child.kill()
                    child.wait()
        wall = time.monotonic() - started
        own = sum(usage.ru_utime + usage.ru_stime for usage in used)
        others = max(0.0, busy_seconds() - busy - own) / wall
        lines = [log.with_suffix(".out").read_text().strip().splitlines()[-1] for log in logs]
        return lines, sum(usage.ru_maxrss for usage in used) / 1024, others


def start(command, environment, log):
    with open(log.with_suffix(".out"), "w") as out, open(log.with_suffix(".err"), "w") as err:
        return subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **environment})


def wait(children, logs, deadline):
    """What each child used; `returncode` stays None for those that still run when one fails."""
    used = {}
    while len(used) < len(children):
        for child, log in zip(children, logs):
            if child.pid in used:
                continue
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                used[pid] = usage
                if status:
                    raise Failed((log.with_suffix(".err").read_text().strip().splitlines() or ["it said nothing"])[-1])
        if time.monotonic() > deadline:
            raise Failed("did not end in time")
        time.sleep(0.02)
    return list(used.values())


def busy_seconds():
    """Seconds that all cores together have worked; 0 where the system does not say."""
    try:
        user, nice, system = pathlib.Path("/proc/stat").read_text().split()[1:4]
    except OSError:
        return 0.0
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
