//! Receive side scaling: the hash, the NICs that use it, and its inverse.
