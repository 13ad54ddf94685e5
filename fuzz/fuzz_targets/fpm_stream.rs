//! libFuzzer's entry to the target `fpm_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("fpm_stream", data));
