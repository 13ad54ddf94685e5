//! libFuzzer's entry to the target `inflight_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("inflight_record", data));
