//! libFuzzer's entry to the target `s1_control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("s1_control", data));
