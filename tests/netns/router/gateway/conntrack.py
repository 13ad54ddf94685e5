"""The same packets of generated flows through two firewalls: Linux with nftables and conntrack, and
the gateway with the equal policy. Compares which packets pass, what they become, what the firewalls
say themselves, and the states of the flows.

Arguments: a JSON text with `linux` and `gateway`, each the name spaces `left`, `mid` and `right`;
`seed`, `count`, and `control`, the gateway's socket, with the program `linerate`. Exits with 1 and
the differences that nothing here explains, with 3 if the machine lost packets.

A flow is a story: a name, and packets of both sides that do not depend on what has passed. In each
round every story under way sends one packet, first those from inside, then those from outside; a
packet of a flow of their own marks the end of each. Packets have identifications of their own, by
which they are found again. Where Linux and the gateway differ by design, `DIFFERENCES` says so, by
story and packet, with the reason.
"""

import collections
import json
import os
import socket
import struct
import subprocess
import sys
import time

from stories import (AT_ONCE, FAR, GATEWAY_INSIDE, GATEWAY_OUTSIDE, HOST, ICMP, IN, OTHER, OUT,
                     OUTSIDE, RST, SERVED, TCP, UDP, checksum, ip, script)
from wire import Wire

PATIENCE = 60


class Lost(Exception):
    """The machine has lost packets."""


class Ipv4Wire(Wire):
    """A wire that carries IPv4 packets between two stations."""

    def __init__(self, namespace, interface, own, gateway):
        super().__init__(namespace, interface)
        self.link = bytes.fromhex(gateway + own) + b"\x08\x00"

    def send(self, packet):
        super().send(self.link + packet)

    def take(self, patience):
        end = time.monotonic() + patience
        while (frame := super().take(end)) is not None:
            if frame[12:14] == b"\x08\x00":
                length = struct.unpack("!H", frame[16:18])[0]
                return frame[14:14 + length]
        return None


def ident_of(packet):
    return struct.unpack("!H", packet[4:6])[0]


class System:
    """A firewall between two wires."""

    MARK = (("10.60.0.99", 9999), ("10.20.99.99", 9))

    def __init__(self, name, place):
        self.name, self.mid = name, place["mid"]
        self.wires = {IN: Ipv4Wire(place["left"], "veth0", HOST, GATEWAY_INSIDE),
                      OUT: Ipv4Wire(place["right"], "veth1", FAR, GATEWAY_OUTSIDE)}
        self.sent = {}  # by identification: the last packet of it
        self.outer = {}  # by flow: its inside end for those outside
        self.passed = collections.defaultdict(list)  # by packet: what came out
        self.told = collections.defaultdict(list)  # by packet: what the firewall said of it
        self.strange = []
        self.pieces = {}
        for _ in range(3):
            self.round([], IN)
            self.round([], OUT)

    def round(self, packets, sender):
        """Sends packets of one side, and takes in all that comes until the last is through."""
        here, there = self.wires[sender], self.wires[OUT if sender == IN else IN]
        for packet in packets:
            self.sent[packet.number & 0xFFFF] = packet
            for piece in packet.bytes(self.outer.get(packet.flow, self.outside_of(packet.flow))):
                here.send(piece)
        (source, src_port), (target, dst_port) = self.MARK
        if sender == OUT:
            source, src_port, target, dst_port = target, dst_port, OUTSIDE, src_port
        segment = struct.pack("!HHHH", src_port, dst_port, 8, 0)
        here.send(ip(source, target, UDP, segment, 0))
        while True:
            packet = there.take(PATIENCE)
            if packet is None:
                raise Lost("%s: the packet that marks the end of a round" % self.name)
            if len(packet) == 28 and packet[9] == UDP and packet[4:6] == b"\0\0" \
                    and segment[:8] == packet[20:28]:
                break
            self.came(packet, OUT if sender == IN else IN)
        while (packet := here.take(0)) is not None:
            self.came(packet, sender)

    def outside_of(self, flow):
        return SERVED if flow.served else (OUTSIDE, flow.inner[1])

    def came(self, packet, side):
        """What came to the end of a wire."""
        if struct.unpack("!H", packet[6:8])[0] & 0x3FFF:
            packet = self.whole(packet, side)
            if packet is None:
                return
        header = (packet[0] & 15) * 4
        about = self.about(packet, side, header)
        if about is not None:
            self.told[about.number].append(packet)
            return
        sent = self.sent.get(ident_of(packet))
        if sent is None or sent.sender == side:
            self.strange.append((side, packet))
            return
        self.passed[sent.number].append(packet)
        if side == OUT and sent.protocol == packet[9] and not sent.flow.served:
            at = {TCP: 20, UDP: 20, ICMP: 24}.get(packet[9])
            if at and (packet[9] != ICMP or packet[20] in (8, 13)):
                port = struct.unpack("!H", packet[at:at + 2])[0]
                self.outer[sent.flow] = (socket.inet_ntoa(packet[12:16]), port)

    def has_type(self, sent, kind):
        """Whether an ICMP packet that was sent is of this type and code: the firewall's own may
        have the same identification by chance."""
        own = sent.bytes(self.outer.get(sent.flow, self.outside_of(sent.flow)))[0]
        at = (own[0] & 15) * 4
        return own[at:at + 2] == kind

    def about(self, packet, side, header):
        """The packet of this side that the firewall itself speaks of, if it does."""
        if packet[9] == ICMP and packet[header] in (3, 11, 12) and len(packet) >= header + 28:
            quoted = self.sent.get(ident_of(packet[header + 8:]))
            by_id = self.sent.get(ident_of(packet))
            passes = by_id is not None and by_id.sender != side and by_id.protocol == ICMP \
                and self.has_type(by_id, packet[header:header + 2])
            if quoted is not None and quoted.sender == side and not passes:
                return quoted
        if packet[9] == TCP and packet[header + 13] & RST:
            by_id = self.sent.get(ident_of(packet))
            ports = struct.unpack("!HH", packet[header:header + 4])
            if by_id is None or by_id.sender == side or by_id.protocol != TCP:
                for sent in reversed(list(self.sent.values())[-4 * AT_ONCE:]):
                    if sent.protocol == TCP and sent.sender == side == IN \
                            and (sent.flow.far[1], sent.flow.inner[1]) == ports:
                        return sent
        return None

    def whole(self, packet, side):
        """The datagram of which this is the last fragment that was missing."""
        word, header = struct.unpack("!H", packet[6:8])[0], (packet[0] & 15) * 4
        parts = self.pieces.setdefault((side, packet[4:6], packet[12:20]), {})
        parts[(word & 0x1FFF) * 8] = (packet[header:], bool(word & 0x2000))
        data, at = b"", 0
        while at in parts:
            piece, more = parts[at]
            data, at = data + piece, at + len(piece)
            if not more:
                del self.pieces[(side, packet[4:6], packet[12:20])]
                first = packet[:2] + struct.pack("!H", header + len(data)) + packet[4:6] + b"\0\0" \
                    + packet[8:10] + b"\0\0" + packet[12:header]
                return first[:10] + struct.pack("!H", checksum(first)) + first[12:] + data
        return None

    def run(self, flows):
        waiting, under_way = list(reversed(flows)), []
        while waiting or under_way:
            while waiting and len(under_way) < AT_ONCE:
                under_way.append([waiting.pop(), 0])
            now = [flow.packets[at] for flow, at in under_way]
            for sender in (IN, OUT):
                self.round([packet for packet in now if packet.sender == sender], sender)
            under_way = [[flow, at + 1] for flow, at in under_way if at + 1 < len(flow.packets)]
        time.sleep(0.5)
        for side, wire in self.wires.items():
            while (packet := wire.take(0)) is not None:
                self.came(packet, side)


# Comparing.

# Where Linux and the gateway differ by design: story, and packet or `state`; how; and why.
ONLY_LINUX, ONLY_GATEWAY = "only linux passes it", "only gateway passes it"
CHECKSUM = "RFC 1812 5.2.2 has a router check IPv4's header alone: a transport checksum stays " \
    "wrong, for its receiver to see; Linux calls the packet invalid"
BEGINS = "likewise: it begins a flow"
DIFFERENCES = {
    ("data from long ago", "old"): (
        ONLY_LINUX, "what is a window below what was acknowledged is of no use to its receiver "
        "(`track_tcp_old`); Linux leaves it to the receiver"),
    ("acknowledgment from long ago", "old"): (
        ONLY_LINUX, "RFC 5961 5.2 has the receiver discard it (`track_tcp_ack_old`); Linux leaves "
        "that to the receiver"),
    ("tcp checksum wrong", "bent"): (ONLY_GATEWAY, CHECKSUM),
    ("datagram with a wrong checksum", "bent"): (ONLY_GATEWAY, CHECKSUM),
    ("datagram with a wrong checksum", "state"): (
        "linux has none, the gateway udp_single", BEGINS),
    ("ping with a wrong checksum", "request"): (ONLY_GATEWAY, CHECKSUM),
    ("ping with a wrong checksum", "state"): ("linux has none, the gateway icmp_single", BEGINS),
    ("datagram that is rejected", "datagram"): (
        "they say other things", "RFC 1812 4.3.2.3: the quote is of the packet as it came; Linux "
        "has counted the hop"),
    ("error about numbers that are not on their way", "lie"): (
        ONLY_LINUX, "RFC 5927 4.1 (`track_quote_sequence`)"),
    ("error of another kind", "source quench"): (ONLY_LINUX, "RFC 6633 has ended source quench"),
    ("refused", "state"): (
        "linux has none, the gateway reset", "RFC 7857 2.2 keeps what was reset for 4 minutes; "
        "Linux forgets a connection that was refused"),
    ("refused with another number", "state"): (
        "linux has SYN_SENT, the gateway syn_received", "RFC 9293 3.5: the SYN-ACK moves it; Linux "
        "stays in SYN_SENT behind a RST that it has dropped, though the SYN-ACK passes"),
    ("simultaneous open", "state"): (
        "linux has SYN_RECV, the gateway established", "RFC 9293 3.5 figure 7: both ends are "
        "established when the SYN-ACKs have come; Linux waits for another segment"),
}

# The gateway's states for each of Linux'.
STATES = {
    "SYN_SENT": {"syn_sent"},
    "SYN_SENT2": {"syn_received"},
    "SYN_RECV": {"syn_received"},
    "ESTABLISHED": {"established"},
    "FIN_WAIT": {"half_closed"},
    "CLOSE_WAIT": {"half_closed"},
    "LAST_ACK": {"closing"},
    "TIME_WAIT": {"time_wait"},
    "CLOSE": {"reset"},
    "udp UNREPLIED": {"udp_single"},
    # Linux has a stream for assured 2 s after its first answer, the gateway with the next packet.
    "udp": {"udp_replied", "udp_assured"},
    "udp ASSURED": {"udp_assured"},
    "icmp UNREPLIED": {"icmp_single"},
    "icmp": {"icmp_replied"},
    "unknown UNREPLIED": {"other_single"},
    "unknown": {"other_replied"},
}

NUMBERS = {"tcp": TCP, "udp": UDP, "icmp": ICMP, "unknown": OTHER}


def key_of(protocol, inner, far):
    """What tells a flow from others in both lists; `show flows` has no identifiers of pings."""
    if protocol in (TCP, UDP):
        return protocol, inner, far
    return protocol, inner[0], far[0]


def linux_states(namespace):
    said = subprocess.run(["ip", "netns", "exec", namespace, "conntrack", "-L"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout
    states = collections.defaultdict(list)
    for line in said.splitlines():
        words = line.split()
        ends = [word.split("=") for word in words if "=" in word]
        original, reply = {}, {}
        for name, value in ends:
            (reply if name in original else original).setdefault(name, value)
        protocol = NUMBERS[words[0]]
        state = words[3] if protocol == TCP else words[0]
        for mark in ("UNREPLIED", "ASSURED"):
            if "[%s]" % mark in words and protocol != TCP \
                    and (mark == "UNREPLIED" or protocol == UDP):
                state += " " + mark
        port = {name: int(value) for name, value in reply.items() if name in ("sport", "dport")}
        inner = (original["src"], int(original.get("sport", 0)))
        far = (original["dst"], int(original.get("dport", 0)))
        if original["dst"] == OUTSIDE:
            inner, far = (reply["src"], port["sport"]), (reply["dst"], port["dport"])
        states[key_of(protocol, inner, far)].append(state)
    return states


def gateway_states(program, control):
    command = [program, "ctl", "--socket", control, "show", "flows", "--limit", "1000000", "--json"]
    said = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True).stdout
    states = collections.defaultdict(list)
    for row in json.loads(said)["rows"]:
        def end(text):
            address, _, port = text.partition(":")
            return address, int(port or 0)
        source, target = end(row["source"]), end(row["destination"])
        if target[0] == OUTSIDE:
            source, target = end(row["becomes_destination"]), source
        protocol = NUMBERS.get(row["protocol"], OTHER)
        states[key_of(protocol, source, target)].append(row["state"])
    return states


def is_right(packet):
    """Whether the checksums of a packet are right."""
    header = (packet[0] & 15) * 4
    if checksum(packet[:header]) != 0:
        return False
    text = packet[header:]
    if packet[9] == ICMP:
        return checksum(text) == 0
    has_none = packet[9] == UDP and text[6:8] == b"\0\0"
    if packet[9] in (TCP, UDP) and len(text) >= 8 and not has_none:
        pseudo = packet[12:20] + struct.pack("!HH", packet[9], len(text))
        return checksum(pseudo + text) == 0
    return True


def blank(packet):
    """A packet seen outside, without the port of who is inside, which each firewall chooses, and
    without the checksums that cover it."""
    header, packet = (packet[0] & 15) * 4, bytearray(packet)

    def of(begin, protocol, port):
        """Blanks what is in a header that begins here."""
        at = {TCP: 16, UDP: 6, ICMP: 2}.get(protocol)
        port = 4 if protocol == ICMP else port
        if at is not None:
            for place in (begin + at, begin + port):
                packet[place:place + 2] = b"??"[:max(0, len(packet) - place)]

    if packet[9] == ICMP and packet[header] in (3, 4, 5, 11, 12):
        quote = header + 8
        if len(packet) >= quote + 20:
            of(quote + (packet[quote] & 15) * 4, packet[quote + 9], 2)
        packet[header + 2:header + 4] = b"??"
    else:
        of(header, packet[9], 0)
    return bytes(packet)


def said_of(packet):
    """What a firewall says of a packet, without what each chooses: identification, TTL, TOS."""
    header = (packet[0] & 15) * 4
    if packet[9] == TCP:
        return packet[12:20], packet[header:header + 14]
    return packet[12:20], packet[header:header + 2] + packet[header + 4:]


class Comparison:
    def __init__(self, flows, linux, gateway):
        self.flows, self.linux, self.gateway = flows, linux, gateway
        self.wrong, self.explained = [], collections.Counter()
        self.spoke = collections.defaultdict(collections.Counter)

    def differs(self, flow, name, how, *more):
        if DIFFERENCES.get((flow.name, name), ("",))[0] == how:
            self.explained[flow.name, name] += 1
        else:
            self.wrong.append("%s: %s: %s\n    %s" % (
                flow.name, name, how, "\n    ".join(map(str, more)) or "-"))

    def packets(self):
        for flow in self.flows:
            for packet in flow.packets:
                self.packet(flow, packet)
        # Both limit the rate of what they say, so some may be missing of either; but not all.
        for (story, name), said in self.spoke.items():
            if bool(said["linux"]) != bool(said["gateway"]):
                who = "linux" if said["linux"] else "gateway"
                self.wrong.append("%s: %s: only %s speaks of it" % (story, name, who))

    def packet(self, flow, packet):
        linux, gateway = (system.passed.get(packet.number, [])
                          for system in (self.linux, self.gateway))
        sent = packet.bytes(self.gateway.outer.get(flow, self.gateway.outside_of(flow)))
        more = ["sent    " + " ".join(piece.hex() for piece in sent)[:400]]
        more += ["linux   " + one.hex()[:400] for one in linux]
        more += ["gateway " + one.hex()[:400] for one in gateway]
        if len(linux) != len(gateway):
            who = "linux" if len(linux) > len(gateway) else "gateway"
            self.differs(flow, packet.name, "only %s passes it" % who, *more)
        elif linux != gateway and (
                packet.sender == OUT
                or [blank(one) for one in linux] != [blank(one) for one in gateway]):
            self.differs(flow, packet.name, "other bytes", *more)
        whole = len(sent) == 1
        for one in gateway:
            if is_right(one) != (not whole or is_right(sent[0])):
                self.differs(flow, packet.name, "a wrong checksum has become right, or a right "
                             "one wrong", *more)
        linux, gateway = (system.told.get(packet.number, [])
                          for system in (self.linux, self.gateway))
        more = ["linux   " + one.hex()[:400] for one in linux]
        more += ["gateway " + one.hex()[:400] for one in gateway]
        for who, said in (("linux", linux), ("gateway", gateway)):
            self.spoke[flow.name, packet.name][who] += len(said)
        if linux and gateway:
            told = [linux[0], gateway[0]]
            if packet.sender == OUT:
                told = [blank(one) for one in told]
            texts = [said_of(one) for one in told]
            shortest = min(len(text[1]) for text in texts)
            if texts[0][0] != texts[1][0] or texts[0][1][:shortest] != texts[1][1][:shortest]:
                self.differs(flow, packet.name, "they say other things", *more)

    def states(self, linux, gateway):
        for flow in self.flows:
            protocol = flow.packets[0].protocol
            key = key_of(protocol, flow.inner, flow.far)
            ours = sorted(gateway.get(key, []))
            theirs = sorted(linux.get(key, []))
            fits = len(ours) == len(theirs) and all(
                any(one in STATES[state] for state in theirs) for one in ours)
            if not fits:
                self.differs(flow, "state", "linux has %s, the gateway %s" % (
                    "+".join(theirs) or "none", "+".join(ours) or "none"))


def main():
    asked = json.loads(sys.argv[1])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    flows = script(asked["seed"], asked["count"])
    number = 0
    for flow in flows:
        for packet in flow.packets:
            number += 1
            packet.number = number
    linux, gateway = (System(name, asked[name]) for name in ("linux", "gateway"))
    for system in (linux, gateway):
        system.run(flows)
    compared = Comparison(flows, linux, gateway)
    compared.packets()
    compared.states(linux_states(linux.mid), gateway_states(asked["program"], asked["control"]))
    for side, packet in gateway.strange:
        compared.wrong.append("nobody has sent what came %s: %s" % (side, packet.hex()[:400]))
    if len(gateway.passed) < number * 3 // 4:
        compared.wrong.append("two firewalls that let nothing through would agree")
    unused = [name for name in DIFFERENCES if name not in compared.explained]
    print("%d packets of %d flows, %d passed, %d differences explained" % (
        number, len(flows), len(gateway.passed), sum(compared.explained.values())))
    for name, count in sorted(collections.Counter(
            text.split("\n")[0] for text in compared.wrong).items()):
        print("%5d %s" % (count, name), file=sys.stderr)
    for text in compared.wrong[:10]:
        print(text, file=sys.stderr)
    for name in unused:
        print("explained, but not seen: %s" % (name,), file=sys.stderr)
    sys.exit(1 if compared.wrong or unused else 0)


if __name__ == "__main__":
    try:
        main()
    except Lost as lost:
        print("lost:", lost, file=sys.stderr)
        sys.exit(3)
