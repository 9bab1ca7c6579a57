#!/usr/bin/env python3
"""Figures of docs/loss.md from the simulator's output. Usage: loss_figures.py SIM_CONTENTION [DIRECTORY]

Prints the tables as they stand in docs/loss.md and writes DIRECTORY/*.svg (docs/loss). Simulated time:
the same program gives the same figures."""
import os
import subprocess
import sys

COLOURS = ["#1b6ca8", "#6bb1de", "#d1495b", "#8d96a3"]


def contention(program, *arguments):
    """Rows of numbers; the word "total" at the head of a line is left out."""
    text = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout
    return [[float(word) for word in line.split() if word != "total"] for line in text.splitlines()]


def svg(path, title, x_label, y_label, curves, logarithmic=False):
    """`curves`: (name, [(x, y)]) each."""
    import math
    width, height, left, bottom, top = 640, 300, 60, 40, 28
    place = (lambda x: math.log10(x)) if logarithmic else (lambda x: x)
    xs = [place(x) for _, points in curves for x, _ in points]
    y_most = max(y for _, points in curves for _, y in points) * 1.05
    x_least, x_most = min(xs), max(xs)
    at_x = lambda x: left + (place(x) - x_least) / (x_most - x_least) * (width - left - 150)
    at_y = lambda y: height - bottom - y / y_most * (height - bottom - top)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="16" font-size="13">{title}</text>']
    for i in range(6):
        y = y_most * i / 5
        out.append(f'<line x1="{left}" x2="{width - 150}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    ticks = sorted({x for _, points in curves for x, _ in points})
    for x in ticks if len(ticks) <= 8 else ticks[::max(1, len(ticks) // 8)]:
        out.append(f'<text x="{at_x(x):.1f}" y="{height - bottom + 16}" text-anchor="middle">{x:g}</text>')
    out.append(f'<text x="{(left + width - 150) / 2}" y="{height - 6}" text-anchor="middle">{x_label}</text>'
               f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})" text-anchor="middle">{y_label}</text>')
    for i, (name, points) in enumerate(curves):
        line = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        colour = COLOURS[i % len(COLOURS)]
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
                   f'<text x="{width - 144}" y="{top + 14 + 16 * i}" fill="{colour}">{name}</text>')
    open(path, "w").write("\n".join(out + ["</svg>", ""]))


def goodput(program, folder):
    print("| loss | selective repeat | go-back-N | at 2 ms, selective | go-back-N |\n|---|---|---|---|---|")
    ways = [[], ["--go-back"], ["--delay", 1000, "--depth", 512], ["--delay", 1000, "--depth", 512, "--go-back"]]
    curves = [[], [], [], []]
    whole = [None] * 4
    for loss in (0, 0.01, 0.1, 1, 5):
        cells = []
        for i, way in enumerate(ways):
            span = ["--warm", 1000, "--ms", 500] if i >= 2 else ["--warm", 20, "--ms", 100]
            rate = contention(program, "--loss", loss, *way, *span)[0][0]
            whole[i] = whole[i] or rate
            if loss > 0:
                curves[i].append((loss, rate))
            cells.append(f"{rate:.0f} MB/s ({rate / whole[i]:.2f})")
        print(f"| {loss:g} % | " + " | ".join(cells) + " |")
    names = ["selective, 20 us", "go-back-N, 20 us", "selective, 2 ms", "go-back-N, 2 ms"]
    svg(os.path.join(folder, "goodput.svg"), "Goodput under random loss, 10 Gbit/s", "loss in %", "MB/s",
        list(zip(names, curves)), logarithmic=True)


def sharing(program, folder):
    print("\n| link | MTU | queue | ours | ours | TCP | most / least |\n|---|---|---|---|---|---|---|")
    cases = [(200, 5000, 1024, 125000), (200, 5000, 1024, 250000), (200, 5000, 1024, 500000), (200, 5000, 4096, 125000),
             (200, 5000, 4096, 250000), (1000, 500, 1024, 62500), (1000, 500, 1024, 125000), (1000, 500, 1024, 250000)]
    for rate, delay, mtu, queue in cases:
        span = ["--warm", 4000, "--ms", 20000] if rate == 200 else ["--warm", 1000, "--ms", 5000]
        row = contention(program, "--flows", 2, "--tcp", 1, "--rate", rate, "--delay", delay, "--mtu", mtu, "--queue", queue, *span)[0]
        got = row[1:4]
        print(f"| {rate} Mbit/s, {delay / 500:g} ms | {mtu} | {queue / 1000:g} kB | " + " | ".join(f"{x:.1f} MB/s" for x in got) +
              f" | {max(got) / min(got):.2f} |")
    rows = contention(program, "--flows", 2, "--tcp", 1, "--rate", 200, "--delay", 5000, "--mtu", 1024, "--queue", 250000,
                      "--ms", 30000, "--span", 500)
    curves = [(name, [(row[0] / 1000, row[i]) for row in rows]) for i, name in ((1, "ours"), (2, "ours"), (3, "TCP cubic"))]
    svg(os.path.join(folder, "sharing.svg"), "Two of ours and one of TCP: 200 Mbit/s, 10 ms, queue of 250 kB", "seconds", "MB/s", curves)


def incast(program, folder):
    print("\n| 16 writers, 10 Gbit/s, queue | selective: all, least, most | go-back-N |\n|---|---|---|")
    for queue in (128000, 256000, 512000):
        cells = []
        for way in ([], ["--go-back"]):
            row = contention(program, "--flows", 16, "--delay", 5, "--queue", queue, "--mtu", 1024, "--warm", 300, "--ms", 200, *way)[0]
            cells.append(f"{row[0]:.0f}, {min(row[1:17]):.0f}, {max(row[1:17]):.0f} MB/s")
        print(f"| {queue / 1000:g} kB | " + " | ".join(cells) + " |")
    curves = []
    for name, way in (("selective repeat", []), ("go-back-N", ["--go-back"])):
        rows = contention(program, "--flows", 16, "--delay", 5, "--queue", 256000, "--mtu", 1024, "--ms", 100, "--span", 2, *way)
        curves.append((name, [(row[0], sum(row[1:17])) for row in rows]))
    svg(os.path.join(folder, "incast.svg"), "Sixteen writers begin at once: 10 Gbit/s, queue of 256 kB", "ms", "MB/s", curves)


def main():
    program = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else "docs/loss"
    os.makedirs(folder, exist_ok=True)
    goodput(program, folder)
    sharing(program, folder)
    incast(program, folder)


main()
