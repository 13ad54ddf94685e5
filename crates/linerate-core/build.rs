//! Sets a cfg for builds with ThreadSanitizer: the sanitizer does not see inline assembly, so block
//! copies of shared words (`arch.rs`) fall back to plain atomics.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(tsan)");
    println!("cargo::rerun-if-changed=build.rs");
    let sanitizers = std::env::var("CARGO_CFG_SANITIZE").unwrap_or_default();
    if sanitizers.split(',').any(|name| name == "thread") {
        println!("cargo::rustc-cfg=tsan");
    }
}
