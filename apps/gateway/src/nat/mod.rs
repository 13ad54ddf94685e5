//! Translation of addresses: pools, ports, mappings, headers.
