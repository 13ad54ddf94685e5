//! Reading of captures that the binary wrote.

use linerate_drivers::pcap::Reader;

/// The frames of a pcap or pcapng file.
pub(crate) fn frames_of(path: &str) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next().unwrap() {
        frames.push(frame.data.to_vec());
    }
    frames
}
