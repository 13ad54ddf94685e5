//! The terminal screen of `linerate pktgen`: a client of its JSON interface.
