//! libFuzzer's entry to the target `af_packet_ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("af_packet_ring", data));
