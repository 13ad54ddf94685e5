"""Flows as stories, for `conntrack.py`: each has a name, and packets of both sides that do not
depend on what has passed. `script` makes flows of a seed.

`Packet` is one packet, `Teller` makes those of a flow and keeps TCP's numbers, `STORIES` has what
is told, with how often, and the ports of the server outside.
"""

import random
import socket
import struct

HOST, FAR = "020000000001", "020000000002"
GATEWAY_INSIDE, GATEWAY_OUTSIDE = "02000000000a", "02000000000b"
# The outside address of all inside.
OUTSIDE = "10.2.0.1"
# The server inside that has a port outside.
SERVER = ("10.60.80.80", 80)
SERVED = (OUTSIDE, 8080)
AT_ONCE = 100
TCP, UDP, ICMP, OTHER = 6, 17, 1, 253
FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))
IN, OUT = "inside", "outside"  # who sends


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip(source, target, protocol, payload, ident, ttl=64, tos=0, fragment=0, options=b""):
    length = 20 + len(options)
    head = struct.pack("!BBHHHBBH4s4s", 0x40 | length // 4, tos, length + len(payload), ident,
                       fragment, ttl, protocol, 0, socket.inet_aton(source),
                       socket.inet_aton(target)) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def summed(source, target, protocol, segment, at):
    pseudo = socket.inet_aton(source) + socket.inet_aton(target)
    total = checksum(pseudo + struct.pack("!HH", protocol, len(segment)) + segment)
    if protocol == UDP and total == 0:
        total = 0xFFFF
    return segment[:at] + struct.pack("!H", total) + segment[at + 2:]


class Packet:
    """A packet of a story: who sends it, its name in the story, and what makes its bytes."""

    def __init__(self, sender, name, protocol, make, bend=None, **header):
        self.sender, self.name, self.protocol = sender, name, protocol
        self.make, self.bend, self.header = make, bend, header
        self.flow = self.number = None

    def bytes(self, outer):
        """The packet, where the flow's inside end is `outer` for those outside."""
        inner, far = self.flow.inner, self.flow.far
        ends = (inner, far) if self.sender == IN else (far, outer)
        (source, src_port), (target, dst_port) = ends
        source = self.header.get("source", source)
        target = self.header.get("target", target)
        payload = self.make(source, src_port, target, dst_port, outer)
        if self.bend:
            payload = self.bend(payload)
        header = {key: value for key, value in self.header.items()
                  if key not in ("source", "target", "pieces")}
        ident = self.number & 0xFFFF
        pieces = self.header.get("pieces")
        if not pieces:
            return [ip(source, target, self.protocol, payload, ident, **header)]
        cuts = [0, *pieces, len(payload)]
        ends = zip(cuts, cuts[1:])
        return [ip(source, target, self.protocol, payload[begin:end], ident,
                   fragment=begin // 8 | (0x2000 if end < len(payload) else 0), **header)
                for begin, end in ends]

    def bytes_at(self, outer):
        """The packet as it is at its receiver."""
        packet = self.bytes(outer)[0]
        packet = bytearray(packet)
        if self.sender == IN:
            at, port_at, end = 12, 20, outer
        else:
            at, port_at, end = 16, 22, self.flow.inner
        packet[at:at + 4] = socket.inet_aton(end[0])
        if self.protocol in (TCP, UDP):
            packet[port_at:port_at + 2] = struct.pack("!H", end[1])
            place = 36 if self.protocol == TCP else 26
            if len(packet) >= place + 2 and (self.protocol == TCP or packet[26:28] != b"\0\0"):
                source, target = (socket.inet_ntoa(bytes(packet[at:at + 4])) for at in (12, 16))
                packet[20:] = summed(source, target, self.protocol,
                                     bytes(packet[20:place]) + b"\0\0" + bytes(packet[place + 2:]),
                                     place - 20)
        elif self.protocol == ICMP:
            packet[24:26] = struct.pack("!H", end[1])
            packet[22:24] = b"\0\0"
            packet[22:24] = struct.pack("!H", checksum(bytes(packet[20:])))
        packet[8] = max(packet[8] - 1, 1)
        packet[10:12] = b"\0\0"
        packet[10:12] = struct.pack("!H", checksum(bytes(packet[:20])))
        return bytes(packet)


class Flow:
    def __init__(self, name, inner, far, served=False):
        self.name, self.inner, self.far, self.served = name, inner, far, served
        self.packets = []


# What stories are told with.

class Teller:
    """Makes the packets of one flow; keeps TCP's numbers."""

    def __init__(self, dice, far_ports):
        self.dice = dice
        self.far_ports = far_ports
        self.seq = {IN: dice.getrandbits(32), OUT: dice.getrandbits(32)}
        self.scale = {IN: dice.choice([None, 0, 2, 7]), OUT: dice.choice([None, 0, 3, 7])}
        self.window = {IN: dice.randrange(2000, 60000), OUT: dice.randrange(2000, 60000)}
        self.client, self.server = IN, OUT
        self.packets = []

    def other(self, sender):
        return OUT if sender == IN else IN

    def add(self, sender, name, protocol, make, **header):
        header.setdefault("ttl", self.dice.randrange(3, 255))
        header.setdefault("tos", self.dice.getrandbits(8) & 0xFC)
        self.packets.append(Packet(sender, name, protocol, make, **header))

    def payload(self, length):
        return bytes(self.dice.getrandbits(8) for _ in range(min(length, 8))).ljust(length, b"d")

    def tcp(self, sender, flags, name, data=b"", seq=0, ack=0, window=None, options=b"",
            absolute=False, offset=None, **header):
        """A segment; `seq` and `ack` are added to the numbers at which both are."""
        if not absolute:
            seq += self.seq[sender]
            ack = ack + self.seq[self.other(sender)] if flags & ACK else ack
        window = self.window[sender] if window is None else window
        words = 5 + len(options) // 4 if offset is None else offset
        urgent = 1 if flags & URG else 0
        body = struct.pack("!IIBBHHH", seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, words << 4, flags,
                           window, 0, urgent) + options + data

        def make(source, src_port, target, dst_port, _):
            return summed(source, target, TCP, struct.pack("!HH", src_port, dst_port) + body, 16)

        self.add(sender, name, TCP, make, **header)

    def syn_options(self, sender):
        options = struct.pack("!BBH", 2, 4, 1360)
        if self.scale[sender] is not None:
            options += struct.pack("!BBBB", 3, 3, self.scale[sender], 1)
        return options

    def syn(self, name="syn", flags=0, sender=None, **more):
        sender = sender or self.client
        self.tcp(sender, SYN | flags, name, options=self.syn_options(sender), **more)

    def syn_ack(self, name="syn-ack", **more):
        client_seq = self.seq[self.client]
        self.seq[self.client] += 1
        self.tcp(self.server, SYN | ACK, name, options=self.syn_options(self.server), **more)
        self.seq[self.client] = client_seq

    def shake(self):
        self.syn()
        self.syn_ack()
        self.seq[self.client] += 1
        self.seq[self.server] += 1
        if None in self.scale.values():
            self.scale = {IN: 0, OUT: 0}
        self.tcp(self.client, ACK, "ack")

    def says(self, sender, length=None, name="data", **more):
        """Data that is acknowledged."""
        length = self.dice.randrange(1, 1200) if length is None else length
        self.tcp(sender, ACK | PSH, name, self.payload(length), **more)
        self.seq[sender] += length
        self.tcp(self.other(sender), ACK, "ack of " + name)

    def talks(self, times=3):
        for _ in range(self.dice.randrange(1, times + 1)):
            self.says(self.dice.choice([IN, OUT]))

    def ends(self, first=None):
        first = first or self.dice.choice([IN, OUT])
        second = self.other(first)
        self.fin(first)
        self.tcp(second, ACK, "ack of fin")
        self.fin(second, "second fin")
        self.tcp(first, ACK, "last ack")

    def fin(self, sender, name="fin"):
        self.tcp(sender, FIN | ACK, name)
        self.seq[sender] += 1

    def udp(self, sender, name="datagram", length=None, port=None, plain=False, bad=0, **header):
        data = self.payload(self.dice.randrange(0, 1200) if length is None else length)

        def make(source, src_port, target, dst_port, _):
            src_port = port or src_port
            segment = struct.pack("!HHHH", src_port, dst_port, 8 + len(data), 0) + data
            if plain:
                return segment
            segment = summed(source, target, UDP, segment, 6)
            return segment[:6] + bytes([segment[6] ^ bad]) + segment[7:]

        self.add(sender, name, UDP, make, **header)

    def icmp(self, sender, kind, name, code=0, data=None, bad=0, other=0, **header):
        """A query or its answer: its identifier is the flow's port."""
        data = self.payload(self.dice.randrange(0, 800)) if data is None else data
        number = self.dice.getrandbits(16)

        def make(source, src_port, target, dst_port, _):
            ident = src_port if sender == IN else dst_port
            text = struct.pack("!BBHHH", kind, code, 0, ident ^ other, number) + data
            return text[:2] + struct.pack("!H", checksum(text) ^ bad) + text[4:]

        self.add(sender, name, ICMP, make, **header)

    def error(self, sender, name, kind=3, code=1, about=None, keep=None, word=0, bad=0, lie=None,
              **header):
        """An ICMP error about a packet of the other side: the last one, as it came to `sender`."""
        theirs = [one for one in self.packets if one.sender != sender]
        about = about or theirs[-1]

        def make(source, _, target, __, outer):
            quoted = about.bytes_at(outer)
            if lie:
                quoted = lie(quoted)
            quoted = quoted[:keep] if keep else quoted[:548]
            text = struct.pack("!BBHI", kind, code, 0, word) + quoted
            return text[:2] + struct.pack("!H", checksum(text) ^ bad) + text[4:]

        self.add(sender, name, ICMP, make, **header)


# The stories, by name: how often, and to which ports of the server outside.

STORIES = {}


def story(weight, protocol=TCP, ports=(80, 443, 1500), served=False, name=None):
    def entered(tell):
        STORIES[name or tell.__name__.replace("_", " ")] = (weight, protocol, ports, served, tell)
        return tell
    return entered


@story(30)
def connection(t):
    t.shake()
    t.talks(6)
    t.ends()


@story(10, served=True)
def connection_to_the_server_inside(t):
    t.shake()
    t.talks()
    t.ends()


@story(6)
def connection_left_open(t):
    t.shake()
    t.talks()


@story(2, ports=(25,))
def connection_that_is_denied(t):
    t.syn()
    t.syn()
    t.syn_ack()


@story(2, ports=(113,))
def connection_that_is_rejected(t):
    t.syn()


@story(2, ports=(9999,))
def connection_without_a_rule(t):
    t.syn()


@story(3)
def syn_alone(t):
    t.syn()


@story(3)
def syn_again(t):
    t.syn()
    t.syn("syn again")
    t.syn_ack()
    t.syn_ack("syn-ack again")
    t.seq[t.client] += 1
    t.seq[t.server] += 1
    t.tcp(t.client, ACK, "ack")


@story(3)
def syn_with_ecn(t):
    t.syn(flags=ECE | CWR)
    t.syn_ack()


@story(3)
def handshake_without_its_end(t):
    t.syn()
    t.syn_ack()


@story(3)
def refused(t):
    t.syn()
    t.tcp(t.server, RST | ACK, "rst", ack=1, window=0, seq=-t.seq[t.server])


@story(2)
def refused_with_another_number(t):
    t.syn()
    t.tcp(t.server, RST | ACK, "rst", ack=77, window=0, seq=-t.seq[t.server])
    t.syn_ack()


@story(2)
def simultaneous_open(t):
    t.syn()
    t.syn("their syn", sender=OUT)
    for end in (IN, OUT):
        t.seq[t.other(end)] += 1
        t.tcp(end, SYN | ACK, "syn-ack of " + end, options=t.syn_options(end))
        t.seq[t.other(end)] -= 1


@story(3)
def syn_ack_of_another_syn(t):
    t.syn()
    t.tcp(t.server, SYN | ACK, "syn-ack", ack=1000)


@story(3)
def half_closed(t):
    t.shake()
    first = t.dice.choice([IN, OUT])
    t.fin(first)
    t.tcp(t.other(first), ACK, "ack of fin")
    t.says(t.other(first), name="data behind fin")


@story(2)
def both_close(t):
    t.shake()
    t.fin(IN, "fin inside")
    t.seq[IN] -= 1
    t.fin(OUT, "fin outside")
    t.seq[IN] += 1
    t.tcp(IN, ACK, "ack inside")
    t.tcp(OUT, ACK, "ack outside")


@story(3)
def reset_at_the_edge(t):
    t.shake()
    t.talks()
    t.tcp(t.dice.choice([IN, OUT]), RST, "rst")


@story(2)
def reset_in_the_window(t):
    t.shake()
    t.says(IN)
    t.says(OUT)
    t.tcp(t.dice.choice([IN, OUT]), RST, "rst", seq=t.dice.randrange(100, 1900))
    t.talks()


@story(2)
def reset_outside_the_window(t):
    t.shake()
    t.says(IN)
    t.says(OUT)
    t.tcp(t.dice.choice([IN, OUT]), RST, "rst", seq=t.dice.choice([1 << 30, -1 << 30]))
    t.talks()


@story(2)
def syn_in_a_connection(t):
    t.shake()
    t.says(IN)
    t.syn("stray syn", sender=IN)
    t.tcp(OUT, ACK, "challenge")
    t.talks()


@story(2)
def data_above_the_window(t):
    t.shake()
    t.says(IN)
    t.says(OUT)
    sender = t.dice.choice([IN, OUT])
    above = (60000 << 7) + t.dice.randrange(1, 1 << 29)
    t.tcp(sender, ACK, "above", t.payload(100), seq=above)
    t.talks()


@story(2)
def data_from_long_ago(t):
    t.shake()
    t.says(IN)
    t.says(OUT)
    sender = t.dice.choice([IN, OUT])
    t.tcp(sender, ACK, "old", t.payload(100), seq=-(1 << 25) - t.dice.randrange(1, 1 << 29))
    t.talks()


@story(2)
def data_again(t):
    t.shake()
    sender = t.dice.choice([IN, OUT])
    t.says(sender, 700)
    t.tcp(sender, ACK, "again", t.payload(700), seq=-700)
    t.talks()


@story(2)
def data_out_of_order(t):
    t.shake()
    sender = t.dice.choice([IN, OUT])
    t.tcp(sender, ACK, "second", t.payload(500), seq=500)
    sack = struct.pack("!BBBBII", 1, 1, 5, 10, (t.seq[sender] + 500) & 0xFFFFFFFF,
                       (t.seq[sender] + 1000) & 0xFFFFFFFF)
    t.tcp(t.other(sender), ACK, "sack", options=sack)
    t.tcp(sender, ACK, "first", t.payload(500))
    t.seq[sender] += 1000
    t.tcp(t.other(sender), ACK, "ack of both")
    t.talks()


@story(2)
def keep_alive(t):
    t.shake()
    t.talks()
    sender = t.dice.choice([IN, OUT])
    t.tcp(sender, ACK, "keep-alive", seq=-1)
    t.tcp(t.other(sender), ACK, "answer")


@story(2)
def closed_window(t):
    t.shake()
    sender = t.dice.choice([IN, OUT])
    t.says(sender)
    t.tcp(t.other(sender), ACK, "closes", window=0)
    t.tcp(sender, ACK, "probe", t.payload(1))
    t.tcp(t.other(sender), ACK, "opens")
    t.talks()


@story(2)
def acknowledgment_of_what_was_not_sent(t):
    t.shake()
    t.says(IN)
    t.says(OUT)
    t.tcp(t.dice.choice([IN, OUT]), ACK, "unsent", ack=t.dice.randrange(1, 1 << 30))
    t.talks()


@story(2)
def acknowledgment_from_long_ago(t):
    t.shake()
    t.says(IN)
    t.says(OUT)
    t.tcp(t.dice.choice([IN, OUT]), ACK, "old", ack=-(1 << 25) - t.dice.randrange(1, 1 << 29))
    t.talks()


for first_flags, first_name in ((ACK, "ack"), (ACK | PSH, "data"), (FIN | ACK, "fin"),
                                (RST, "rst"), (SYN | ACK, "syn-ack"), (0, "no flags"),
                                (FIN | PSH | URG, "christmas tree"), (SYN | FIN, "syn and fin"),
                                (SYN | RST, "syn and rst"), (FIN, "bare fin")):
    @story(1, name="begins with " + first_name)
    def begins(t, flags=first_flags, first=first_name):
        t.tcp(IN, flags, first, t.payload(40 if flags == ACK | PSH else 0))
        t.tcp(OUT, ACK, "answer")


for odd_flags, odd_name in ((0, "no flags"), (FIN | PSH | URG, "christmas tree"),
                            (SYN | FIN, "syn and fin"), (SYN | RST, "syn and rst"),
                            (PSH, "push alone"), (FIN, "bare fin"), (ACK | URG, "urgent")):
    @story(1, name="has amid " + odd_name)
    def amid(t, flags=odd_flags, odd=odd_name):
        t.shake()
        t.says(IN)
        t.tcp(t.dice.choice([IN, OUT]), flags, odd)
        t.says(IN)


@story(1)
def header_cut_off(t):
    t.tcp(IN, SYN, "cut", bend=lambda segment: segment[:14])


@story(1)
def header_longer_than_the_segment(t):
    t.tcp(IN, SYN, "long", offset=9)


@story(1)
def header_too_short(t):
    t.tcp(IN, SYN, "short", offset=4)


@story(2)
def tcp_checksum_wrong(t):
    t.shake()
    sender = t.dice.choice([IN, OUT])
    t.tcp(sender, ACK, "bent", t.payload(50),
          bend=lambda segment: segment[:16] + bytes([segment[16] ^ 0x55]) + segment[17:])
    t.says(sender, 50)


@story(2)
def again_after_the_end(t):
    t.shake()
    t.ends(IN)
    t.seq[IN] += 100_000
    t.seq[OUT] += 500_000
    t.shake()
    t.says(IN)


@story(2)
def stray_segments_of_strangers(t):
    t.shake()
    t.tcp(OUT, ACK, "of a stranger", t.payload(20), source="10.20.200.200")
    t.tcp(OUT, SYN, "syn of a stranger", source="10.20.200.200")
    t.talks()


@story(15, UDP, (53, 5000, 5005))
def question_and_answer(t):
    t.udp(IN, "question")
    t.udp(OUT, "answer")


@story(10, UDP, (53, 5000, 5005))
def datagrams(t):
    for _ in range(t.dice.randrange(2, 9)):
        t.udp(t.dice.choice([IN, IN, OUT]))


@story(5, UDP, (53,))
def question_alone(t):
    t.udp(IN, "question")


@story(2, UDP, (137,))
def datagram_that_is_denied(t):
    t.udp(IN)


@story(2, UDP, (138,))
def datagram_that_is_rejected(t):
    t.udp(IN)


@story(2, UDP, (53,))
def datagrams_of_a_stranger(t):
    t.udp(IN, "question")
    t.udp(OUT, "from another port", port=54)
    t.udp(OUT, "from another host", source="10.20.200.200")
    t.udp(OUT, "answer")


@story(2, UDP, (53,))
def answer_without_a_question(t):
    t.udp(OUT, "answer")


@story(2, UDP, (53,))
def datagrams_without_a_checksum(t):
    t.udp(IN, "question", plain=True)
    t.udp(OUT, "answer", plain=True)


@story(2, UDP, (53,))
def datagram_with_a_wrong_checksum(t):
    t.udp(IN, "bent", bad=0x55)


@story(1, UDP, (53,))
def datagram_cut_off(t):
    t.udp(IN, "cut", bend=lambda segment: segment[:6])


@story(1, UDP, (53,))
def datagram_longer_than_its_packet(t):
    t.udp(IN, "long", bend=lambda segment: segment[:4] + b"\x05\xdc" + segment[6:])


@story(1, UDP, (53,))
def datagram_shorter_than_its_header(t):
    t.udp(IN, "short", bend=lambda segment: segment[:4] + b"\0\7" + segment[6:])


@story(3, UDP, (5000,))
def datagrams_in_fragments(t):
    t.udp(IN, "question", length=t.dice.randrange(800, 1300), pieces=[t.dice.randrange(5, 90) * 8])
    t.udp(OUT, "answer", length=t.dice.randrange(800, 1300), pieces=[240, 480])


@story(2, UDP, (5000,))
def datagrams_longer_than_the_mtu(t):
    t.udp(IN, "question", length=1400)
    t.udp(OUT, "answer", length=1300)


@story(2, UDP, (5000,))
def datagram_that_may_not_be_cut(t):
    t.udp(IN, "question", length=100)
    t.udp(IN, "longer than the MTU", length=1400, fragment=0x4000)


@story(2, UDP, (5000,))
def last_hop(t):
    t.udp(IN, "question", length=100)
    t.udp(IN, "question of TTL 1", length=100, ttl=1)
    t.udp(OUT, "answer of TTL 1", length=100, ttl=1)


@story(3, UDP, (53,))
def port_unreachable(t):
    t.udp(IN, "question")
    t.error(OUT, "error", 3, 3)


@story(2, UDP, (53,))
def port_unreachable_from_inside(t):
    t.udp(IN, "question")
    t.udp(OUT, "answer")
    t.error(IN, "error", 3, 3)


@story(2)
def errors_about_a_connection(t):
    t.syn()
    t.error(OUT, "host unreachable", 3, 1)
    t.error(OUT, "fragmentation needed", 3, 4, word=1200)
    t.error(OUT, "from a router", 11, 0, source="10.20.99.99")
    t.error(OUT, "of eight bytes", 3, 1, keep=28)
    t.error(OUT, "parameter problem", 12, 0, word=1 << 24)
    t.syn_ack()


@story(2)
def errors_about_the_server_s_connection(t):
    t.shake()
    t.tcp(OUT, ACK | PSH, "data", t.payload(300))
    t.error(IN, "port unreachable", 3, 3)
    t.error(IN, "of eight bytes", 3, 1, keep=28)


for lie_name, lie_made in (
        ("another port", lambda quote: quote[:20] + b"\x12\x34" + quote[22:]),
        ("another target", lambda quote: quote[:16] + b"\x0a\x14\xfe\xfe" + quote[20:]),
        ("another source", lambda quote: quote[:12] + b"\x0a\x02\x00\x09" + quote[16:]),
        ("another protocol", lambda quote: quote[:9] + b"\x84" + quote[10:])):
    @story(1, UDP, (53,), name="error that quotes " + lie_name)
    def liar(t, lie=lie_made):
        def mended(quote):
            quote = lie(quote)
            quote = quote[:10] + b"\0\0" + quote[12:]
            return quote[:10] + struct.pack("!H", checksum(quote[:20])) + quote[12:]
        t.udp(IN, "question")
        t.error(OUT, "lie", 3, 3, lie=mended)
        t.udp(OUT, "answer")


@story(1)
def error_about_numbers_that_are_not_on_their_way(t):
    t.shake()
    t.says(IN)
    t.error(OUT, "lie", 3, 1, lie=lambda quote: quote[:24] + b"\x77" + quote[25:])
    t.says(IN)


@story(1, UDP, (53,))
def error_with_a_wrong_checksum(t):
    t.udp(IN, "question")
    t.error(OUT, "error", 3, 3, bad=0x1234)


@story(1, UDP, (53,))
def error_with_a_short_quote(t):
    t.udp(IN, "question")
    t.error(OUT, "error", 3, 3, keep=24)


@story(1, UDP, (53,))
def error_of_another_kind(t):
    t.udp(IN, "question")
    t.error(OUT, "redirect", 5, 1, word=0x0A020009)
    t.error(OUT, "source quench", 4, 0)
    t.error(OUT, "unknown", 40, 0)


@story(8, ICMP, (0,))
def ping(t):
    for _ in range(t.dice.randrange(1, 5)):
        t.icmp(IN, 8, "request")
        t.icmp(OUT, 0, "reply")


@story(3, ICMP, (0,))
def ping_alone(t):
    t.icmp(IN, 8, "request")


@story(2, ICMP, (0,))
def ping_from_outside(t):
    t.icmp(OUT, 8, "request", target="10.60.7.7")


@story(2, ICMP, (0,))
def replies_that_were_not_asked_for(t):
    t.icmp(OUT, 0, "reply")
    t.icmp(IN, 0, "reply inside")
    t.icmp(IN, 8, "request")
    t.icmp(OUT, 0, "of another", other=0x5555)
    t.icmp(OUT, 14, "of another kind", data=bytes(12))


@story(1, ICMP, (0,))
def ping_with_a_wrong_checksum(t):
    t.icmp(IN, 8, "request", bad=0x1111)


@story(2, ICMP, (0,))
def ping_in_fragments(t):
    t.icmp(IN, 8, "request", data=t.payload(1200), pieces=[640])
    t.icmp(OUT, 0, "reply", data=t.payload(1200), pieces=[320, 640])


@story(1, ICMP, (0,))
def error_about_a_ping(t):
    t.icmp(IN, 8, "request")
    t.error(OUT, "unreachable", 3, 1)
    t.error(OUT, "too many hops", 11, 0, keep=28, source="10.20.99.99")


@story(1, ICMP, (0,))
def timestamps(t):
    t.icmp(IN, 13, "request", data=bytes(12))


@story(1, ICMP, (0,))
def router_solicitation(t):
    t.icmp(IN, 10, "solicitation")


@story(2, OTHER, (0,))
def protocol_without_ports(t):
    data = t.payload(60)
    t.add(IN, "question", OTHER, lambda *_: data)


def script(seed, count):
    """Flows with so many packets: each story once, then by weight."""
    dice = random.Random(seed)
    names, weights = list(STORIES), [row[0] for row in STORIES.values()]
    flows, total = [], 0
    taken, recent = set(), []
    while total < count or len(flows) < len(names):
        name = names[len(flows)] if len(flows) < len(names) else dice.choices(names, weights)[0]
        _, protocol, ports, served, tell = STORIES[name]
        teller = Teller(dice, ports)
        while True:
            inner = ("10.60.%d.%d" % (dice.randrange(1, 60), dice.randrange(1, 255)),
                     dice.randrange(1024, 65536))
            if recent and dice.random() < 0.05:
                inner = (inner[0], dice.choice(recent))
            far = ("10.20.%d.%d" % (dice.randrange(64, 128), dice.randrange(1, 255)),
                   dice.choice(ports))
            if served:
                inner, far = SERVER, (far[0], dice.randrange(1024, 65536))
            if (protocol, inner, far if served else 0) not in taken:
                break
        taken.add((protocol, inner, far if served else 0))
        if not served:
            recent = (recent + [inner[1]])[-50:]
        flow = Flow(name, inner, far, served)
        if served:
            teller.client, teller.server = OUT, IN
        tell_packets(teller, tell, flow)
        flows.append(flow)
        total += len(flow.packets)
    return flows


def tell_packets(teller, tell, flow):
    teller.flow = flow
    tell(teller)
    for packet in teller.packets:
        packet.flow = flow
    flow.packets = teller.packets
