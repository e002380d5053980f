"""Runs commands side by side. Reports the memory and cores that they used, from the operating system."""
import os
import pathlib
import subprocess
import tempfile
import time


class Failed(Exception):
    """A command failed. The text is the last line that it wrote."""


def run(commands, environments, limit):
    """The last line of each command, their summed peak memory in MiB, and the cores that others used.

    Linux counts at least this process's own memory when it started the command, some 15 MiB. If one command
    fails, or after `limit` seconds, all are ended.
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
    """The resources of each child. If one fails, `returncode` stays None for those that still run."""
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
    """Seconds that all cores together have worked; 0 if the system does not report it."""
    try:
        user, nice, system = pathlib.Path("/proc/stat").read_text().split()[1:4]
    except OSError:
        return 0.0
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
