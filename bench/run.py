#!/usr/bin/env python3
"""Measures Weir beside its peers and beside what the machine allows, interleaved: each round runs every case once.

A case's figure is the median over the rounds, beside the least and the greatest; a mark is the median of the ratios
within each round in which the machine was in one state for both (lines.py): who met another than its peer is measured again.
Nothing else should run meanwhile: the load is written down with each round.

Cases: cases.py. What is demanded: marks.py. Raw limits: limits.c."""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import cases
import lines
import marks
import stage as stages

HERE = os.path.dirname(os.path.realpath(__file__))
TRIES = 3  # for two that are held against each other to meet the machine in one state
BEGIN, END = "<!-- ./dev bench: begin -->", "<!-- ./dev bench: end -->"


def measure(name, link, run, options):
    """One figure; within namespaces by another process of this program."""
    setting = cases.LINKS.get(link)
    if setting is None:
        return run(stages.Stage(options.build, options.scale))
    command = [stages.NAMESPACES, "--mtu", str(setting[0]), sys.executable, os.path.realpath(__file__), options.build,
               "--inside", name, "--scale", str(options.scale)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=3 * stages.PATIENCE_S)
    if done.returncode == 77:
        raise stages.Missing(done.stdout.strip() or "network namespaces are not allowed here")
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-500:])
    return float(done.stdout)


def run_inside(options):
    name, link, _, run = next(case for case in cases.CASES if case[0] == options.inside)
    mtu, offloads = cases.LINKS[link]
    try:
        print(run(stages.inside_namespaces(options.build, options.scale, mtu, offloads)))
    except stages.Missing as missing:
        print(missing)
        return 77
    return 0


class Rounds:
    """Figures and the machine's states, each case -> {round: ...}, and case -> why it has none."""

    def __init__(self, chosen, options):
        self.chosen, self.options = {case[0]: case for case in chosen}, options
        self.figures, self.states, self.troubles = {name: {} for name in self.chosen}, {name: {} for name in self.chosen}, {}

    def measure(self, name, number):
        _, link, _, run = self.chosen[name]
        limits = os.path.join(self.options.build, "bench", "limits")
        if isinstance(self.troubles.get(name), stages.Missing):
            return
        try:
            self.figures[name][number], self.states[name][number] = lines.watched(limits, lambda: measure(name, link, run, self.options))
        except stages.Missing as missing:
            self.troubles[name] = missing
        except (RuntimeError, subprocess.SubprocessError, ValueError, KeyError, IndexError, AttributeError) as error:
            self.troubles[name] = error
            print(f"{name}: failed in round {number}: {error}", file=sys.stderr)

    def differ(self, pair, number):
        found = [self.states[name].get(number) for name in pair]
        return None not in found and not lines.alike(found)

    def run(self, number):
        cases.begin_round()
        for name in self.chosen:
            self.measure(name, number)
        pairs = [(ours, theirs) for ours, theirs, *_ in marks.MARKS if ours in self.chosen and theirs in self.chosen]
        for _ in range(TRIES):
            for pair in pairs:
                if self.differ(pair, number):
                    for name in pair:
                        self.measure(name, number)

    def forget(self, number):
        for found in (*self.figures.values(), *self.states.values()):
            found.pop(number, None)


def run_rounds(chosen, options):
    """The rounds, and the share of the processors that others had in the second before each. Interrupted, those that are whole."""
    rounds, others = Rounds(chosen, options), []
    for number in range(1, options.rounds + 1):
        try:
            share = stages.share_at_work(1)
            rounds.run(number)
        except KeyboardInterrupt:
            if not others:
                raise
            rounds.forget(number)
            options.rounds = len(others)
            print(f"interrupted in round {number}: the rounds before it are told", file=sys.stderr)
            break
        others.append(share)
        print(f"round {number} of {options.rounds} done, others had {100 * share:.0f} % before it", file=sys.stderr)
    return rounds, others


def describe(options, others):
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())
    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True).stdout.strip()
    return {"time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "processor": model, "processors": os.cpu_count(),
            "kernel": platform.release(), "commit": commit, "rounds": options.rounds, "scale": options.scale, "others": others}


def mark_line(row):
    found = [f"{row[k]:.3g}" for k in ("median", "least", "greatest")] if row["rounds"] else ["", "", ""]
    demanded = "" if row["demanded"] is None else f"{'at most' if row['at_most'] else 'at least'} {row['demanded']:g}"
    return f"| {row['ours']} | {row['theirs']} | {' | '.join(found)} | {row['rounds'] or ''} | {demanded} | {marks.verdict(row)} |"


def in_state(figures, states, wanted):
    """The median of the figures of one state of the machine's, and of how many, or nothing."""
    found = [figure for number, figure in figures.items() if states[number] == wanted]
    return f"{statistics.median(found):.3g} ({len(found)})" if found else ""


def tables(chosen, rounds, rows, about):
    """As Markdown."""
    text = [f"{about['time']}, {about['processor']}, {about['processors']} processors, kernel {about['kernel']}, commit "
             f"{about['commit']}; {about['rounds']} rounds; others had {100 * max(about['others']):.0f} % of the processors' time at most in the second before each.", ""]
    if about["scale"] != 1:
        text += [f"A trial at {about['scale']:g} of the full length: these figures prove the tool, not the speed.", ""]
    if max(about["others"]) > stages.OTHERS_AT_MOST:
        text += ["**Something else was running: do not rely on these figures.**", ""]
    text += ["| ours | against | ratio | min | max | pairs | demanded | |", "|---|---|---|---|---|---|---|---|"]
    text += [mark_line(row) for row in rows]
    text += ["", "| case | unit | min | median | max | rounds | near lines | far lines |", "|---|---|---|---|---|---|---|---|"]
    for name, _, unit, _ in chosen:
        figures, states = rounds.figures[name], rounds.states[name]
        values = list(figures.values())
        if values:
            kinds = [in_state(figures, states, kind) for kind in (lines.NEAR, lines.FAR)]
            text.append(f"| {name} | {unit} | {min(values):.3g} | {statistics.median(values):.3g} | {max(values):.3g} | {len(values)} | {' | '.join(kinds)} |")
        else:
            why = str(rounds.troubles.get(name, "failed")).replace("|", "/").split("\n")[0][:80]
            text.append(f"| {name} | {unit} | | {why} | | 0 | | |")
    return "\n".join(text)


def write_document(path, text, begin=BEGIN, end=END):
    with open(path) as file:
        before, rest = file.read().split(begin)
    after = rest.split(end)[1]
    with open(path, "w") as file:
        file.write(f"{before}{begin}\n{text}\n{end}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=marks.ROUNDS_LEAST)
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--scale", type=float, default=1, help="length of each case; below 1 for a trial")
    parser.add_argument("--json")
    parser.add_argument("--write-doc", help="a document in which the tables take the place of the last ones")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.build = os.path.realpath(options.build)
    if options.inside:
        return run_inside(options)
    chosen = [case for case in cases.CASES if options.only in case[0]]
    if options.list or not chosen:
        print("\n".join(case[0] for case in chosen) or f"no case has '{options.only}' in its name")
        return 0 if chosen else 2
    rounds, others = run_rounds(chosen, options)
    about, rows = describe(options, others), marks.judge(rounds.figures, states=rounds.states)
    text = tables(chosen, rounds, rows, about)
    print(text)
    if options.write_doc:
        write_document(options.write_doc, text)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"about": about, "marks": rows, "figures": rounds.figures, "states": rounds.states,
                       "troubles": {name: str(trouble) for name, trouble in rounds.troubles.items()}}, file, indent=1)
    return 1 if any(not isinstance(t, stages.Missing) for t in rounds.troubles.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
