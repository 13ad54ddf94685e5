//! Commands that end, what they say, and packets for them.

use std::process::{Command, Output};

use linerate_wire::checksum::checksum;
use serde_json::Value;

pub(crate) fn linerate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(args)
        .output()
        .expect("the binary runs")
}

/// What a command that must succeed prints; it may warn.
pub(crate) fn said(args: &[&str]) -> String {
    let output = linerate(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command that must succeed without a word on standard error prints.
pub(crate) fn stdout(args: &[&str]) -> String {
    let output = linerate(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "{args:?}: {stderr}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The document that it prints.
pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

/// Standard error of a command that must fail.
pub(crate) fn fails(args: &[&str]) -> String {
    ends_with(args, 1)
}

/// The same where it is the file that is wrong (EX_CONFIG).
pub(crate) fn misconfigured(args: &[&str]) -> String {
    ends_with(args, 78)
}

fn ends_with(args: &[&str], code: i32) -> String {
    let output = linerate(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    stderr
}

/// Error and fix of a command that must fail before it prints anything.
pub(crate) fn refused(args: &[&str]) -> (String, String) {
    let output = linerate(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert!(
        output.stdout.is_empty(),
        "{args:?} printed something before it failed"
    );
    let text = stderr
        .strip_prefix("error: ")
        .unwrap_or_else(|| panic!("{args:?}: {stderr}"));
    let (error, fix) = text
        .split_once("\nfix: ")
        .unwrap_or_else(|| panic!("{args:?}: no fix: {stderr}"));
    (error.into(), fix.into())
}

/// A UDP packet of 60 bytes without UDP checksum, to the first address of Ethernet from the second.
pub(crate) fn udp(
    macs: ([u8; 6], [u8; 6]),
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    ttl: u8,
) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 46, 0, 7, 0, 0, ttl, 17, 0, 0];
    ip.extend(from.0);
    ip.extend(to.0);
    let sum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    let mut frame = [macs.0, macs.1].concat();
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.extend([0x5a; 18]);
    frame
}
