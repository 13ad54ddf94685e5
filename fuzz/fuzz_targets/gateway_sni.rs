//! libFuzzer's entry to the target `gateway_sni`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("gateway_sni", data));
