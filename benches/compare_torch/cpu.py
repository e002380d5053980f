"""What this CPU is: its name and what it can do with wide registers."""
import os
import pathlib

WIDE = ("avx", "amx")


def described():
    """Name, family, model, number of cores that this process may use, and the AVX and AMX flags."""
    said = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        said[key.strip()] = value.strip()
    flags = sorted(flag for flag in said.get("flags", "").split() if flag.startswith(WIDE))
    return {
        "name": said.get("model name", "unknown"),
        "family": said.get("cpu family", "?"),
        "model": said.get("model", "?"),
        "cores": len(os.sched_getaffinity(0)),
        "flags": flags,
    }


def short(cpu):
    """The words for a cell of a table: the name, and the flags for numbers of 16 bits."""
    halves = [flag for flag in cpu["flags"] if flag in ("amx_bf16", "avx512_bf16", "avx512f")]
    return " ".join([cpu["name"], *halves])


def long(cpu):
    """The words for the line above a table."""
    return (f"{cpu['name']} (family {cpu['family']}, model {cpu['model']}), {cpu['cores']} cores; "
            f"{' '.join(cpu['flags']) or 'neither AVX nor AMX'}")
