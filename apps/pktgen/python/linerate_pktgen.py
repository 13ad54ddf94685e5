"""The JSON interface of ``linerate pktgen``: sessions, commands, waits and loops, with nothing but the
standard library.

    import linerate_pktgen

    with linerate_pktgen.launch(["ring:a,loop=on"], ["size=64 rate=10kpps"]) as session:
        for size, counts in session.sweep("size", [64, 512, 1518], seconds=1):
            print(size, linerate_pktgen.totals(counts))

``connect`` reaches a session that was started with ``--listen``. What a session refuses is a
``Problem``, which says what to do about it. What the methods take and answer is in the guide,
docs/pktgen.md.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time

__all__ = ["Problem", "Session", "connect", "launch", "totals", "usual_address"]
__version__ = "0.1.0"

# A session that was just started may still be opening its ports.
_PATIENCE_S = 20.0


class Problem(Exception):
    """What a session refused: ``problem`` says why, ``fix`` what to do."""

    def __init__(self, problem, fix=""):
        super().__init__(f"{problem}; {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix


def usual_address():
    """Where ``--listen`` alone listens."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return os.path.join(runtime, "linerate", "pktgen.sock")
    if os.geteuid() == 0:
        return "/run/linerate/pktgen.sock"
    return f"/tmp/linerate-{os.geteuid()}/pktgen.sock"


def connect(address=None, token=None, timeout=None):
    """A session that listens at ``address``: a path, ``unix:PATH``, or ``tcp:ADDRESS:PORT`` with the
    ``token`` that it wants; by itself at the usual place. ``timeout``: seconds that an answer may take."""
    address = usual_address() if address is None else str(address)
    if address.startswith("tcp:"):
        host, _, port = address[4:].rpartition(":")
        wire = socket.create_connection((host.strip("[]"), int(port)), timeout)
    else:
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(timeout)
        try:
            wire.connect(address[5:] if address.startswith("unix:") else address)
        except OSError:
            wire.close()
            raise
    session = Session(wire)
    if token is not None:
        try:
            session.ask("hello", token=token)
        except BaseException:
            session.close()
            raise
    return session


def launch(ports, streams=(), program="linerate", options=()):
    """Starts a session of its own with these ports and streams, connects, and ends it when the ``with``
    block does, or at ``close``. Nothing is sent before ``start``."""
    folder = tempfile.TemporaryDirectory(prefix="linerate-")
    address = os.path.join(folder.name, "pktgen.sock")
    said = tempfile.TemporaryFile()
    command = [program, "pktgen", "--json", "--no-start", "--listen", address, *options]
    for port in ports:
        command += ["--port", port]
    for stream in streams:
        command += ["--stream", stream]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
    )

    def ended():
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        said.close()
        folder.cleanup()

    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            session = connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            said.seek(0)
            why = said.read().decode(errors="replace").strip()
            ended()
            raise Problem(why or "the session did not begin to listen") from None
        except BaseException:
            ended()
            raise
        session._ended = ended
        return session


def totals(counts):
    """What a snapshot says of all its streams together: ``sent``, ``received``, ``lost``, ``reordered``,
    ``duplicates``, ``unsent``, and ``loss``, the lost part of those sent."""
    names = ("sent", "received", "lost", "reordered", "duplicates")
    streams = counts["streams"]
    sums = {name: sum(stream["tally"][name] for stream in streams) for name in names}
    sums["unsent"] = sum(stream["unsent"] for stream in streams)
    sums["loss"] = sums["lost"] / sums["sent"] if sums["sent"] else 0.0
    return sums


class Session:
    """A connection to a session. Requests are answered one after the other; not for several threads."""

    def __init__(self, wire):
        self._wire = wire
        self._lines = wire.makefile("r", encoding="utf-8", newline="\n")
        self._next = 0
        self._events = []
        self._ended = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the connection, and the session too where ``launch`` started it."""
        self._lines.close()
        self._wire.close()
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()

    def ask(self, method, **params):
        """The answer to one of the methods; params that are ``None`` are left out."""
        given = {name: value for name, value in params.items() if value is not None}
        return self._ask({"method": method, "params": given})

    def command(self, line):
        """The answer to a command, as it would be typed: ``text`` for people, ``data`` where there is
        more."""
        return self._ask({"command": line})

    def set(self, ports, key, value):
        """Changes a port, or all streams that it sends."""
        return self.ask("set", ports=ports, key=key, value=str(value))["text"]

    def start(self, ports="all", seconds=None):
        """Begins to send, for so long or until stopped."""
        self.ask("start", ports=ports, seconds=seconds)

    def stop(self, ports="all"):
        """Sends no more."""
        self.ask("stop", ports=ports)

    def clear(self):
        """All counts begin at zero."""
        self.ask("clear")

    def wait(self, seconds=None):
        """Until all is sent and none is under way any more, or for so long: whether it is so. Frames that
        have not come by then are lost."""
        return self.ask("wait", seconds=seconds)["done"]

    def snapshot(self):
        """All counts now."""
        return self.ask("snapshot")

    def snapshots(self, period=1.0):
        """All counts each ``period`` seconds, until the loop over them is left."""
        self.ask("subscribe", period_ms=round(period * 1000))
        try:
            while True:
                while not self._events:
                    self._take(self._read())
                yield self._events.pop(0)
        finally:
            self.ask("unsubscribe")
            self._events.clear()

    def streams(self, ports="all"):
        """The streams: ``id``, ``name``, ``port``, ``enabled`` and ``line`` of each."""
        return self.ask("streams", ports=ports)

    def run(self, seconds=None, ports="all"):
        """One trial: clears, sends for so long (or all counts), waits for the last frame; the counts."""
        self.clear()
        self.start(ports, seconds)
        self.wait()
        return self.snapshot()

    def sweep(self, key, values, seconds=None, ports="all"):
        """A trial for each value of a key: pairs of value and counts."""
        for value in values:
            self.set(ports, key, value)
            yield value, self.run(seconds, ports)

    def until(self, reached, seconds, period=0.1):
        """Looks each ``period`` seconds until ``reached(counts)``; those counts, or ``None`` when the time
        is up."""
        deadline = time.monotonic() + seconds
        while True:
            counts = self.snapshot()
            if reached(counts):
                return counts
            if time.monotonic() >= deadline:
                return None
            time.sleep(period)

    def quit(self):
        """Ends the session for all."""
        self.ask("quit")

    def _ask(self, request):
        self._next += 1
        request["id"] = self._next
        self._wire.sendall((json.dumps(request) + "\n").encode())
        while True:
            answer = self._read()
            if self._take(answer) or answer.get("id") != self._next:
                continue
            if answer["ok"]:
                return answer["result"]
            error = answer["error"]
            raise Problem(error["problem"], error.get("fix", ""))

    def _read(self):
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the session has ended")
        return json.loads(line)

    def _take(self, answer):
        """Keeps an event for who subscribed to it; false for an answer."""
        if "event" not in answer:
            return False
        self._events.append(answer["result"])
        return True
