//! libFuzzer's entry to the target `tunnels`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("tunnels", data));
