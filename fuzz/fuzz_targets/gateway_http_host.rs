//! libFuzzer's entry to the target `gateway_http_host`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("gateway_http_host", data));
