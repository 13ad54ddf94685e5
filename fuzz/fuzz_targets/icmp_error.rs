//! libFuzzer's entry to the target `icmp_error`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("icmp_error", data));
