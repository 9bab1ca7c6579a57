#!/usr/bin/env python3
"""weir bench as people use it: both ends by itself, one end each, failing ends; and its page in a real browser.

Usage: bench_test.py BUILD_DIR [PICTURE_PREFIX]     status 77: the browser part was skipped, as chromium is missing"""
import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import browser

WEIR = os.path.join(os.path.realpath(sys.argv[1]), "weir")
OPERATIONS = ["send", "write", "write-imm", "read", "fetch-add", "compare-swap", "message", "put"]
SHORT = ["--fabric", "soft", "--runs", "1", "--seconds", "0.001"]


def weir(*words, status=0):
    done = subprocess.run([WEIR, "bench", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == status, f"weir bench {' '.join(words)}: status {done.returncode}, not {status}: {done.stderr}"
    return done


class Server:
    def __init__(self, address="127.0.0.1:0"):
        self.process = subprocess.Popen([WEIR, "bench", "--serve", address, "--fabric", "soft"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address = re.search(r" at (\S+) ", self.process.stdout.readline()).group(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)


def check_report(report):
    """Every case of all operations, verified, with figures that agree with each other."""
    cases = report["results"]
    wanted = {(o, m, "one-way" if m == "latency" else d, mode, s)
              for o in OPERATIONS for m in ("latency", "bandwidth") for d in ("one-way", "both-ways")
              for mode in ("poll", "event") for s in ((8,) if o in ("fetch-add", "compare-swap") else (8, 4096))}
    found = [(c["operation"], c["measure"], c["direction"], c["mode"], c["size"]) for c in cases]
    assert len(found) == len(set(found)) and set(found) == wanted, wanted ^ set(found)
    for case in cases:
        assert case["verified"] is True and len(case["runs"]) == 1, case
        assert case["link"] == "memory", case
        count = case["runs"][0]["count"]
        if case["measure"] == "latency":
            latency = case["latency_us"]
            known = [latency[k]["median"] for k in ("min", "p50", "p90", "p99", "p99.9", "max") if latency[k]]
            assert known == sorted(known) and known[0] > 0, latency
            assert sum(bucket[1] for bucket in case["histogram_us"]) == count, case
            assert abs(case["histogram_us"][-1][0] / latency["max"]["median"] - 1) < 1e-6, case
        else:
            rate, bytes_per_s = case["operations_per_s"]["median"], case["bytes_per_s"]["median"]
            assert rate > 0 and abs(bytes_per_s / (rate * case["size"]) - 1) < 1e-6, case
    assert report["client"]["device"] == "weir0" and report["client"]["reason"] == "asked for"
    assert report["client"]["machine"]["kernel"] == os.uname().release and report["link"]["same_machine"]


def test_alone(folder):
    """Both ends by itself: JSON on standard output, the same in the page."""
    page = os.path.join(folder, "page.html")
    done = weir(*SHORT, "--size", "8,4k", "--mode", "all", "--direction", "all", "--json", "--html", page)
    report = json.loads(done.stdout)
    check_report(report)
    embedded = re.search(r'id="results">(.*?)</script>', open(page).read(), re.S).group(1)
    assert [c["operation"] for c in json.loads(embedded)["results"]] == [c["operation"] for c in report["results"]]
    return page, report


def test_link():
    """What carried it: not what it would be, were it not for an environment variable."""
    os.environ["WEIR_LINK"] = "udp"
    try:
        done = weir(*SHORT, "--size", "8,64k", "--op", "send,write,read,message", "--mode", "poll", "--json")
    finally:
        del os.environ["WEIR_LINK"]
    assert {case["link"] for case in json.loads(done.stdout)["results"]} == {"UDP"}, done.stdout


def test_two_ends():
    with Server() as server:
        table = weir(server.address, *SHORT, "--op", "send,read,message", "--size", "64").stdout
        for operation in ("send", "read", "message"):
            assert len(re.findall(rf"^{operation} .* 64 B ", table, re.M)) == 2, table
        # A client that dies in the middle of a run costs the server nothing but that client.
        client = subprocess.Popen([WEIR, "bench", server.address, "--fabric", "soft", "--op", "send", "--size", "8", "--seconds", "20"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "latency" not in client.stdout.readline().lower() and select.select([client.stdout], [], [], 1)[0]:
            pass
        client.kill()
        client.communicate()
        weir(server.address, *SHORT, "--op", "write", "--size", "8", "--measure", "bandwidth")
        # Nor does one that does not speak its language.
        host, port = server.address.split(":")
        for line in (b"GET / HTTP/1.1\n", b'{"run": 5}\n', b'{"case": {"operation": "send", "size": 1e99}}\n',
                     b'{"hello": 99}\n', b"x" * 70000):
            with socket.create_connection((host, int(port)), 20) as stranger:
                stranger.settimeout(20)
                try:
                    stranger.sendall(line)
                    while stranger.recv(4096):
                        pass
                except ConnectionError:
                    pass
        weir(server.address, *SHORT, "--op", "read", "--size", "8", "--measure", "latency")
        assert server.process.poll() is None


def test_interrupted_in_a_run(folder):
    """Either end, in the middle of a run: it ends then, not when the run is over. Where nothing was measured there is no page,
    and one that was there stays as it was."""
    page = os.path.join(folder, "unmeasured.html")
    words = ["--fabric", "soft", "--op", "send", "--size", "8", "--seconds", "60", "--runs", "1"]
    for interrupted in ("server", "client"):
        with Server() as server:
            client = subprocess.Popen([WEIR, "bench", server.address, *words, "--html", page], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            while not client.stdout.readline().startswith("each case"):
                assert client.poll() is None, client.returncode
            time.sleep(0.5)
            (server.process if interrupted == "server" else client).send_signal(signal.SIGTERM)
            client.communicate(timeout=15)
            if interrupted == "server":
                assert server.process.wait(15) == 0 and client.returncode in (4, 5), client.returncode
            else:
                assert client.returncode == 130, client.returncode
        if interrupted == "server":
            assert not os.path.exists(page)
            with open(page, "w") as file:
                file.write("of before")
        with open(page) as file:
            assert file.read() == "of before"


def test_interrupted_before_it_begins():
    """Both ends, as by a terminal, while the leading one waits for the other to listen."""
    leader = subprocess.Popen([WEIR, "bench", *SHORT, "--op", "read", "--size", "8"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, start_new_session=True)
    while not children(leader.pid) and leader.poll() is None:
        pass
    led = children(leader.pid)[0]
    os.kill(led, signal.SIGSTOP)
    os.killpg(leader.pid, signal.SIGINT)
    time.sleep(0.2)
    os.kill(led, signal.SIGCONT)
    said = leader.communicate(timeout=15)[0]
    assert leader.returncode == 130 and said == "", (leader.returncode, said)


def test_every_address():
    """As its help says: of IPv4, and where there is IPv6, of that."""
    with Server("*:0") as server:
        port = server.address.rsplit(":", 1)[1]
        for host in ["127.0.0.1"] + (["[::1]"] if has_ipv6() else []):
            table = weir(f"{host}:{port}", *SHORT, "--op", "read,message", "--size", "64").stdout
            assert len(re.findall(r"^(read|message) .* 64 B ", table, re.M)) == 4, table


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def lie(listener):
    """An end that has nothing, and says so in words that a terminal would obey."""
    stranger = listener.accept()[0]
    with stranger, stranger.makefile("rw") as lines:
        for answer in ({"server": {"device": "a\x1b[2Jb"}}, {"unsupported": "c\x1b[2Jd" + "\u00e9" * 200}):
            lines.readline()
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
        lines.readline()


def test_words_of_the_other_end():
    for words in ((), ("--json",)):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=lie, args=(listener,))
            thread.start()
            said = weir(f"127.0.0.1:{listener.getsockname()[1]}", *SHORT, *words, "--op", "send", "--size", "8", "--measure", "latency").stdout
            thread.join()
        assert "\x1b" not in said and "u001b" not in said, said
        assert "the other end: c" in said, said


@contextlib.contextmanager
def liar(server, amend):
    """An address at which that server is led, but what it answers is first given to `amend`."""
    def carry():
        with listener.accept()[0] as client, socket.create_connection(server.address.split(":"), 20) as behind, \
                client.makefile("rw") as questions, behind.makefile("rw") as answers:
            for question in questions:
                answers.write(question)
                answers.flush()
                questions.write(json.dumps(amend(json.loads(answers.readline()))) + "\n")
                questions.flush()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=carry)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(20)


def test_times_that_cannot_be(folder):
    """Of another end: the case is refused and what was measured before is kept, with figures for all."""
    page = os.path.join(folder, "lied.html")
    for lies in ({"seconds": 1e-320}, {"seconds": 0}, {"seconds": -1}, {"cpu_s": 1e308}, {"cpu_s": -1e-300}):
        cases = []

        def amend(answer):
            if "server" in answer:  # another machine, of whose words no text can be made
                answer["server"].update(device={"toString": 0, "valueOf": 0}, machine={"kernel": {"toString": 0, "valueOf": 0}})
            cases.extend(answer.keys() & {"end"})
            return {**answer, **lies} if len(cases) == 2 and "seconds" in answer else answer
        with Server() as server, liar(server, amend) as address:
            done = weir(address, *SHORT, "--op", "write", "--measure", "bandwidth", "--direction", "both-ways", "--size", "8,64",
                        "--json", "--html", page, status=5)
        assert "the other end's times cannot be: " in done.stderr, done.stderr
        report = json.loads(done.stdout)
        assert [(case["size"], case["operations_per_s"]["median"] > 0) for case in report["results"]] == [(8, True)], report
    return page


def test_channel_is_where_the_other_end_was_reached():
    """Whatever it calls itself: of an address of one link each end has its own name."""
    def amend(answer):
        if "address" in answer.get("end", {}):
            answer["end"]["address"] = "[fe80::1%nowhere]:" + answer["end"]["address"].rsplit(":", 1)[1]
        return answer
    with Server() as server, liar(server, amend) as address:
        weir(address, *SHORT, "--op", "message,put", "--size", "64", "--measure", "latency")


def test_write_that_fails():
    """Who waits in memory for the other end's WRITE hears that its own has failed."""
    def amend(answer):
        if "qpn" in answer.get("end", {}):
            answer["end"]["qpn"] ^= 1  # nobody's
        return answer
    with Server() as server, liar(server, amend) as address:
        done = weir(address, *SHORT, "--op", "write", "--measure", "latency", "--size", "8", status=4)
    assert "write of 8 B failed: transport retry counter exceeded" in done.stderr, done.stderr


def test_failures():
    assert "Try 'weir bench --help'" in weir("--op", "sned", status=2).stderr
    weir("--size", "0", status=2)
    assert "--size takes 1 to 64m, up to 32 of them, not '33'" in weir("--size", ",".join(map(str, range(1, 40))), status=2).stderr
    weir("--runs", "0", status=2)
    weir("one", "two", status=2)
    for words in (("--op", "read"), ("--size", "8"), ("--measure", "all"), ("--direction", "all"), ("--mode", "all"), ("--depth", "1"),
                  ("--runs", "1"), ("--seconds", "1"), ("--huge",), ("--json",), ("--html", "/nowhere/page.html")):
        for order in (("--serve", "127.0.0.1:0", *words), (*words, "--fabric", "soft", "--serve", "127.0.0.1:0")):
            assert f"{words[0]} is for the end that leads, not for --serve" in weir(*order, status=2).stderr
    assert 'not NAME[:PORT' in weir("--fabric", "soft", "--device", "weir0:x", status=2).stderr
    assert "no device weir0 with an active port 9" in weir("--fabric", "soft", "--device", "weir0:9", status=6).stderr
    assert "weir0 port 1 has no GID 99" in weir(*SHORT, "--device", "weir0:1:99", "--op", "read", "--size", "8", status=6).stderr
    os.environ["WEIR_ADDRESS"] = "127.0.0.1"  # the only GID: at the index behind it is none
    assert "weir0 port 1 has no GID 1\n" in weir(*SHORT, "--device", "weir0:1:1", "--op", "read", "--size", "8", status=6).stderr
    del os.environ["WEIR_ADDRESS"]
    assert "weir bench --serve" in weir("127.0.0.1:1", "--fabric", "soft", status=3).stderr
    assert "usage: weir bench" in weir("--help").stdout
    done = weir(*SHORT, "--op", "read", "--size", "8", "--html", "/nowhere/page.html", status=6)
    assert "/nowhere/page.html: No such file" in done.stderr, done.stderr
    assert done.stdout == "", done.stdout  # nothing was measured for it


def test_nobody_reads():
    """Who has seen enough (head) does not wait until all is measured, a minute later."""
    leader = subprocess.Popen([WEIR, "bench", "--fabric", "soft"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    leader.stdout.readline()
    leader.stdout.close()
    said = leader.stderr.read()
    assert leader.wait(20) == 6 and "standard output takes nothing more" in said, said


def children(pid):
    try:
        return [int(word) for word in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    except OSError:
        return []


def listens(pid):
    """Has a listening TCP socket."""
    rows = [line.split() for line in open(f"/proc/{pid}/net/tcp").readlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return any(os.readlink(entry.path) in inodes for entry in os.scandir(f"/proc/{pid}/fd"))


def test_fabric_of_one_end_only(folder):
    """The led end has its device, then the leading one gets none: both end. (The libraries go while it is stopped.)"""
    libraries = os.path.join(folder, "libraries")
    for _ in range(5):
        os.mkdir(libraries)
        for name in os.listdir(os.path.join(os.path.realpath(sys.argv[1]), "dropin")):
            os.symlink(os.path.join(os.path.realpath(sys.argv[1]), "dropin", name), os.path.join(libraries, name))
        leader = subprocess.Popen([WEIR, "bench", *SHORT, "--op", "read", "--size", "8"], env={**os.environ, "WEIR_LIBRARY_DIR": libraries},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not children(leader.pid) and leader.poll() is None:
            pass
        leader.send_signal(signal.SIGSTOP)
        led = children(leader.pid)[0]
        give_up = time.monotonic() + 20
        while not listens(led):
            assert time.monotonic() < give_up, "the led end does not listen"
        shutil.rmtree(libraries)
        leader.send_signal(signal.SIGCONT)
        said = leader.communicate(timeout=60)[1]
        if leader.returncode != 0:  # else it was too quick for us
            assert leader.returncode == 6 and "WEIR_LIBRARY_DIR" in said, (leader.returncode, said)
            return
    raise AssertionError("the leading end always had its libraries")


# --- the page ---

def expected_points(report):
    """Plot and series -> how many points it has to have."""
    points = {}
    for case in report["results"]:
        operation, mode, direction = case["operation"], case["mode"], case["direction"]
        if case["measure"] == "latency":
            names = [f"latency-{mode}"]
            if case["size"] == 8:
                points[f"distribution-{mode}", operation] = len(case["histogram_us"])
        else:
            names = [f"bandwidth-{mode}-{direction}", f"rate-{mode}-{direction}"]
        for name in names:
            points[name, operation] = points.get((name, operation), 0) + 1
    return points


POINTS = """[...document.querySelectorAll("svg polyline.series")].map(line =>
    [line.dataset.plot, line.dataset.series, line.points.numberOfItems,
     [...line.points].every(p => isFinite(p.x) && isFinite(p.y))])"""
DOTS = """[...document.querySelectorAll("svg circle.point")].map(c => [c.dataset.plot, c.dataset.series, +c.dataset.x, +c.dataset.y])"""
# What reaches over the window, and what reaches over its plot.
OVERFLOW = """[...(document.documentElement.scrollWidth > innerWidth ? ["the page"] : []),
    ...[...document.querySelectorAll("svg")].flatMap(svg => { const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text, circle, polyline")].filter(t => { const b = t.getBoundingClientRect();
            return box.left > b.left + 1 || b.right > box.right + 1 || box.top > b.top + 1 || b.bottom > box.bottom + 1; })
            .map(t => svg.getAttribute("aria-label") + ": " + t.outerHTML.slice(0, 200)); })]"""
# Labels of one plot that lie on each other.
COLLISIONS = """[...document.querySelectorAll("svg")].flatMap(svg => { const l = [...svg.querySelectorAll("text.label")].map(t => t.getBoundingClientRect());
    return l.flatMap((a, i) => l.slice(i + 1).filter(b => a.left < b.right && b.left < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom)); }).length"""


def test_page(page, report, lied, picture):
    chrome = browser.Browser()
    try:
        chrome.open(page)
        wanted = expected_points(report)
        for width, dark in ((1400, False), (400, True), (400, False), (1400, True)):
            chrome.resize(width, dark)
            lines = chrome.evaluate(POINTS)
            assert {(p, s): n for p, s, n, _ in lines} == wanted, "points are missing"
            assert all(finite for *_, finite in lines)
            over = chrome.evaluate(OVERFLOW)
            assert not over, f"at {width} pixels reach over their place: {over}"
            assert chrome.evaluate(COLLISIONS) == 0, f"at {width} pixels labels lie on each other"
            if picture:
                chrome.picture(f"{picture}-{width}-{'dark' if dark else 'light'}.png")
        dots = {tuple(d) for d in chrome.evaluate(DOTS)}
        for case in report["results"]:
            if case["measure"] == "bandwidth":
                plot = f"bandwidth-{case['mode']}-{case['direction']}"
                assert any(d[:3] == (plot, case["operation"], case["size"]) and
                           abs(d[3] / case["bytes_per_s"]["median"] - 1) < 1e-4 for d in dots), case
        assert chrome.evaluate("document.querySelectorAll('tbody tr').length") == len(report["results"])
        assert "asked for" in chrome.evaluate("document.body.innerText")
        chrome.open(lied)
        assert chrome.evaluate("document.querySelectorAll('tbody tr').length") == 1
        assert "Server" in chrome.evaluate("document.body.innerText")
        assert not chrome.complaints, chrome.complaints
    finally:
        chrome.close()


def main():
    with tempfile.TemporaryDirectory(prefix="weir-bench.") as folder:
        page, report = test_alone(folder)
        test_link()
        test_failures()
        test_nobody_reads()
        test_fabric_of_one_end_only(folder)
        test_words_of_the_other_end()
        test_channel_is_where_the_other_end_was_reached()
        test_write_that_fails()
        lied = test_times_that_cannot_be(folder)
        test_two_ends()
        test_every_address()
        test_interrupted_in_a_run(folder)
        test_interrupted_before_it_begins()
        if not browser.find():
            print("no chromium: the page was not looked at")
            return 77
        test_page(page, report, lied, sys.argv[2] if len(sys.argv) > 2 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
