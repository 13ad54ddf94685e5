"""Fragments of every shape, made by scapy: writes one capture for each shape into a directory.

Arguments: the directory; for each family source and destination address; MAC addresses of the
router's port and of the host. Each datagram is UDP to port 9000 with 3000 bytes of payload that
begin with the name of the shape; ports and checksums are right unless the shape says otherwise.
"""

import random
import sys

from scapy.all import Ether, IP, UDP, IPv6, IPv6ExtHdrFragment, Raw, wrpcap, fragment, fragment6

directory, src4, dst4, src6, dst6, router, host = sys.argv[1:]
random.seed(20261121)


def payload(name, size=3000):
    text = name.encode().ljust(40, b".")
    return text + bytes(random.randrange(256) for _ in range(size - len(text)))


def v4(name, size=3000, fragsize=1400, ident=None):
    whole = IP(src=src4, dst=dst4, id=ident or random.randrange(1, 65536)) / UDP(sport=9, dport=9000) / payload(name, size)
    whole = IP(bytes(whole))
    return fragment(whole, fragsize=fragsize)


def v6(name, size=3000, fragsize=1280):
    whole = IPv6(src=src6, dst=dst6) / IPv6ExtHdrFragment(id=random.randrange(1 << 32)) / UDP(sport=9, dport=9000) / payload(name, size)
    # Checksums are made when bytes are; the fragment header in between is none of its business.
    whole[UDP].chksum = None
    return fragment6(whole, fragsize)


def overlapping(parts, fragmented, field, shift, at):
    """A copy of the second fragment with other bytes, shifted by some units of 8 and inserted."""
    again = parts[1].copy()
    header = again[fragmented]
    setattr(header, field, getattr(header, field) + shift)
    again[Raw].load = bytes(len(again[Raw].load))
    return [*parts[:at], again, *parts[at:]]


def contained(parts, fragmented, field):
    """A piece of the second fragment comes once more, with other bytes."""
    again = parts[1].copy()
    header = again[fragmented]
    setattr(header, field, getattr(header, field) + 4)
    again[Raw].load = bytes(64)
    return [*parts[:2], again, *parts[2:]]


def shuffled(parts):
    parts = list(parts)
    random.shuffle(parts)
    return parts


shapes = {
    # Whole at the end, whatever the router does.
    "whole4-in-order": v4("whole4-in-order"),
    "whole4-reversed": v4("whole4-reversed")[::-1],
    "whole4-tiny": v4("whole4-tiny", 600, 8),
    "whole4-tiny-shuffled": shuffled(v4("whole4-tiny-shuffled", 400, 24)),
    "whole4-many": shuffled(v4("whole4-many", 20000, 552)),
    "whole4-repeated": [part for part in v4("whole4-repeated") for _ in range(2)],
    "whole6-in-order": v6("whole6-in-order"),
    "whole6-reversed": v6("whole6-reversed")[::-1],
    "whole6-tiny-shuffled": shuffled(v6("whole6-tiny-shuffled", 400, 72)),
    "whole6-many": shuffled(v6("whole6-many", 20000, 600)),
    # Two datagrams with the same identification, of other protocols and addresses, between each other.
    "whole4-interleaved": [part for pair in zip(v4("whole4-interleaved", ident=7), v4("whole4-interleaved-b", ident=8)) for part in pair],
    # Never whole.
    "never4-overlapping": overlapping(v4("never4-overlapping"), IP, "frag", -2, 1),
    "never4-overlapping-end": overlapping(v4("never4-overlapping-end"), IP, "frag", 1, 2),
    "never6-overlapping": overlapping(v6("never6-overlapping"), IPv6ExtHdrFragment, "offset", -2, 1),
    # RFC 5722: never whole either; Linux takes what lies within earlier fragments for a repetition.
    "linux4-contained": contained(v4("linux4-contained"), IP, "frag"),
    "linux6-contained": contained(v6("linux6-contained"), IPv6ExtHdrFragment, "offset"),
    "never4-without-last": v4("never4-without-last")[:-1],
    "never4-without-first": v4("never4-without-first")[1:],
    "never6-without-middle": [part for at, part in enumerate(v6("never6-without-middle")) if at != 1],
}

# A fragment that is not the last must be a multiple of 8 long (RFC 8200 4.5).
parts = v6("never6-odd-length")
parts[0][Raw].load = parts[0][Raw].load[:-3]
shapes["never6-odd-length"] = parts
# The end lies behind 65535 bytes (RFC 791: such a datagram does not exist).
parts = v4("never4-too-long")
parts[-1].frag = 8189
del parts[-1].chksum
shapes["never4-too-long"] = parts

for name, parts in shapes.items():
    for part in parts:
        for field in ("plen", "len"):
            if field in part.fields and part.name in ("IPv6", "IP"):
                delattr(part, field)
        if "chksum" in part.fields and part.name == "IP":
            del part.chksum
    frames = [Ether(dst=router, src=host) / part for part in parts]
    wrpcap(f"{directory}/{name}.pcap", frames)
    print(name)
