//! The headers of one packet: a `&[u8]` goes in, offsets or a reason come out.
#![no_std]
#![forbid(unsafe_code)]
