#!/usr/bin/env python3
"""Reads the machine code of every GPU kernel, and compares what matters in it with a table in the repository.

    scripts/machine_code.py            ends with 1, and with a diff, if the table is out of date, a kernel spills registers, or
                                       it has no loads or stores of 16 bytes, or rounds less often than the CPU
    scripts/machine_code.py --write    writes the table anew

Needs no GPU: the compiler (NVRTC) and NVIDIA's tools for its output come from pip, in these versions. Other versions
may make other code. The sources and the options are the engine's: the test `cuda_compile` compiles them.
"""
import argparse
import collections
import concurrent.futures
import difflib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "stages/benches/machine_code.txt"
TOOLS = ROOT / "target/cuda"
CUBINS = TOOLS / "cubins"
WHEELS = ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-cuobjdump==13.2.51", "nvidia-cuda-nvdisasm==13.2.51"]

# Of a multiprocessor: bytes of shared memory, and its name. All have 65,536 registers, 64 warps and 32 blocks.
# CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability".
SHARED = {"sm_80": (164 << 10, "A100"), "sm_90a": (228 << 10, "H100, H200"), "sm_100a": (228 << 10, "B200")}
REGISTERS, WARPS, BLOCKS = 65536, 64, 32
# What CUDA takes of a block's shared memory. From sm_90 on, the compiler has counted it already.
RESERVED = 1024

# Registers that go to memory once, before and after the loop, and not in it.
ALLOWED = {("sm_100a", "attention_backward_kv_64_bf16"), ("sm_100a", "attention_forward_apart_112_bf16")}

# Kernels that load or store narrowly throughout, and why. Any other has loads and stores of 16 bytes.
NARROW = {
    "_any": "heads of any width",
    "attention_join_parts|attention_next": "wide loads, and they write a few rows",
    "attention_delta|cross_entropy_(score|groups)|experts_scores|pairwise_reward|preference": "a few numbers for each row",
    "moments|slopes|sum_|_sums|add_rows|find_difference": "sums",
    "global_average|max_pool|windows": "images lie in planes of any size",
    "clear_gradients|trial_numbers": "they load nothing",
    "decode_blocks|multiply_rows?_": "blocks begin at any even place, and a warp of a product writes two outputs",
    "dropout_columns|repeat_row": "some columns of short rows",
}

# Kernels with the bits of the CPU, which rounds each product. The compiler may join a product with the sum after it.
ROUNDED = "decode_blocks"

ABOUT = """\
What the compiler makes of each GPU kernel. `scripts/machine_code.py --write` makes this table, and CI compares it.
The compiler and the tools are those of pip: {wheels}.

regs     registers of a thread, of those by wgmma at the start: then warps that copy give some to warps that multiply
threads  the most threads in a block
static   bytes of shared memory that the kernel declares
dynamic  bytes that a launch adds, for the fused kernels of attention. What others add depends on the rows' width.
blocks   that fit on a multiprocessor at once, of so many threads and bytes
full     share of the multiprocessor's 64 warps that these are, in percent
spills   loads and stores of registers that did not fit (LDL, STL)
mma      products on tensor cores, of a warp (HMMA) or of four (HGMMA)
ldsm     loads of their operands from shared memory (LDSM)
cp.async copies from memory to shared memory, of 16 bytes or of boxes (LDGSTS, UTMALDG) / of fewer
loads    loads of 16 / 8 / 4 / 2 bytes in the code. Narrow ones beside wide ones are for ends of rows.
stores   the same for stores
"""
HEAD = ["regs", "threads", "static", "dynamic", "blocks", "full", "spills", "mma", "ldsm", "cp.async", "loads", "stores"]


def install():
    """The compiler and its tools, unless these versions are there."""
    there = [path.name for path in TOOLS.glob("*.dist-info")]
    if all(wheel.replace("-", "_").replace("==", "-") + ".dist-info" in there for wheel in WHEELS):
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--target", str(TOOLS)]
    subprocess.run([*pip, *WHEELS], check=True)


def compile_kernels():
    for old in CUBINS.glob("*"):
        old.unlink()
    library = TOOLS / "nvidia/cu13/lib/libnvrtc.so.13"
    environment = {**os.environ, "PIPEWRIGHT_NVRTC": str(library), "PIPEWRIGHT_CUBINS": str(CUBINS),
                   "LD_LIBRARY_PATH": str(library.parent)}
    cargo = [os.environ.get("CARGO", "cargo"), "test", "--quiet", "--workspace", "--test", "cuda_compile"]
    done = subprocess.run(cargo, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0 or not (CUBINS / "dynamic_shared").exists():
        sys.exit(f"the kernels were not compiled:\n{done.stdout}{done.stderr}")


def tool(name, *arguments):
    done = subprocess.run([TOOLS / "nvidia/cu13/bin" / name, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def resources(cubin):
    """Registers, static shared memory and the bound of threads of each kernel."""
    usage = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:\d+ SHARED:(\d+)", tool("cuobjdump", "-res-usage", cubin))
    threads, kernel = {}, None
    lines = iter(tool("cuobjdump", "-elf", cubin).splitlines())
    for line in lines:
        if line.startswith(".nv.info."):
            kernel = line.removeprefix(".nv.info.").strip()
        elif "EIATTR_MAX_THREADS" in line:
            next(lines)
            threads[kernel] = int(next(lines).split()[1], 16)
    # Without a bound, the compiler expects as many threads as there may be.
    return {name: (int(regs), int(shared), threads.get(name, 1024)) for name, regs, shared in usage}


def instructions(cubin):
    """How often each instruction is in the code of each kernel."""
    kernels = {}
    for line in tool("nvdisasm", "-c", cubin).splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            kernels[section[1]] = counts = collections.Counter()
        elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            counts[found[1]] += 1
    return kernels


def blocks(architecture, regs, threads, shared):
    """How many blocks fit on a multiprocessor. A warp gets its registers by 256, a block its shared memory by 128."""
    warps = -(-threads // 32)
    of_warp = -(-regs * 32 // 256) * 256
    # Each of the four parts of a multiprocessor has a quarter of the registers.
    by_registers = 4 * (REGISTERS // 4 // of_warp) // warps
    by_shared = SHARED[architecture][0] // (-(-shared // 128) * 128)
    return min(by_registers, by_shared, WARPS // warps, BLOCKS)


def width(instruction):
    """The place of a load's or store's width in the table."""
    parts = instruction.split(".")
    return 0 if "128" in parts else 1 if "64" in parts else 3 if {"U16", "S16", "U8", "S8"} & set(parts) else 2


def row(architecture, name, usage, counts, dynamic):
    regs, static, threads = usage
    if not architecture.startswith("sm_8"):
        static -= RESERVED
    fit = blocks(architecture, regs, threads, static + dynamic + RESERVED)

    def count(*kinds):
        return sum(times for code, times in counts.items() if code.split(".")[0] in kinds)

    def by_width(*kinds):
        widths = [0] * 4
        for code, times in counts.items():
            if code.split(".")[0] in kinds:
                widths[width(code)] += times
        return widths

    copies = by_width("LDGSTS")
    slashed = ["/".join(map(str, numbers)) for numbers in
               [(copies[0] + count("UTMALDG"), sum(copies[1:])), by_width("LDG", "LD"), by_width("STG", "ST")]]
    values = [regs, threads, static, dynamic, fit, 100 * fit * threads // (32 * WARPS), count("LDL", "STL"),
              count("HMMA", "HGMMA"), count("LDSM"), *slashed]
    return [name, *map(str, values)]


def is_narrow(line):
    """Whether no load, or no store, of this row of the table has 16 bytes."""
    copies, loads, stores = (int(cell.split("/")[0]) for cell in line[-3:])
    return copies + loads == 0 or stores == 0


def section(architecture):
    cubin = CUBINS / f"{architecture}.cubin"
    dynamic = dict(line.split() for line in (CUBINS / "dynamic_shared").read_text().splitlines())
    usage, counts = resources(cubin), instructions(cubin)
    rows = [row(architecture, name, usage[name], counts[name], int(dynamic.get(name, 0))) for name in sorted(usage)]
    widths = [max(len(line[i]) for line in [["", *HEAD], *rows]) for i in range(len(HEAD) + 1)]

    def text(line):
        return "  ".join([line[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(line[1:], widths[1:]))])

    title = f"{architecture} ({SHARED[architecture][1]})"
    spilling = [f"{architecture}: {line[0]} spills registers" for line in rows
                if line[7] != "0" and (architecture, line[0]) not in ALLOWED]
    narrow = [f"{architecture}: {line[0]} has no loads, or no stores, of 16 bytes" for line in rows
              if is_narrow(line) and not re.search("|".join(NARROW), line[0])]
    joined = [f"{architecture}: {name} has a product that is not rounded" for name in sorted(counts)
              if re.search(ROUNDED, name) and any(code.startswith("FFMA") for code in counts[name])]
    return "\n".join(["", text([title, *HEAD]), *map(text, rows), ""]), spilling + narrow + joined


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    is_written = arguments.parse_args().write
    install()
    compile_kernels()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        sections = list(pool.map(section, SHARED))
    now = ABOUT.format(wheels=", ".join(WHEELS)) + "".join(text for text, _ in sections)
    then = TABLE.read_text() if TABLE.exists() else ""
    if is_written:
        TABLE.write_text(now)
    elif now != then:
        sys.stdout.writelines(difflib.unified_diff(then.splitlines(True), now.splitlines(True), "table", "now", n=0))
        print(f"{TABLE.relative_to(ROOT)} is out of date. Is the change right? Then scripts/machine_code.py --write")
    slow = [line for _, lines in sections for line in lines]
    for line in slow:
        print(line)
    sys.exit(1 if slow or (now != then and not is_written) else 0)


if __name__ == "__main__":
    main()
