#!/usr/bin/env python3
"""Measures weir cp beside what people copy with otherwise, interleaved: each round runs every tool once, on each load.

Loads: file_loads.py. Tools: file_tools.py. Copies to several at once: fan_out.py. What is demanded: marks.py. The sources are in the page cache, and what earlier copies
left to be written to disk is written before a copy begins; memory is touched right before, for all tools alike. With
--results, rounds are added to those of earlier runs, so that the whole can be measured in several short ones."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import fan_out
import file_loads
import file_tools
import marks
import plot
import run as bench
import stage as stages

BEGIN, END = "<!-- ./dev copies: begin -->", "<!-- ./dev copies: end -->"
MTU = 1500
PLACES = ("tmpfs", "disk")
LINKS = {"host": file_tools.TOOLS, "veth": file_tools.VETH}


def groups():
    """What is held against each other: a load, where it lies, and whether both ends share a host."""
    return [(load, place, link) for place in PLACES for link in LINKS for load in file_loads.LOADS]


def case_name(group, tool):
    return f"{', '.join(group)}: {tool}"


def cases():
    return [(case_name(group, tool), group, tool) for group in groups() for tool, _ in LINKS[group[2]]
            if tool not in file_tools.ONE_FILE or group[0] == "big"]


class Ground:
    """The folders of one place, with one load in it at a time."""

    def __init__(self, folder, scale):
        self.folder, self.scale, self.load = tempfile.mkdtemp(prefix="weir-bench.", dir=folder), scale, None
        self.into, self.source = os.path.join(self.folder, "into"), None

    def prepare(self, load):
        if self.load != load:
            if self.source:
                file_loads.remove(self.source)
            self.source = os.path.join(self.folder, load)
            self.held = file_loads.make(load, self.folder, self.scale)
            self.load = load
        self.clear()

    def clear(self):
        file_loads.remove(self.into)
        os.mkdir(self.into)
        os.sync()

    def check(self):
        found = file_loads.count(os.path.join(self.into, self.load))
        if found != self.held:
            raise RuntimeError(f"{found[0]} files and {found[1]} bytes came of {self.held[0]} and {self.held[1]}")

    def remove(self):
        file_loads.remove(self.folder)


def keep(results, name, number, wall, cpu, others):
    for what, figure in (("wall", wall), ("cpu", cpu), ("others", others)):
        results[what].setdefault(name, {})[str(number)] = figure
    results["troubles"].pop(name, None)
    print(f"{name}: {wall:.2f} s, processors {cpu:.2f} s, others {100 * others:.0f} %", file=sys.stderr)


def rounds_to_come(names, results, options):
    """Behind those that there are of any of them."""
    before = max((int(n) for name in names for n in results["wall"].get(name, {})), default=0)
    return range(before + 1, before + 1 + options.rounds)


def copy_once(ground, link, tool, options):
    """Wall seconds, processor seconds, the share of others; between namespaces by another process of this program."""
    run = dict(LINKS[link])[tool]
    if link == "host":
        return file_tools.Copy(stages.Stage(options.build, options.scale), ground.source, ground.into, options.work).run(run)
    command = [stages.NAMESPACES, "--mtu", str(MTU), sys.executable, os.path.realpath(__file__), options.build, "--inside", tool, "--source",
               ground.source, "--work", options.work]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=2 * file_tools.PATIENCE_S)
    if done.returncode == 77:
        raise stages.Missing(done.stdout.strip() or "network namespaces are not allowed here")
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-500:])
    return tuple(json.loads(done.stdout))


def run_inside(options):
    stage = stages.inside_namespaces(options.build, 1, MTU, True)
    copy = file_tools.Copy(stage, options.source, os.path.join(os.path.dirname(options.source), "into"), options.work)
    try:
        print(json.dumps(copy.run(dict(LINKS["veth"])[options.inside])))
    except stages.Missing as missing:
        print(missing)
        return 77
    return 0


def run_tool(number, case, ground, results, options):
    name, group, tool = case
    ground.clear()
    wall, cpu, others = copy_once(ground, group[2], tool, options)
    ground.check()
    keep(results, name, number, wall, cpu, others)


def run_round(number, chosen, ground, results, options):
    """All tools of one group once. False: one failed."""
    whole = True
    for case in chosen:
        try:
            run_tool(number, case, ground, results, options)
        except stages.Missing as missing:
            results["troubles"][case[0]] = str(missing)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            results["troubles"][case[0]], whole = str(error), False
            print(f"{case[0]}: failed in round {number}: {error}", file=sys.stderr)
    return whole


def run_groups(chosen, results, options):
    """Round by round within each group, so that the sources are made once. True: nothing failed."""
    whole = True
    for place in PLACES:
        here = [group for group in groups() if group[1] == place and any(case[1] == group for case in chosen)]
        if not here:
            continue
        ground = Ground("/dev/shm" if place == "tmpfs" else options.disk, options.scale)
        try:
            for group in sorted(here, key=lambda group: list(file_loads.LOADS).index(group[0])):
                of_group = [case for case in chosen if case[1] == group]
                ground.prepare(group[0])
                for number in rounds_to_come([case[0] for case in of_group], results, options):
                    whole &= run_round(number, of_group, ground, results, options)
                    keep_results(results, options.results)
        finally:
            ground.remove()
    return whole


def run_fan_out(names, results, options):
    """To one and to several in turn, in tmpfs. True: nothing failed."""
    whole, length = True, int(fan_out.LENGTH * options.scale)
    with tempfile.TemporaryDirectory(prefix="weir-bench.", dir="/dev/shm") as folder:
        source = file_loads.make_file(os.path.join(folder, "file"), length)
        for number in rounds_to_come(names, results, options):
            for name in names:
                into = tempfile.mkdtemp(dir=folder)
                try:
                    wall, cpu = fan_out.run(name, into, source, length, options)
                    keep(results, name, number, wall, cpu, 0)
                except (stages.Missing, RuntimeError, OSError, subprocess.SubprocessError) as error:
                    results["troubles"][name], whole = str(error), False
                    print(f"{name}: failed in round {number}: {error}", file=sys.stderr)
                file_loads.remove(into)
            keep_results(results, options.results)
    return whole


def load_results(path, about):
    """Those of earlier runs at the same commit and scale, to be added to."""
    if path and os.path.exists(path):
        with open(path) as file:
            results = json.load(file)
        if all(results["about"][word] == about[word] for word in ("commit", "scale", "kernel")):
            return results
        raise SystemExit(f"{path} has figures of commit {results['about']['commit']} at scale {results['about']['scale']:g}: name another file")
    return {"about": about, "wall": {}, "cpu": {}, "others": {}, "troubles": {}}


def keep_results(results, path):
    if path:
        with open(path, "w") as file:
            json.dump(results, file, indent=1)


def describe(options):
    about = bench.describe(options, [])
    return {word: about[word] for word in ("time", "processor", "processors", "kernel", "commit", "scale")}


def group_table(group, results):
    """Lines of Markdown; none where nothing of it was measured."""
    load, place, link = group
    where = "one host" if link == "host" else f"two namespaces, veth, MTU {MTU}"
    lines = [f"**{file_loads.LOADS[load][0].upper() + file_loads.LOADS[load][1:]}, {place}, {where}**", "", "| | wall s | min | max | processors s | rounds |", "|---|---|---|---|---|---|"]
    known = len(lines)
    for tool, _ in LINKS[link]:
        name = case_name(group, tool)
        wall, cpu = list(results["wall"].get(name, {}).values()), list(results["cpu"].get(name, {}).values())
        if wall:
            lines.append(f"| {tool} | {statistics.median(wall):.2f} | {min(wall):.2f} | {max(wall):.2f} | {statistics.median(cpu):.2f} | {len(wall)} |")
        elif name in results["troubles"]:
            lines.append(f"| {tool} | {results['troubles'][name].splitlines()[0].replace('|', '/')[:80]} | | | | 0 |")
    return lines + [""] if len(lines) > known else []


def fan_out_table(results):
    """The source's cost. Lines of Markdown; none where nothing of it was measured."""
    rows = []
    for name in fan_out.NAMES:
        wall, cpu = list(results["wall"].get(name, {}).values()), list(results["cpu"].get(name, {}).values())
        if wall:
            rows.append(f"| {name.removeprefix('fan-out: ')} | {statistics.median(cpu):.2f} | {min(cpu):.2f} | {max(cpu):.2f} | {statistics.median(wall):.2f} | {len(wall)} |")
    if not rows:
        return []
    costs = {name: {int(number): seconds for number, seconds in results["cpu"].get(name, {}).items()} for name in fan_out.NAMES}
    judged = marks.judge(costs, fan_out.MARKS)
    return [f"**One file of {fan_out.LENGTH * results['about']['scale'] / (1 << 20):g} MiB to several targets on this host, tmpfs: what the source pays**", "",
            "| | processors s, a source | min | max | wall s, all | rounds |", "|---|---|---|---|---|---|", *rows, "",
            "| processors' time of the source | against | ratio | min | max | pairs | demanded | |", "|---|---|---|---|---|---|---|---|",
            *[bench.mark_line(row) for row in judged], ""]


def state_of_machine(results):
    about = results["about"]
    shares = [share for name, rounds in results["others"].items() if ", tmpfs," in name for share in rounds.values()]
    lines = [f"{about['time']}, {about['processor']}, {about['processors']} processors, kernel {about['kernel']}, commit {about['commit']}. Others had "
             f"{100 * max(shares, default=0):.0f} % of the processors' time at most while a copy in tmpfs ran, {100 * statistics.median(shares or [0]):.0f} % as a rule.", ""]
    if about["scale"] != 1:
        lines += [f"A trial at {about['scale']:g} of the full size: these figures prove the tool, not the speed.", ""]
    if max(shares, default=0) > stages.OTHERS_AT_MOST:
        lines += ["**Something else was running: rely on the medians of ratios only.**", ""]
    return lines


def report(results):
    """As Markdown."""
    walls = {name: {} for name, _, _ in cases() if name in results["wall"] or name in results["troubles"]}
    for name, rounds in results["wall"].items():
        walls[name] = {int(number): seconds for number, seconds in rounds.items()}
    judged = [bench.mark_line(row) for row in marks.judge(walls, marks.FILE_MARKS)]
    lines = state_of_machine(results)
    if judged:
        lines += ["| wall time of | against | ratio | min | max | pairs | demanded | |", "|---|---|---|---|---|---|---|---|", *judged, ""]
    for group in groups():
        lines += group_table(group, results)
    lines += fan_out_table(results)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=marks.ROUNDS_LEAST, help="0: only what --results has is shown")
    parser.add_argument("--only", default="", help="cases whose names match this regular expression")
    parser.add_argument("--scale", type=float, default=1, help="size of each load; below 1 for a trial")
    parser.add_argument("--disk", default="/var/tmp", help="a folder on a disk")
    parser.add_argument("--results", help="a file to which the figures are added")
    parser.add_argument("--plot", help="an SVG of what --results has")
    parser.add_argument("--write-doc", help="a document in which the tables take the place of the last ones")
    parser.add_argument("--list", action="store_true")
    for hidden in ("--inside", "--source", "--work"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.build = os.path.realpath(options.build)
    if options.inside:
        return run_inside(options)
    chosen = [case for case in cases() if re.search(options.only, case[0])]
    spread = [name for name in fan_out.NAMES if re.search(options.only, name)]
    if options.list or not chosen + spread:
        print("\n".join([case[0] for case in chosen] + spread) or f"no case matches '{options.only}'")
        return 0 if chosen + spread else 2
    results = load_results(options.results, describe(options))
    with tempfile.TemporaryDirectory(prefix="weir-bench.") as options.work:
        whole = run_groups(chosen, results, options) if options.rounds > 0 and chosen else True
        whole &= run_fan_out(spread, results, options) if options.rounds > 0 and spread else True
    text = report(results)
    print(text)
    if options.write_doc:
        bench.write_document(options.write_doc, text, BEGIN, END)
    if options.plot:
        plot.write(options.plot, results, groups(), LINKS, file_loads.LOADS, case_name)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
