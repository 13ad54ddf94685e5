//! libFuzzer's entry to the target `pktgen_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("pktgen_text", data));
