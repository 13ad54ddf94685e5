//! libFuzzer's entry to the target `gateway_nat_quote`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("gateway_nat_quote", data));
