"""What the runner says: a line for each cell, the matrix, the sum, JSON."""
import json

from row import FAMILIES, MTUS, ROLES

WORDS = {"pass": "ok  ", "fail": "FAIL", "skip": "skip"}
# What it may take on two quiet cores. Others may load the machine: only what takes twice as long fails.
BOUNDS_S = {"short form": 300, "matrix": 960}
COLUMNS = [(role, family, mtu) for role in ROLES for family in FAMILIES for mtu in MTUS]


def show(cell, result):
    first, _, rest = result["reason"].partition("\n")
    print(f"{WORDS[result['status']]} {cell.name()} ({result['seconds']:.1f} s){': ' if first else ''}{first}")
    for line in [*rest.splitlines(), *result.get("notes", [])]:
        print(f"     {line}")


def mark(cells, results, column):
    cell = next((one for one in cells if (one.role, one.family, one.mtu) == column), None)
    if cell is None:
        return "-"
    return WORDS[results[id(cell)]["status"]].strip() if id(cell) in results else "."


def show_matrix(rows_and_cells, results):
    """`results`: by the cell's id. A dot was not asked for, a dash cannot be."""
    shown = [(row, cells) for row, cells in rows_and_cells if any(id(cell) in results for cell in cells)]
    width = max([len(f"{row.group}/{row.title()}") for row, _ in shown] + [10])
    print()
    for number, name in ((0, "our RNIC"), (1, "IP"), (2, "RoCE MTU")):
        print(f"{name:>{width}}  " + " ".join(f"{str(column[number])[:7]:>7}" for column in COLUMNS))
    for row, cells in shown:
        print(f"{row.group + '/' + row.title():<{width}}  "
              + " ".join(f"{mark(cells, results, column):>7}" for column in COLUMNS))
    print()


def write_json(path, played):
    with open(path, "w") as file:
        json.dump({"cells": [dict(result, group=cell.row.group, row=cell.row.title(), role=cell.role,
                                  family=cell.family, mtu=cell.mtu) for cell, result in played]}, file, indent=1)


def took(whole, seconds):
    """Says how long it was; true if that is too long."""
    bound = BOUNDS_S[whole]
    print(f"The {whole} took {seconds:.0f} s; its bound is {bound} s")
    if bound < seconds <= 2 * bound:
        print("WARNING: that is too long, unless others use this machine")
    return seconds > 2 * bound


def conclude(played, whole, seconds):
    """`whole`: which form was played from its first cell to its last, if one was."""
    states = [result["status"] for _, result in played]
    for cell, result in played:
        if result["status"] == "fail":
            print(f"FAILED: {cell.name()}")
    if whole and took(whole, seconds):
        print(f"FAILED: the {whole} takes more than twice its time")
        states.append("fail")
    print(f"{states.count('pass')} passed, {states.count('fail')} failed, {states.count('skip')} skipped")
    return 1 if "fail" in states or "pass" not in states else 0
