#!/usr/bin/env python3
"""The planned tables of the guide's pages with schedules in figures and on auto, and the picture of memory against bubble.

    python3 scripts/compare_schedules.py

Plans every schedule that has a name and prints a table for each size, one for passes of unequal length and one for transfers that
take time, and what auto finds; draws memory against bubble as book/src/img/memory-against-bubble.svg.
"""
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/debug/pipewright"
SIZES = [(4, 16), (8, 32)]
# Times of a model of 1.5 billion parameters, in ms: arXiv 2401.10241, table 9.
PROFILED = ["--forward", "18.522", "--backward-input", "18.086", "--backward-weight", "9.337", "--comm", "0.601"]
# Passes of other lengths, slow links: for the chapter on auto.
UNEVEN = ["--backward-input", "1.2", "--backward-weight", "0.8", "--comm", "0.05"]
# Times of a transfer, as parts of a forward through a rank's share.
COMMS = ["0", "0.1", "0.25", "0.5"]
FAMILIES = [
    ("#57606a", "whole backwards", ["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs"]),
    ("#0072b2", "backward in two halves", ["zb-h1", "zb-2p", "interleaved-zb"]),
    ("#d55e00", "out and back", ["zb-v", "v-half", "v-min", "dualpipe-v"]),
]
NAMES = [name for _, _, names in FAMILIES for name in names]


def plan(name, ranks, micro_batches, *costs):
    command = [BINARY, "plan", "--schedule", name, "--ranks", str(ranks), "--micro-batches", str(micro_batches)]
    return json.loads(subprocess.check_output([*command, "--format", "json", *costs], stderr=subprocess.DEVNULL))


def percent(share):
    return f"{100 * share:.1f} %"


def table(ranks, micro_batches):
    print(f"\n{ranks} ranks, {micro_batches} micro-batches\n")
    print("| schedule | bubble of the makespan | of the longest span | peak activations | with `--pending 1`: bubble | peak memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in NAMES:
        free, kept = (plan(name, ranks, micro_batches, "--pending", pending) for pending in "01")
        cells = [percent(free["bubble_makespan"]), percent(free["bubble_span"]), f"{max(free['peak_activations']):g}"]
        cells += [percent(kept["bubble_makespan"]), f"{max(kept['peak_memory']):g}"]
        print(f"| `{name}` | {' | '.join(cells)} |")


def unequal(ranks, micro_batches):
    print(f"\n{ranks} ranks, {micro_batches} micro-batches, {' '.join(PROFILED)}\n")
    print("| schedule | bubble of the makespan, equal passes and free transfers | at the profiled times | of the longest span then |")
    print("| --- | --- | --- | --- |")
    for name in NAMES:
        equal, profiled = (plan(name, ranks, micro_batches, *costs) for costs in ([], PROFILED))
        bubbles = [equal["bubble_makespan"], profiled["bubble_makespan"], profiled["bubble_span"]]
        print(f"| `{name}` | {' | '.join(map(percent, bubbles))} |")


def transfers(ranks, micro_batches):
    print(f"\n{ranks} ranks, {micro_batches} micro-batches, bubble of the makespan\n")
    print("| schedule | " + " | ".join(f"`--comm {comm}`" for comm in COMMS) + " |")
    print("| --- " * (1 + len(COMMS)) + "|")
    for name in NAMES:
        bubbles = (plan(name, ranks, micro_batches, "--comm", comm)["bubble_makespan"] for comm in COMMS)
        print(f"| `{name}` | {' | '.join(map(percent, bubbles))} |")


def searched(ranks, micro_batches):
    print(f"\nauto, {ranks} ranks, {micro_batches} micro-batches: makespan, what was chosen, what it holds\n")
    print(f"| memory | equal times | chosen | holds | `{' '.join(UNEVEN)}` | chosen | holds |")
    print("| --- " * 7 + "|")
    for memory in ["1.5", "2", "3", "4", "6"]:
        cells = []
        for costs in ([], UNEVEN):
            found = plan("auto", ranks, micro_batches, "--memory", memory, *costs)
            stages = found["stages"] // ranks
            cells += [f"{found['makespan']:g}", f"`{found['schedule']}`, {stages} a rank", f"{max(found['peak_memory']):g}"]
        print(f"| {memory} | {' | '.join(cells)} |")


class Chart:
    """Points in a frame; the axes begin at 0."""

    WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 64, 20, 50

    def __init__(self, most_x, most_y):
        self.most, self.parts = (most_x, most_y), []

    def x(self, value):
        return self.LEFT + value / self.most[0] * (self.WIDTH - self.LEFT - self.RIGHT)

    def y(self, value):
        return self.HEIGHT - self.BOTTOM - value / self.most[1] * (self.HEIGHT - self.TOP - self.BOTTOM)

    def text(self, x, y, text, anchor="start", style=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{text}</text>')

    def line(self, x1, y1, x2, y2):
        self.parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#e1e4e8"/>')

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')

    def svg(self, title):
        head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{self.WIDTH}" height="{self.HEIGHT}"'
        head += f' viewBox="0 0 {self.WIDTH} {self.HEIGHT}" font-family="Helvetica,Arial,sans-serif" font-size="12">'
        back = f'<rect width="{self.WIDTH}" height="{self.HEIGHT}" rx="6" fill="#fff"/>'
        return "\n".join([head, f"<title>{title}</title>", back, *self.parts, "</svg>"]) + "\n"


# Where a name stands beside its point: anchor, and the way from the point.
BESIDE = {
    "gpipe": ("end", -9, 4),
    "looped-bfs": ("end", -9, 4),
    "interleaved-zb": ("end", -9, 4),
    "zb-2p": ("start", 9, 4),
    "zb-v": ("end", -6, 18),
    "dualpipe-v": ("start", 4, 18),
}


def picture(ranks, micro_batches):
    title = f"Memory against bubble: {ranks} ranks, {micro_batches} micro-batches"
    chart = Chart(micro_batches + 2, 24)
    chart.text(16, 28, title, style='font-size="16" font-weight="bold"')
    for percents in range(0, 25, 4):
        chart.line(chart.LEFT, chart.y(percents), chart.WIDTH - chart.RIGHT, chart.y(percents))
        chart.text(chart.LEFT - 8, chart.y(percents) + 4, f"{percents} %", "end", 'fill="#57606a"')
    for held in range(0, micro_batches + 1, 4):
        chart.text(chart.x(held), chart.HEIGHT - 30, held, "middle", 'fill="#57606a"')
    chart.text(chart.WIDTH - chart.RIGHT, chart.HEIGHT - 10, "peak activations, in micro-batches", "end", 'fill="#57606a"')
    left = 16
    for colour, family, names in FAMILIES:
        chart.dot(left + 5, 46, colour)
        chart.text(left + 15, 50, family)
        left += 40 + 7 * len(family)
        for name in names:
            planned = plan(name, ranks, micro_batches)
            x, y = chart.x(max(planned["peak_activations"])), chart.y(100 * planned["bubble_makespan"])
            anchor, right, down = BESIDE.get(name, ("start", 9, 4))
            chart.dot(x, y, colour)
            chart.text(x + right, y + down, name, anchor, f'fill="{colour}"')
    chart.text(chart.WIDTH - chart.RIGHT, 50, "up: bubble of the makespan", "end", 'fill="#57606a"')
    (ROOT / "book/src/img/memory-against-bubble.svg").write_text(chart.svg(title))


def main():
    subprocess.run(["cargo", "build", "--quiet"], cwd=ROOT, check=True)
    for size in SIZES:
        table(*size)
    unequal(*SIZES[-1])
    transfers(*SIZES[-1])
    searched(4, 8)
    picture(*SIZES[-1])


if __name__ == "__main__":
    main()
