//! A capture file: whatever the bytes are, its frames come in bounded memory, and it ends.

use linerate_drivers::pcap::Reader;
use std::io::Cursor;

pub(crate) fn check(input: &[u8]) {
    let mut reader = match Reader::new(Cursor::new(input.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut bytes = 0;
    loop {
        match reader.next() {
            // Each frame lies in the file, with a header of its own.
            Ok(Some(frame)) => bytes += frame.data.len() + 12,
            Ok(None) => break,
            Err(error) => {
                assert!(
                    error.to_string().contains("record") || error.to_string().contains("link type")
                );
                break;
            }
        }
        assert!(bytes <= input.len(), "more frames than the file holds");
    }
}
