//! Devices under test: set up, started, taken down.
