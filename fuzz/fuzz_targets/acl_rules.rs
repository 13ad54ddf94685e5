//! libFuzzer's entry to the target `acl_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("acl_rules", data));
