//! Poll-mode drivers: one folder per kind of port.
