//! libFuzzer's entry to the target `epc_nodes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_fuzz::run("epc_nodes", data));
