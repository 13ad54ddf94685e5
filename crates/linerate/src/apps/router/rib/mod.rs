//! The routing table as control knows it: routes of all sources, which one is best, what it
//! resolves to, and the tables of the data plane that follow from that.
