//! libFuzzer's entry to the target `vhost_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("vhost_messages", data));
