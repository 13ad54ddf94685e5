"""What the RFCs ask of a NAT, each asked by packets of scapy at both sides of the gateway.

Arguments: the name spaces inside and outside, then the requirement: a function below, whose first
line says it. Exits with 1 and the reason where the gateway does otherwise.

There are no hosts: frames are sent and taken at the wires' ends. Each packet has an identification
of its own, by which it is found again, also in what is said about it. That something does not pass
is known when a packet that was sent behind it has.
"""

import random
import socket
import sys
import time

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, IPOption_NOP, IPOption_EOL
from scapy.layers.inet import TCPerror, UDPerror, ICMPerror, defragment, fragment
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from wire import Wire

HOST, FAR = "02:00:00:00:00:01", "02:00:00:00:00:02"
GATEWAY_INSIDE, GATEWAY_OUTSIDE = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
# Hosts inside, and servers outside.
A, B, C = "10.60.0.1", "10.60.0.2", "10.60.0.3"
S, T, R = "203.0.113.1", "203.0.113.2", "203.0.113.254"
POOL = ["198.51.100.%d" % last for last in range(1, 5)]
PATIENCE = 30
PROTOCOLS = ("udp", "tcp", "icmp")


class Wrong(Exception):
    """The gateway does not do as it should."""


def check(holds, *said):
    if not holds:
        raise Wrong(" ".join(map(str, said)))


class Ipv4Wire(Wire):
    """A wire that carries IPv4 packets of scapy between two stations."""

    def __init__(self, namespace, interface, own, gateway):
        super().__init__(namespace, interface)
        self.link = Ether(src=own, dst=gateway)
        self.unread = []

    def send(self, packet):
        super().send(bytes(self.link / packet))

    def take(self, wanted, patience=PATIENCE):
        """The first packet that is wanted, and those before it; they are gone from here."""
        before, end = [], time.monotonic() + patience
        while True:
            while self.unread:
                packet = self.unread.pop(0)
                if wanted(packet):
                    return packet, before
                before.append(packet)
            frame = super().take(end)
            if frame is None:
                self.unread = before
                return None, []
            packet = Ether(frame)
            if IP in packet:
                packet = packet[IP]
                are_right(packet)
                self.unread.append(packet)


def are_right(packet):
    """All checksums of a packet, but those of what it quotes."""
    if packet.frag or packet.flags.MF:
        return
    again = IP(bytes(packet)[: packet.len])
    del again.chksum
    for layer in (UDP, TCP, ICMP):
        if layer in again and not (layer is UDP and again[UDP].chksum == 0):
            del again[layer].chksum
    check(bytes(again) == bytes(packet)[: packet.len], "a wrong checksum:", repr(packet))


class Net:
    def __init__(self, inside, outside):
        self.inside = Ipv4Wire(inside, "veth0", HOST, GATEWAY_INSIDE)
        self.outside = Ipv4Wire(outside, "veth1", FAR, GATEWAY_OUTSIDE)
        self.last = random.randrange(1, 20000)
        # A flow whose packets say that those before have been looked at.
        self.mark_out = IP(src="10.60.0.99", dst="203.0.113.99") / UDP(sport=9, dport=9)
        self.mark_in = None
        # The worker may still be on its way to its first packet.
        first = self.out(None)
        check(first == [], "unasked for:", first)

    def number(self, packet):
        """Gives a packet an identification, and makes its checksums."""
        self.last += 1
        packet = IP(bytes(packet))
        packet.id = self.last
        del packet.chksum
        return IP(bytes(packet))

    def through(self, packet, here, there, mark):
        if packet is not None:
            here.send(packet)
        mark = self.number(mark)
        here.send(mark)
        found, before = there.take(lambda one: one.id == mark.id)
        check(found is not None, "the flow that marks the end does not pass")
        return found, before

    def out(self, packet):
        """What comes out for a packet from inside."""
        mark, came = self.through(packet, self.inside, self.outside, self.mark_out)
        back = IP(src=mark.dst, dst=mark.src) / UDP(sport=mark[UDP].dport, dport=mark[UDP].sport)
        self.mark_in = back
        return came

    def come(self, packet):
        """What comes in for a packet from outside."""
        return self.through(packet, self.outside, self.inside, self.mark_in)[1]

    def sends(self, packet):
        """What a packet from inside is outside."""
        packet = self.number(packet)
        came = [one for one in self.out(packet) if one.id == packet.id]
        check(len(came) == 1, "does not pass, outward:", repr(packet))
        return came[0]

    def gets(self, packet):
        """What a packet from outside is inside."""
        packet = self.number(packet)
        came = [one for one in self.come(packet) if one.id == packet.id]
        check(len(came) == 1, "does not pass, inward:", repr(packet))
        return came[0]

    def is_refused(self, packet):
        packet = self.number(packet)
        came = self.come(packet)
        check(not came, "passes:", repr(packet), "as", came)

    def is_refused_out(self, packet):
        packet = self.number(packet)
        came = self.out(packet)
        check(not came, "passes:", repr(packet), "as", came)

    def turns(self, packet):
        """What a packet from inside is when it has come back there."""
        packet = self.number(packet)
        self.inside.send(packet)
        found, _ = self.inside.take(lambda one: one.id == packet.id)
        check(found is not None, "does not come back:", repr(packet))
        return found

    def told(self, wire, packet, patience=PATIENCE):
        """The error about a packet that was sent from a wire."""
        wanted = lambda one: IPerror in one and one[IPerror].id == packet.id
        found, _ = wire.take(wanted, patience)
        return found


def packet(protocol, src, dst, more=b""):
    """From and to addresses with ports; the first packet of a flow."""
    ip = IP(src=src[0], dst=dst[0])
    if protocol == "udp":
        return ip / UDP(sport=src[1], dport=dst[1]) / Raw(more or b"data")
    if protocol == "tcp":
        return ip / TCP(sport=src[1], dport=dst[1], flags="S", seq=1000, window=60000)
    return ip / ICMP(type=8, id=src[1], seq=1) / Raw(more or b"data")


def source(packet):
    """Address and port, or identifier, of where a packet comes from."""
    if ICMP in packet:
        return packet.src, packet[ICMP].id
    return packet.src, packet.payload.sport


def target(packet):
    if ICMP in packet:
        return packet.dst, packet[ICMP].id
    return packet.dst, packet.payload.dport


def quoted(packet):
    """The bytes that an error about a packet has: its header and 8 bytes."""
    return Raw(bytes(packet)[: packet.ihl * 4 + 8])


def error(kind, code, src, about, **fields):
    """An ICMP error about a packet, to its source."""
    return IP(src=src, dst=about.src) / ICMP(type=kind, code=code, **fields) / quoted(about)


def is_told(net, sent, seen, told):
    """An error that has come inside is about the packet as it was sent there."""
    check(told.dst == sent.src, "it goes to", told.dst)
    inner = told[IPerror]
    check((inner.src, inner.dst) == (sent.src, sent.dst), "it quotes", repr(inner))
    of = inner.payload
    if UDP in sent:
        check((of.sport, of.dport) == (sent[UDP].sport, sent[UDP].dport), repr(of))
        check(of.chksum == sent[UDP].chksum, "the quoted checksum is not that of what was sent")
    elif TCP in sent:
        check((of.sport, of.dport) == (sent[TCP].sport, sent[TCP].dport), repr(of))
        check(of.seq == sent[TCP].seq, repr(of))
    else:
        check(of.id == sent[ICMP].id, repr(of))
    header = IP(bytes(inner)[:20])
    del header.chksum
    check(IP(bytes(header)).chksum == inner.chksum, "the quoted header has a wrong checksum")


# RFC 4787


def independent(net, protocol):
    first = source(net.sends(packet(protocol, (A, 4000), (S, 53))))
    for other in ((S, 54), (T, 53), (T, 1024)):
        again = source(net.sends(packet(protocol, (A, 4000), other)))
        check(again == first, "to", other, "from", again, "and not from", first)
    check(first[0] in POOL, first)


def rfc_4787_req_1(net):
    """The mapping is independent of the endpoint."""
    independent(net, "udp")


def rfc_4787_req_2(net):
    """A host has one outside address, whatever it sends."""
    used = set()
    for last in range(1, 17):
        of_host = set()
        for port in (4000, 4001):
            for protocol in PROTOCOLS:
                seen = net.sends(packet(protocol, ("10.60.1.%d" % last, port), (S, 53)))
                of_host.add(seen.src)
        check(len(of_host) == 1, "one host has", of_host)
        used |= of_host
    check(len(used) > 1, "all hosts have", used, "of", POOL)


def overloads(net, protocol):
    seen = set()
    for last in range(1, 41):
        seen.add(source(net.sends(packet(protocol, ("10.60.1.%d" % last, 4000), (S, 53)))))
    check(len(seen) == 40, "40 hosts have", len(seen), "ports")


def rfc_4787_req_3(net):
    """No port is overloaded."""
    overloads(net, "udp")


def rfc_4787_req_3_a(net):
    """Ports of 1024 and above become such, and those below stay below where they are free."""
    for port in range(20000, 20040):
        seen = source(net.sends(packet("udp", (A, port), (S, 53))))
        check(seen[1] >= 1024, port, "becomes", seen)
    for port in (53, 500, 1023):
        seen = source(net.sends(packet("udp", (A, port), (S, 53))))
        check(seen[1] == port, port, "becomes", seen)


def rfc_4787_req_4(net):
    """Parity is preserved."""
    changed = 0
    for port in range(20000, 20040):
        seen = source(net.sends(packet("udp", (A, port), (S, 53))))
        check(seen[1] % 2 == port % 2, port, "becomes", seen)
        changed += seen[1] != port
    check(changed > 30, "only", changed, "ports were changed")


def filters(net, protocol, allowed):
    """Who may send to a mapping that has sent to a port of S: by name, as `allowed` says."""
    outside = source(net.sends(packet(protocol, (A, 4000), (S, 53))))
    senders = {"port": (S, 53), "address": (S, 54), "anyone": (T, 53)}
    for name, sender in senders.items():
        again = packet(protocol, sender, outside)
        if protocol == "tcp" and name == "port":
            again[TCP].flags, again[TCP].ack = "SA", 1001
        if name in allowed:
            check(target(net.gets(again)) == (A, 4000), name)
        else:
            net.is_refused(again)


def rfc_4787_req_8_independent(net):
    """Endpoint-independent filtering."""
    filters(net, "udp", {"port", "address", "anyone"})


def rfc_4787_req_8_address(net):
    """Address-dependent filtering."""
    filters(net, "udp", {"port", "address"})


def rfc_4787_req_8_address_port(net):
    """Address- and port-dependent filtering."""
    filters(net, "udp", {"port"})


def rfc_4787_req_9(net):
    """Hosts inside reach each other by their outside addresses, and see those alone."""
    of_a = source(net.sends(packet("udp", (A, 4000), (S, 53))))
    of_b = source(net.sends(packet("udp", (B, 5000), (S, 53))))
    came = net.turns(packet("udp", (B, 5000), of_a))
    check((source(came), target(came)) == (of_b, (A, 4000)), repr(came))
    back = net.turns(packet("udp", (A, 4000), of_b))
    check((source(back), target(back)) == (of_a, (B, 5000)), repr(back))


def meets(net, protocol):
    """Of two hosts inside that call each other the second gets through, and then both do."""
    of_a = source(net.sends(packet(protocol, (A, 4000), (S, 53))))
    of_b = source(net.sends(packet(protocol, (B, 5000), (T, 53))))
    net.is_refused_out(packet(protocol, (A, 4000), of_b))
    came = net.turns(packet(protocol, (B, 5000), of_a))
    check((source(came), target(came)) == (of_b, (A, 4000)), repr(came))
    back = net.turns(packet(protocol, (A, 4000), of_b))
    check((source(back), target(back)) == (of_a, (B, 5000)), repr(back))
    net.is_refused(packet(protocol, (R, 53), of_a))


def rfc_4787_req_9_address(net):
    """Hosts inside that let in whom they have sent to meet when both have sent."""
    meets(net, "udp")


def rfc_4787_req_9_address_port(net):
    """The same, by address and port."""
    meets(net, "udp")


def rfc_4787_req_10(net):
    """No gateway for an application's protocol: what packets say stays."""
    text = b"INVITE sip:b@203.0.113.1 SIP/2.0\r\nVia: SIP/2.0/UDP 10.60.0.1:5060\r\n\r\n"
    seen = net.sends(packet("udp", (A, 5060), (S, 5060), text))
    check(bytes(seen[UDP].payload) == text, repr(seen))
    back = net.gets(packet("udp", (S, 5060), source(seen), text))
    check(bytes(back[UDP].payload) == text, repr(back))


def rfc_4787_req_11(net):
    """With few ports, and none left, translation and filtering are what they were."""
    first = source(net.sends(packet("udp", (A, 5000), (S, 53))))
    free = 9
    for last in range(1, 31):
        sent = net.number(packet("udp", ("10.60.1.%d" % last, 5000), (S, 53)))
        free -= len(net.out(sent))
    # One is the marking flow's.
    check(free == 1, "of ten ports", free, "are not given")
    for other in ((S, 53), (S, 54), (T, 53)):
        again = source(net.sends(packet("udp", (A, 5000), other)))
        check(again == first, again, "and not", first)
    check(target(net.gets(packet("udp", (T, 53), first))) == (A, 5000))
    net.is_refused(packet("udp", (R, 53), first))


def survives(net, protocol):
    """No ICMP message ends a mapping: whatever it is, and whoever sends it."""
    sent = net.number(packet(protocol, (A, 4000), (S, 53)))
    net.inside.send(sent)
    seen, _ = net.outside.take(lambda one: one.id == sent.id)
    outside = source(seen)
    kinds = [(3, code) for code in range(16)] + [(4, 0), (5, 1), (11, 0), (11, 1), (12, 0)]
    for kind, code in kinds:
        for sender in (S, R):
            net.come(net.number(error(kind, code, sender, seen)))
    reply = packet(protocol, (S, 53), outside)
    if protocol == "tcp":
        reply[TCP].flags, reply[TCP].ack = "SA", 1001
    check(target(net.gets(reply)) == (A, 4000))
    again = source(net.sends(packet(protocol, (A, 4000), (T, 53))))
    check(again == outside, again, "and not", outside)


def rfc_4787_req_12(net):
    """No ICMP message ends a mapping of UDP."""
    survives(net, "udp")


def rfc_4787_req_12_a_b(net):
    """ICMP Destination Unreachable passes, whoever on the way has sent it."""
    sent = net.number(packet("udp", (A, 4000), (S, 53)))
    seen = [one for one in net.out(sent) if one.id == sent.id][0]
    for sender in (S, R):
        for code in (0, 1, 2, 3, 13):
            told = net.gets(error(3, code, sender, seen))
            check((told.src, told[ICMP].type, told[ICMP].code) == (sender, 3, code), repr(told))
            is_told(net, sent, seen, told)


def rfc_4787_req_13(net):
    """What is too long and not to be cut is answered: with the packet as it was sent."""
    net.sends(packet("udp", (A, 4000), (S, 53)))
    for port in (4000, 4001):
        long = packet("udp", (A, port), (S, 53), b"x" * 1450)
        long.flags = "DF"
        long = net.number(long)
        net.inside.send(long)
        told = net.told(net.inside, long)
        check(told is not None, "nobody is told, from port", port)
        check((told[ICMP].type, told[ICMP].code) == (3, 4), repr(told))
        check(told[ICMP].nexthopmtu == 1400, repr(told))
        is_told(net, long, None, told)


def rfc_4787_req_13_a(net):
    """What is too long and may be cut is, with its fragments in order."""
    long = net.number(packet("udp", (A, 4000), (S, 53), bytes(range(250)) * 5 + b"x" * 200))
    net.inside.send(long)
    found, came = net.outside.take(lambda one: one.id == long.id and not one.flags.MF)
    check(found is not None, "it does not pass")
    came = [one for one in came if one.id == long.id] + [found]
    check([one.frag for one in came] == sorted(one.frag for one in came), came)
    check(len(came) == 2, came)
    whole = defragment(came)[0]
    check(bytes(whole[UDP].payload) == bytes(long[UDP].payload), repr(whole))
    check(whole.src in POOL, repr(whole))
    are_right(IP(bytes(whole)))


def pieces(net, wire, there, sent, orders):
    data = bytes(sent[UDP].payload)
    for order in orders:
        sent = net.number(sent)
        for part in order(fragment(sent, fragsize=600)):
            wire.send(part)
        last = lambda one: one.id == sent.id and not one.flags.MF
        found, before = there.take(last)
        check(found is not None, "fragments do not pass")
        whole = defragment([one for one in before if one.id == sent.id] + [found])[0]
        whole = IP(bytes(whole))
        check(bytes(whole[UDP].payload) == data, repr(whole))
        are_right(whole)
        yield whole


def rfc_4787_req_14(net):
    """Fragments pass in order and out of order, both ways."""
    orders = [list, lambda parts: parts[::-1], lambda parts: parts[1:] + parts[:1]]
    data = random.randbytes(3000)
    long = IP(bytes(packet("udp", (A, 4000), (S, 53), data)))
    outside = set()
    for whole in pieces(net, net.inside, net.outside, long, orders):
        outside.add(source(whole))
    check(len(outside) == 1, outside)
    long = IP(bytes(packet("udp", (S, 53), outside.pop(), data)))
    for whole in pieces(net, net.outside, net.inside, long, orders):
        check(target(whole) == (A, 4000), repr(whole))


def rfc_4787_req_14_a(net):
    """Fragments of which the rest never comes do not keep whole packets from passing."""
    outside = source(net.sends(packet("udp", (A, 4000), (S, 53))))
    first = IP(bytes(packet("udp", (S, 53), outside, random.randbytes(1200))))
    for number in range(1, 4001):
        part = fragment(first, fragsize=600)[number % 2]
        part.id = number
        net.outside.send(part)
    check(target(net.gets(packet("udp", (S, 53), outside))) == (A, 4000))
    check(source(net.sends(packet("udp", (A, 4000), (T, 53)))) == outside)


# RFC 5382


class Connection:
    """A TCP connection of A, as both its ends see it."""

    def __init__(self, net, port=4000, server=(S, 80), host=A):
        self.net, self.port, self.server, self.host = net, port, server, host
        self.seq = {"in": 1000, "out": 5000}
        self.outside = None

    def inside_says(self, flags, data=b""):
        tcp = TCP(sport=self.port, dport=self.server[1], flags=flags, window=60000)
        tcp.seq, tcp.ack = self.seq["in"], self.seq["out"] if "A" in flags else 0
        seen = self.net.sends(IP(src=self.host, dst=self.server[0]) / tcp / Raw(data))
        self.outside = self.outside or source(seen)
        check(source(seen) == self.outside, repr(seen))
        check((seen[TCP].seq, seen[TCP].ack) == (tcp.seq, tcp.ack), repr(seen))
        self.seq["in"] += len(data) + ("S" in flags) + ("F" in flags)

    def server_segment(self, flags, data=b"", seq=None):
        tcp = TCP(sport=self.server[1], dport=self.outside[1], flags=flags, window=60000)
        tcp.seq = self.seq["out"] if seq is None else seq
        tcp.ack = self.seq["in"] if "A" in flags else 0
        return IP(src=self.server[0], dst=self.outside[0]) / tcp / Raw(data)

    def server_says(self, flags, data=b""):
        seen = self.net.gets(self.server_segment(flags, data))
        check(target(seen) == (self.host, self.port), repr(seen))
        self.seq["out"] += len(data) + ("S" in flags) + ("F" in flags)

    def opens(self):
        self.inside_says("S")
        self.server_says("SA")
        self.inside_says("A")
        return self

    def talks(self):
        self.inside_says("PA", b"question")
        self.server_says("PA", b"the answer")
        self.inside_says("A")


def rfc_5382_req_1(net):
    """The mapping is independent of the endpoint."""
    independent(net, "tcp")


def rfc_5382_req_2(net):
    """Three segments open a connection, and it closes from either side."""
    for port, (one, other) in ((4000, ("inside", "server")), (4001, ("server", "inside"))):
        connection = Connection(net, port).opens()
        connection.talks()
        says = {"inside": connection.inside_says, "server": connection.server_says}
        says[one]("FA")
        says[other]("A")
        says[other]("PA", b"one more thing")
        says[one]("A")
        says[other]("FA")
        says[one]("A")


def rfc_5382_req_2_from_outside(net):
    """The same where the connection is from outside, to a port that all may send to."""
    outside = source(net.sends(packet("tcp", (A, 4000), (S, 80))))
    connection = Connection(net, 4000, (T, 999))
    connection.outside = outside
    connection.server_says("S")
    connection.inside_says("SA")
    connection.server_says("A")
    connection.talks()


def rfc_5382_req_2_a(net):
    """Simultaneous open."""
    connection = Connection(net)
    connection.inside_says("S")
    connection.server_says("S")
    connection.seq["in"] -= 1
    connection.inside_says("SA")
    connection.seq["out"] -= 1
    connection.server_says("SA")
    connection.talks()


def rfc_5382_req_3_independent(net):
    """Endpoint-independent filtering."""
    filters(net, "tcp", {"port", "address", "anyone"})


def rfc_5382_req_3_address(net):
    """Address-dependent filtering."""
    filters(net, "tcp", {"port", "address"})


def rfc_5382_req_3_address_port(net):
    """Address- and port-dependent filtering."""
    filters(net, "tcp", {"port"})


def silence(net, seconds):
    outside = source(net.sends(packet("udp", (A, 4000), (S, 53))))
    ports = (4000, 80, 60000)
    for port in ports:
        net.is_refused(packet("tcp", (S, 80), (outside[0], port)))
    said, _ = net.outside.take(lambda one: one.dst == S, seconds)
    check(said is None, "a SYN that nobody asked for is answered:", repr(said))
    # The connection from inside opens for all that.
    connection = Connection(net).opens()
    connection.talks()


def rfc_5382_req_4(net):
    """Nobody is told of a SYN that nobody asked for; a SYN from inside opens the connection."""
    silence(net, 0.5)


def rfc_5382_req_4_six_seconds(net):
    """The same for 6 seconds."""
    silence(net, 7)


def rfc_5382_req_6(net):
    """No gateway for FTP: what it says stays."""
    connection = Connection(net, server=(S, 21)).opens()
    text = b"PORT 10,60,0,1,15,160\r\n"
    seen = net.sends(
        IP(src=A, dst=S)
        / TCP(sport=4000, dport=21, flags="PA", seq=connection.seq["in"], ack=5001, window=60000)
        / Raw(text)
    )
    check(bytes(seen[TCP].payload) == text, repr(seen))


def rfc_5382_req_7(net):
    """No port is overloaded."""
    overloads(net, "tcp")


def rfc_5382_req_8(net):
    """Hosts inside connect to each other by their outside addresses, and see those alone."""
    of_a = source(net.sends(packet("tcp", (A, 4000), (S, 53))))
    of_b = source(net.sends(packet("tcp", (B, 5000), (T, 53))))

    def says(of, src, dst, seen_as, flags, seq, ack, data=b""):
        tcp = TCP(sport=src[1], dport=of[1], flags=flags, seq=seq, ack=ack, window=60000)
        came = net.turns(IP(src=src[0], dst=of[0]) / tcp / Raw(data))
        check((source(came), target(came)) == (seen_as, dst), repr(came))

    a, b = (A, 4000), (B, 5000)
    says(of_a, b, a, of_b, "S", 100, 0)
    says(of_b, a, b, of_a, "SA", 900, 101)
    says(of_a, b, a, of_b, "A", 101, 901)
    says(of_a, b, a, of_b, "PA", 101, 901, b"question")
    says(of_b, a, b, of_a, "PA", 901, 109, b"the answer")


def rfc_5382_req_8_address(net):
    """Hosts inside that let in whom they have sent to connect when both have sent."""
    meets(net, "tcp")


def rfc_5382_req_8_address_port(net):
    """The same, by address and port."""
    meets(net, "tcp")


def rfc_5382_req_9(net):
    """Errors about a connection are translated."""
    sent = net.number(packet("tcp", (A, 4000), (S, 80)))
    seen = [one for one in net.out(sent) if one.id == sent.id][0]
    for kind, code in ((3, 0), (3, 1), (3, 3), (3, 13), (11, 0), (12, 0)):
        told = net.gets(error(kind, code, R, seen))
        check((told[ICMP].type, told[ICMP].code) == (kind, code), repr(told))
        is_told(net, sent, seen, told)
    told = net.gets(error(3, 4, R, seen, nexthopmtu=1300))
    check(told[ICMP].nexthopmtu == 1300, repr(told))


def rfc_5382_req_10(net):
    """No ICMP message ends a mapping or connection of TCP."""
    survives(net, "tcp")
    connection = Connection(net, 4001).opens()
    about = net.sends(
        IP(src=A, dst=S)
        / TCP(sport=4001, dport=80, flags="PA", seq=1001, ack=5001, window=60000)
        / Raw(b"question")
    )
    for code in range(16):
        net.gets(error(3, code, R, about))
    connection.seq["in"] += 8
    connection.talks()


# RFC 5508


def rfc_5508_req_1(net):
    """Queries and their answers pass, with the identifier of who has asked."""
    for host in (A, B):
        seen = net.sends(packet("icmp", (host, 7), (S, 0), b"some data"))
        answer = IP(src=S, dst=seen.src) / ICMP(type=0, id=seen[ICMP].id, seq=1) / Raw(b"some data")
        back = net.gets(answer)
        check((back.dst, back[ICMP].id) == (host, 7), repr(back))
        net.is_refused(IP(src=T, dst=seen.src) / ICMP(type=0, id=seen[ICMP].id, seq=1))


def rfc_5508_req_1_a(net):
    """The identifier is the same for all who are asked, and no other host's."""
    seen = {source(net.sends(packet("icmp", (A, 7), (to, 0)))) for to in (S, T, R)}
    check(len(seen) == 1, seen)
    other = {source(net.sends(packet("icmp", (B, 7), (to, 0)))) for to in (S, T, R)}
    check(len(other) == 1 and not seen & other, seen, other)


def rfc_5508_req_3(net):
    """An error with a wrong checksum is dropped."""
    seen = net.sends(packet("udp", (A, 4000), (S, 53)))
    wrong = error(3, 3, S, seen)
    right = IP(bytes(wrong))[ICMP].chksum
    wrong[ICMP].chksum = right ^ 0x0101
    net.is_refused(wrong)
    net.gets(error(3, 3, S, seen))


def rfc_5508_req_3_a(net):
    """So is one that quotes a header with a wrong checksum."""
    seen = net.sends(packet("udp", (A, 4000), (S, 53)))
    seen.chksum ^= 0x0101
    net.is_refused(error(3, 3, S, seen))


def rfc_5508_req_3_b(net):
    """The quote may have options in its header."""
    sent = packet("udp", (A, 4000), (S, 53))
    sent.options = [IPOption_NOP(), IPOption_NOP(), IPOption_NOP(), IPOption_EOL()]
    sent = net.number(sent)
    seen = [one for one in net.out(sent) if one.id == sent.id][0]
    check(seen.ihl == 6, repr(seen))
    told = net.gets(error(3, 3, R, seen))
    inner = told[IPerror]
    check((inner.src, inner.ihl, inner[UDPerror].sport) == (A, 6, 4000), repr(told))


def rfc_5508_req_3_c(net):
    """The transport's checksum in the quote is nobody's business."""
    sent = net.number(packet("udp", (A, 4000), (S, 53)))
    seen = [one for one in net.out(sent) if one.id == sent.id][0]
    for other in (0, seen[UDP].chksum ^ 0x1234):
        about = seen.copy()
        about[UDP].chksum = other
        told = net.gets(error(3, 3, R, about))
        check(told[IPerror][UDPerror].sport == 4000, repr(told))


def rfc_5508_req_3_d(net):
    """Extensions behind the quote (RFC 4884) pass."""
    sent = net.number(packet("udp", (A, 4000), (S, 53), b"y" * 200))
    seen = [one for one in net.out(sent) if one.id == sent.id][0]
    extension = bytes.fromhex("20005eff0008010112345601")
    told = IP(src=R, dst=seen.src) / ICMP(type=11, code=0) / Raw(bytes(seen)[:128] + extension)
    told = IP(bytes(told))
    del told.chksum
    told = bytes(told)
    # The length of the quote in words: RFC 4884 4.
    told = bytearray(told)
    told[25] = 32
    told[22:24] = b"\0\0"
    total = sum(int.from_bytes(told[at : at + 2], "big") for at in range(20, len(told), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    told[22:24] = (~total & 0xFFFF).to_bytes(2, "big")
    came = net.gets(IP(bytes(told)))
    check(bytes(came).endswith(extension), repr(came))
    check(bytes(came)[28:48][12:16] == socket.inet_aton(A), repr(came))


def rfc_5508_req_4(net):
    """From outside: about no mapping dropped; else with the inside's in the quote, of its type."""
    for protocol in PROTOCOLS:
        sent = net.number(packet(protocol, (A, 4000), (S, 53)))
        seen = [one for one in net.out(sent) if one.id == sent.id][0]
        for kind, code in ((3, 1), (3, 3), (11, 0), (12, 0)):
            told = net.gets(error(kind, code, R, seen))
            check((told[ICMP].type, told[ICMP].code) == (kind, code), repr(told))
            is_told(net, sent, seen, told)
        about = seen.copy()
        if protocol == "icmp":
            about[ICMP].id = 4999
        else:
            about.payload.sport = 4999
        net.is_refused(error(3, 1, R, about))


def rfc_5508_req_5(net):
    """From inside: about no mapping dropped; else the outside's in the quote, no inside address."""
    for protocol in ("udp", "tcp"):
        outside = source(net.sends(packet(protocol, (A, 4000), (S, 53))))
        answer = packet(protocol, (S, 53), outside)
        if protocol == "tcp":
            answer[TCP].flags, answer[TCP].ack = "SA", 1001
        answer = net.number(answer)
        came = [one for one in net.come(answer) if one.id == answer.id][0]
        for sender in (A, "10.60.0.254"):
            kind, code = (3, 3) if sender == A else (11, 0)
            told = net.sends(error(kind, code, sender, came))
            check(told.src in POOL, "from", told.src)
            is_told(net, answer, came, told)
        about = came.copy()
        about.payload.dport = 4999
        net.is_refused_out(error(3, 3, A, about))


def rfc_5508_req_6(net):
    """An error about a query ends nothing."""
    survives_query = net.sends(packet("icmp", (A, 7), (S, 0)))
    for kind, code in ((3, 1), (11, 0), (12, 0)):
        net.gets(error(kind, code, R, survives_query))
    answer = ICMP(type=0, id=survives_query[ICMP].id, seq=1)
    check(net.gets(IP(src=S, dst=survives_query.src) / answer)[ICMP].id == 7)


def rfc_5508_req_7(net):
    """Errors between two hosts inside, who know each other by outside addresses."""
    of_a = source(net.sends(packet("udp", (A, 4000), (S, 53))))
    sent = net.number(packet("udp", (B, 5000), of_a))
    net.inside.send(sent)
    came, _ = net.inside.take(lambda one: one.id == sent.id)
    check(came is not None and target(came) == (A, 4000), repr(came))
    told = net.turns(error(3, 3, A, came))
    is_told(net, sent, came, told)
    check(told.src == of_a[0], "from", told.src)


def rfc_5508_req_10(net):
    """Errors of the gateway itself are about what was sent."""
    for protocol in PROTOCOLS:
        for _ in range(2):
            sent = packet(protocol, (A, 4000), (S, 53))
            sent.ttl = 1
            sent = net.number(sent)
            net.inside.send(sent)
            told = net.told(net.inside, sent)
            check(told is not None, "nobody is told of", protocol)
            check((told.src, told[ICMP].type) == ("10.1.0.1", 11), repr(told))
            is_told(net, sent, None, told)
            net.sends(packet(protocol, (A, 4000), (S, 53)))


# RFC 7857


def rfc_7857_2_2(net):
    """A RST passes, translated, and what follows it passes still."""
    connection = Connection(net).opens()
    connection.talks()
    connection.server_says("RA")
    connection.inside_says("A")
    connection.server_says("R")
    # One that is not of the connection does not end another.
    other = Connection(net, 4001).opens()
    net.is_refused(other.server_segment("R", seq=other.seq["out"] + 0x40000000))
    other.talks()


def rfc_7857_5(net):
    """Mappings of TCP are not those of UDP."""
    udp = source(net.sends(packet("udp", (A, 4000), (S, 53))))
    net.is_refused(packet("tcp", (T, 53), udp))
    tcp = source(net.sends(packet("tcp", (A, 4000), (S, 53))))
    check(target(net.gets(packet("tcp", (T, 53), tcp))) == (A, 4000))
    check(target(net.gets(packet("udp", (T, 53), udp))) == (A, 4000))


def rfc_7857_6(net):
    """Whom UDP lets in, TCP does not."""
    of_udp = source(net.sends(packet("udp", (A, 4000), (S, 53))))
    of_tcp = source(net.sends(packet("tcp", (A, 4000), (T, 53))))
    net.is_refused(packet("tcp", (S, 54), of_tcp))
    net.is_refused(packet("udp", (T, 54), of_udp))
    check(target(net.gets(packet("udp", (S, 54), of_udp))) == (A, 4000))
    check(target(net.gets(packet("tcp", (T, 54), of_tcp))) == (A, 4000))


def rfc_7857_9(net):
    """Ports that are not preserved are given at random."""
    # Neighbours stay neighbours, where both are free (RFC 4787 4.2.3).
    ports = range(20000, 20128, 4)
    seen = [net.sends(packet("udp", (A, port), (S, 53))) for port in ports]
    given = [source(one)[1] for one in seen]
    steps = {after - before for before, after in zip(given, given[1:])}
    check(len(steps) > 24, given)
    check(max(given) - min(given) > 16000, given)


def main():
    inside, outside, name = sys.argv[1:]
    requirement = globals()[name]
    try:
        requirement(Net(inside, outside))
    except Wrong as wrong:
        print(f"{name}: {requirement.__doc__} {wrong}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
