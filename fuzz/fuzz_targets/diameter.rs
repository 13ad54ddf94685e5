//! libFuzzer's entry to the target `diameter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("diameter", data));
