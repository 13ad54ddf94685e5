//! libFuzzer's entry to the target `http_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("http_request", data));
