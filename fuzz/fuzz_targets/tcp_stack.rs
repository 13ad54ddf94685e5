//! libFuzzer's entry to the target `tcp_stack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("tcp_stack", data));
