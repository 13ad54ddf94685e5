//! libFuzzer's entry to the target `memif_ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("memif_ring", data));
