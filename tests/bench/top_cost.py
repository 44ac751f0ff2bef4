#!/usr/bin/env python3
"""top_cost.py - what watching costs and how soon a step is seen, on a long run that grows.

    bitrain bench store --steps 1000000 --keep /tmp/million.db            # 8 ranks, run `bench`
    tests/bench/top_cost.py build/bitrain /tmp/million.db [SECONDS [SCREEN...]]

Rows like the newest ones are added ten times a second while `bitrain top` runs in a pseudo-terminal of 200x60, on each screen for
SECONDS (default 12). Columns: processor time of top in per cent of a core, without its start; time from the commit of a step until
its number has been drawn (median, 95 %); first frame: processor time and wall time from exec to the first whole screen.
The database it is given is changed. Not a test: figures belong to the machine they come from.
"""
import fcntl, os, pty, re, select, signal, sqlite3, struct, sys, termios, time

SCREENS = ["overview", "ranks", "step", "comm", "ternary", "events", "runs", "system"]
AID_SHIFT, STEP_SHIFT = 46, 16


class Run:
    """the run `bench`, made to look alive and grown step by step"""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None, timeout=10)
        self.run, = self.db.execute("SELECT id FROM run WHERE name = 'bench'").fetchone()
        self.aid, = self.db.execute("SELECT max(id) FROM attempt WHERE run = ?", (self.run,)).fetchone()
        self.step, = self.db.execute("SELECT max(step) FROM step WHERE aid = ?", (self.aid,)).fetchone()
        self.db.execute("UPDATE run SET state = 'running', pid = ?, host = ?, ended_us = NULL WHERE id = ?", (os.getpid(), os.uname().nodename, self.run))
        self.db.execute("UPDATE attempt SET ended_us = NULL WHERE id = ?", (self.aid,))
        self.columns = [r[1] for r in self.db.execute("PRAGMA table_info(step)")]
        self.rank_columns = [r[1] for r in self.db.execute("PRAGMA table_info(rank_step)")]

    def key(self, step):
        return (self.aid << AID_SHIFT) + (step << STEP_SHIFT)

    def grow(self):
        old, new, now = self.step, self.step + 1, int(time.time() * 1e6)
        self.db.execute("BEGIN IMMEDIATE")
        cells = {"step": "step + 1", "t_us": str(now), "wall_us": str(now)}
        self.db.execute("INSERT INTO step SELECT %s FROM step WHERE aid = ? AND step = ?" % ", ".join(cells.get(c, '"%s"' % c) for c in self.columns), (self.aid, old))
        self.db.execute("INSERT INTO rank_step SELECT %s FROM rank_step WHERE key >= ? AND key < ?" %
                        ", ".join("key + %d" % (1 << STEP_SHIFT) if c == "key" else '"%s"' % c for c in self.rank_columns), (self.key(old), self.key(new)))
        self.db.execute("UPDATE run SET last_step = ?, last_us = ?, rev = rev + 1 WHERE id = ?", (new, now, self.run))
        self.db.execute("COMMIT")
        self.step = new
        return time.monotonic()


def run_ns(pid):
    return int(open("/proc/%d/schedstat" % pid).read().split()[0])


def start(program, db, name):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
        os.execv(program, [program, "top", "bench", "--store", db, "--screen", name])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    return pid, fd


class Screen:
    """as much of a terminal as it takes to read what ncurses drew"""

    def __init__(self, rows=60, cols=200):
        self.cells, self.y, self.x, self.rest = [[" "] * cols for _ in range(rows)], 0, 0, ""
        self.rows, self.cols = rows, cols

    def put(self, c):
        if 0 <= self.y < self.rows and 0 <= self.x < self.cols:
            self.cells[self.y][self.x] = c
        self.x += 1

    def feed(self, text):
        text, at = self.rest + text, 0
        while at < len(text):
            c = text[at]
            if c == "\x1b":
                m = re.compile(r"\x1b(?:\[([?0-9;]*)([@A-Za-z])|[()][0-9A-Z]|[=>78M])").match(text, at)
                if not m:
                    break                           # not all of it has come
                self.control(m.group(1) or "", m.group(2) or "")
                at = m.end()
                continue
            if c == "\r": self.x = 0
            elif c == "\n": self.y += 1
            elif c == "\b": self.x -= 1
            elif c >= " ": self.put(c)
            at += 1
        self.rest = text[at:]

    def control(self, args, verb):
        n = [int(a or 0) for a in args.lstrip("?").split(";")]
        one = n[0] or 1
        if verb == "H": self.y, self.x = (n[0] or 1) - 1, ((n + [1])[1] or 1) - 1
        elif verb == "d": self.y = one - 1
        elif verb == "G": self.x = one - 1
        elif verb in "ABCD" and verb: self.y, self.x = self.y + {"A": -one, "B": one}.get(verb, 0), self.x + {"C": one, "D": -one}.get(verb, 0)
        elif verb == "X": self.cells[self.y][self.x:self.x + one] = " " * min(one, self.cols - self.x)
        elif verb == "K": self.cells[self.y][self.x:] = " " * (self.cols - self.x)
        elif verb == "b":
            last = self.cells[self.y][self.x - 1]
            for _ in range(one): self.put(last)
        elif verb == "J": self.__init__(self.rows, self.cols)

    def step(self):
        m = re.search(r"step +([0-9,]+)", "".join(self.cells[1]))
        return int(m.group(1).replace(",", "")) if m else -1


def watch(program, run, path, name, seconds):
    began = time.monotonic()
    pid, fd = start(program, path, name)
    screen, waits, pending, first, last = Screen(), [], [], None, b""
    used, ends, next_step = None, began + 2 + seconds, began + 2
    while time.monotonic() < ends:
        now = time.monotonic()
        if now >= next_step:
            if used is None:
                used, measured = run_ns(pid), now
            pending.append((run.step + 2, run.grow()))              # screens count steps from 1: the next one
            next_step += 0.1
        ready, _, _ = select.select([fd], [], [], max(0, min(next_step, ends) - time.monotonic()))
        if not ready:
            continue
        try:
            data = last + os.read(fd, 65536)
        except OSError:
            sys.exit("top has ended: " + "".join("".join(r).rstrip() + "\n" for r in screen.cells).strip()[-300:])
        seen = time.monotonic()
        try:
            text, last = data.decode(), b""
        except UnicodeDecodeError as e:
            text, last = data[:e.start].decode(), data[e.start:]
        screen.feed(text)
        newest = screen.step()
        if first is None and newest > 0:
            first = (seen - began, run_ns(pid) / 1e9)
        while pending and pending[0][0] <= newest:
            waits.append(seen - pending.pop(0)[1])
    share = (run_ns(pid) - used) / 1e9 / (time.monotonic() - measured)
    os.write(fd, b"q")
    time.sleep(0.2)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
    os.close(fd)
    return share, sorted(waits), first


def main():
    program, path = os.path.abspath(sys.argv[1]), sys.argv[2]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 12
    run = Run(path)
    print("%-9s %12s %14s %14s %16s %16s" % ("screen", "% of a core", "seen p50 ms", "seen p95 ms", "first cpu ms", "first wall ms"))
    for screen in sys.argv[4:] or SCREENS:
        share, waits, first = watch(program, run, path, screen, seconds)
        at = lambda q: "%14.0f" % (1e3 * waits[min(len(waits) - 1, int(q * len(waits)))]) if waits else "%14s" % "-"
        print("%-9s %12.2f %s %s %16.1f %16.0f" % (screen, 100 * share, at(.5), at(.95), 1e3 * first[1], 1e3 * first[0]), flush=True)
    run.db.execute("UPDATE run SET state = 'done', ended_us = last_us WHERE id = ?", (run.run,))


main()
