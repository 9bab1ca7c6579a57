"""The figures of files.py as an SVG: for each load and place a bar per tool, its wall time, and within it a thin one, the
processors' time of all that took part."""
import statistics

OURS, THEIRS, CPU = "#1f6fb2", "#b9c2cb", "#333333"
WIDTH, LEFT, RIGHT, ROW, HEAD = 760, 170, 90, 18, 30
PLACES = {("tmpfs", "host"): "tmpfs, one host", ("disk", "host"): "disk, one host",
          ("tmpfs", "veth"): "tmpfs, two namespaces, MTU 1500", ("disk", "veth"): "disk, two namespaces, MTU 1500"}


def text(x, y, words, size=11, anchor="start"):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def bar(x, y, width, height, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def panel(top, title, rows):
    """Its lines, and where it ends."""
    most = max(max(wall, cpu) for _, wall, cpu in rows)
    out = [text(8, top + 18, title, 13)]
    for number, (tool, wall, cpu) in enumerate(rows):
        y = top + HEAD + number * ROW
        scale = (WIDTH - LEFT - RIGHT) / most
        out += [text(LEFT - 8, y + 11, tool, anchor="end"),
                bar(LEFT, y, wall * scale, ROW - 4, OURS if tool.startswith("weir") else THEIRS),
                bar(LEFT, y + (ROW - 4) / 2 - 1, cpu * scale, 2, CPU),
                text(LEFT + max(wall, cpu) * scale + 6, y + 11, f"{wall:.2f} s, {cpu:.2f}")]
    return out, top + HEAD + len(rows) * ROW + 8


def write(path, results, groups, links, loads, name_of):
    out, top = [], 26
    for group in groups:
        rows = [(tool, statistics.median(results["wall"][name].values()), statistics.median(results["cpu"][name].values()))
                for tool, name in ((tool, name_of(group, tool)) for tool, _ in links[group[2]]) if name in results["wall"]]
        if rows:
            lines, top = panel(top, f"{loads[group[0]]}: {PLACES[group[1:]]}", rows)
            out += lines
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{top}" fill="white"/>',
            text(8, 18, "Medians. Bar: wall time; line in it: processors' time of all that took part (two processors)", 11)]
    with open(path, "w") as file:
        file.write("\n".join(head + out + ["</svg>", ""]))
