//! libFuzzer's entry to the target `gtpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("gtpc", data));
