"""What two ends of a tour have said, against docs/interop.md: a difference from the specification that
is not listed there fails, and so does a listed one that was not seen although its case was played."""
import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "interop.md"
ANY = "any"


def listed(document=DOCUMENT):
    """Rows of the tables whose first column is `case`: {(case, requester, responder, what, specified): seen}. `any`
    stands for each case or each end."""
    rows, inside = {}, False
    for line in document.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == "case":
            inside = True
        elif inside and not re.match(r"^[-:]+$", cells[0]):
            rows[tuple(cells[:5])] = cells[5]
    return rows


def matches(row, *words):
    return all(listed in (ANY, word) for listed, word in zip(row, words))


def judge(lines, document=DOCUMENT):
    """(number of cases played, complaints) of what the leading end has printed."""
    played, seen = [], {}
    for line in lines:
        words = line.split()
        if words[:1] == ["case"]:
            played.append((tuple(words[1:4]), {word.partition("=")[0] for word in words[4:]}))
        elif words[:1] == ["differs"]:
            seen[tuple(words[1:6])] = words[6]
    rows = listed(document)
    complaints = unexpected(rows, seen)
    told = sum(line.startswith("differs ") for line in lines)
    if not played or lines[-1].strip() != f"{told} differences":
        complaints.append(f"the tour broke off after {len(played)} cases")
    for row in rows:
        complaints += gone(row, played, seen)
    return len(played), complaints


def unexpected(rows, seen):
    return [f"{case}, {first} to {second}: {what} should be {specified} and is {value}"
            for (case, first, second, what, specified), value in seen.items()
            if value not in [rows[row] for row in rows if matches(row, case, first, second, what, specified)]]


def gone(row, played, seen):
    """A row about every case must be true of one, the others of each that was played."""
    concerned = [words for words, fields in played
                 if matches(row[:3], *words) and (row[0] != ANY or row[3] in fields)]
    missed = [words for words in concerned if not any(difference[:3] == words and matches(row, *difference)
                                                      for difference in seen)]
    if not missed or (row[0] == ANY and len(missed) < len(concerned)):
        return []
    return [f"{case}, {first} to {second}: {row[3]} is now as specified, the list says it is not"
            for case, first, second in missed[:1]]
