//! libFuzzer's entry to the target `router_path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("router_path", data));
