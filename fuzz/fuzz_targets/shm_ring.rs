//! libFuzzer's entry to the target `shm_ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("shm_ring", data));
