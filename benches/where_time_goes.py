#!/usr/bin/env python3
"""Where the time of a step goes, compared with the bound: the table and the picture of the guide's chapter on
speed.

    python3 benches/where_time_goes.py [--size A] [--schedules 1f1b zb-2p]

Trains a model of benches/compare_torch on two ranks under `perf record`. Each sample of CPU time counts for
the kind of work whose source files it falls in: the innermost function in such a file decides, inlined or
not. A run of few steps is subtracted from a run of many steps, so start-up and starting weights do not count.
Waiting, asleep or not, is the step's measured bubble.

The bound is as in compare_torch: the model's matrix products at the rate of the `gemm` crate's fastest
shape, measured just before, plus the schedule's own bubble. Needs Linux, cargo, perf and addr2line, and a
machine with nothing else to do.
"""
import argparse
import collections
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "book/src/img/where-time-goes.svg"
RANKS, WARM_UP, STEPS = 2, 2, 20
# Samples of a thread per second of its CPU time.
RATE = 997
# The colour of each kind of work, and the sources that do it. Helpers that several kinds share are not
# listed: their callers count.
GROUPS = {
    "matrix products": ("#1f5fa8", ["stages/src/cpu/matmul/", "stages/src/cpu/matrix.rs", "stages/src/layers/linear/"]),
    "attention": ("#5b93cf", ["stages/src/layers/attention/", "stages/src/cpu/small.rs"]),
    "GELU": ("#2d8a57", ["stages/src/layers/pointwise/"]),
    "LayerNorm": ("#8a6d00", ["stages/src/layers/norm/"]),
    "residuals, bias gradients": ("#b5559c", ["stages/src/cpu/elementwise.rs"]),
    "loss": ("#8250df", ["stages/src/loss/", "stages/src/cpu/softmax.rs"]),
    "embedding": ("#1b7c83", ["stages/src/layers/embedding/"]),
    "optimizer": ("#c4571b", ["stages/src/optimizer/", "stages/src/parameter/", "src/worker/finish.rs"]),
    "waiting": ("", ["src/fabric/"]),
    "engine": ("#24292f", ["src/"]),
    "system, C library": ("#8b949e", []),
}
COLOURS = {group: colour for group, (colour, _) in GROUPS.items() if group != "waiting"} | {"bubble": "#d8dee4"}


def build():
    """The benchmark's binary: with symbols, and loaded at the addresses of the file."""
    command = ["cargo", "rustc", "--profile", "bench", "--bench", "compare_torch", "--message-format", "json"]
    command += ["--config", "profile.bench.strip=false", "--config", "profile.bench.debug=1"]
    command += ["--target-dir", "target/where_time_goes", "--", "-C", "relocation-model=static"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    messages = map(json.loads, lines)
    return next(one["executable"] for one in messages if one.get("target", {}).get("name") == "compare_torch" and one["executable"])


def said(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def record(folder, command):
    """The output of a run, and the number of samples at each address of the binary or in another object."""
    data = folder / "perf.data"
    report = said(["perf", "record", "--quiet", "-e", "cpu-clock", "-F", str(RATE), "-o", data, "--", *command])
    script = ["perf", "script", "-i", data, "-F", "ip,dso"]
    lines = subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
    return report, collections.Counter(tuple(line.split(maxsplit=1)) for line in lines if line.strip())


def group_of(places):
    """The kind of work at these places in sources, the innermost first."""
    for place in places:
        inside = place.removeprefix(f"{ROOT}/")
        for group, (_, sources) in GROUPS.items():
            if inside.startswith(tuple(sources)):
                return group
    if any("/crossbeam-" in place for place in places):
        return "waiting"
    return "engine" if any(place.startswith(f"{ROOT}/") for place in places) else "system, C library"


def grouped(binary, samples):
    """The number of samples of each kind of work."""
    own = [address for address, place in samples if pathlib.Path(binary).name in place]
    command = ["addr2line", "-a", "-i", "-e", binary]
    printed = subprocess.run(command, input="\n".join(own), check=True, capture_output=True, text=True).stdout
    places = {}
    for line in printed.splitlines():
        if line.startswith("0x"):
            found = places.setdefault(int(line, 16), [])
        else:
            found.append(line)
    counts = collections.Counter()
    for (address, place), count in samples.items():
        counts[group_of(places.get(int(address, 16), [place]))] += count
    return counts


def measure(binary, folder, train, schedule):
    """The seconds of a step, its bubble, the schedule's own bubble, and the share of each kind of work."""
    few, many = [
        record(folder, [*train, "--schedule", schedule, "--steps", str(steps)]) for steps in (WARM_UP, WARM_UP + STEPS)
    ]
    report = many[0]
    counts = grouped(binary, many[1])
    counts.subtract(grouped(binary, few[1]))
    counts = {group: max(count, 0) for group, count in counts.items() if group != "waiting"}
    seconds, bubble = (statistics.median(report[key][WARM_UP:]) for key in ("seconds", "measured_bubbles"))
    busy, total = seconds * (1 - bubble), sum(counts.values())
    had = total / RATE / STEPS / RANKS
    if had < 0.95 * busy:
        print(f"{schedule}: repeat this run: of {1e3 * busy:.0f} ms of work in a step the ranks had their cores for {1e3 * had:.0f}")
    parts = {group: busy * counts.get(group, 0) / total for group in COLOURS if group != "bubble"}
    return parts | {"bubble": seconds * bubble}, report["bubble"]


def print_table(bars):
    """One row for each kind of work, then the bound; two columns for each schedule."""
    steps = [sum(parts.values()) for _, _, parts in bars]
    rows = [(group, [parts[group] for _, _, parts in bars]) for group in COLOURS] + [("a step", steps)]
    for name, of in (("matrix products", lambda bound: bound["matrix products"]), ("a step", lambda bound: sum(bound.values()))):
        rows.append((f"the bound: {name}", [of(bound) for _, bound, _ in bars]))
    print("\n| ms a step and rank | " + " | ".join(f"{schedule} | share" for schedule, _, _ in bars) + " |")
    print("| --- |" + " --- | --- |" * len(bars))
    for name, cells in rows:
        print(f"| {name} | " + " | ".join(f"{1e3 * cell:.1f} | {cell / step:.1%}" for cell, step in zip(cells, steps)) + " |")


def draw(schedules, heading):
    """Two stacked bars for each schedule: the bound, and the step."""
    bars = [bar for name, bound, parts in schedules for bar in ((f"{name}, bound", bound), (name, parts))]
    width, left, top, row = 860, 130, 50, 46
    legend = top + row * len(bars) + 14
    scale = (width - left - 20) / max(sum(parts.values()) for _, parts in bars)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{legend + 58}" '
        f'viewBox="0 0 {width} {legend + 58}" font-family="Helvetica,Arial,sans-serif" font-size="12">',
        f'<title>{heading}</title>\n<rect width="{width}" height="{legend + 58}" rx="6" fill="#fff"/>',
        f'<text x="16" y="28" font-size="16" font-weight="bold">{heading}</text>',
    ]
    for index, (name, parts) in enumerate(bars):
        x, y = left, top + row * index
        out.append(f'<text x="{left - 8}" y="{y + 18}" text-anchor="end">{name}</text>')
        out.append(f'<text x="{left - 8}" y="{y + 32}" text-anchor="end" fill="#57606a">{1e3 * sum(parts.values()):.0f} ms</text>')
        for group, seconds in parts.items():
            wide, dark = seconds * scale, group != "bubble"
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="36" fill="{COLOURS[group]}"/>')
            if wide > 24:
                out.append(f'<text x="{x + wide / 2:.1f}" y="{y + 22}" text-anchor="middle" '
                           f'fill="{"#fff" if dark else "#24292f"}">{1e3 * seconds:.0f}</text>')
            x += wide
    for index, group in enumerate(bars[-1][1]):
        x, y = 16 + 168 * (index % 5), legend + 20 * (index // 5)
        out.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS[group]}"/>')
        out.append(f'<text x="{x + 15}" y="{y + 10}">{group}</text>')
    PICTURE.write_text("\n".join([*out, "</svg>"]) + "\n")
    print(f"\n{PICTURE.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["A", "B", "D"], default="A")
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "zb-2p"])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "README.md", help="text, or for D a folder with images")
    given = parser.parse_args()
    missing = [tool for tool in ("perf", "addr2line") if not shutil.which(tool)]
    if missing:
        sys.exit(f"no {' and no '.join(missing)} here: the picture stays as it is")
    size = [build(), "--size", given.size]
    binary, data, bars = size[0], ["--data", given.data], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        said([*size, "prepare", *data, "--steps", "1", "--out", folder])
        model = json.loads((folder / "size.json").read_text())
        rate = said([*size, "rate", "--threads", str(RANKS)])["best"]
        products = model["flops"] * model["targets"] / rate
        print(f"size {given.size}: {model['flops'] / 1e6:.2f} million operations a target, {rate / 1e9:.0f} GFLOP/s")
        for schedule in given.schedules:
            parts, bubble = measure(binary, folder, [*size, "train", *data], schedule)
            bound = {"matrix products": products, "bubble": products / (1 - bubble) - products}
            bars.append((schedule, bound, parts))
    print_table(bars)
    draw(bars, f"A step of size {given.size}: milliseconds a rank")


if __name__ == "__main__":
    main()
