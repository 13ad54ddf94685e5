//! libFuzzer's entry to the target `drill_script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("drill_script", data));
