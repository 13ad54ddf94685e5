//! Neighbours: ARP (RFC 826) and Neighbor Discovery (RFC 4861).
