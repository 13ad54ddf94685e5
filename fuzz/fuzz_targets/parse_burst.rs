//! libFuzzer's entry to the target `parse_burst`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("parse_burst", data));
