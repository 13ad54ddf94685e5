//! libFuzzer's entry to the target `control_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("control_request", data));
