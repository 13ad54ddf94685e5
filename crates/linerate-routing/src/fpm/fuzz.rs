//! Takes any bytes as zebra's stream: the size of the pieces does not change the messages, and the
//! routing table accepts them without a panic.

use linerate_wire::fpm::Stream;

use super::listener::{Event, decode};
use crate::feed::Feed;
use crate::rib::Source;
use crate::rib::testing::{Bench, LAN, WAN};

/// The main table of the kernel, and so of zebra.
const MAIN: u32 = 254;

/// The input's first byte is the size of the pieces.
pub fn check(input: &[u8]) {
    let Some((&piece, stream)) = input.split_first() else {
        return;
    };
    let whole = read(stream, stream.len().max(1));
    let cut = read(stream, usize::from(piece).max(1));
    assert_eq!(whole, cut, "pieces of {piece} bytes say something else");
}

/// The messages of the stream up to the first error, and the number of routes that they make.
fn read(bytes: &[u8], piece: usize) -> (Vec<String>, Option<String>, u64) {
    let mut stream = Stream::new();
    let mut bench = Bench::new();
    let mut feed = Feed::new(Source::Fpm);
    feed.set_tables([(MAIN, 0), (10, 1)]);
    feed.set_interface(&mut bench.rib, 11, Some(WAN));
    feed.set_interface(&mut bench.rib, 12, Some(LAN));
    let (mut told, mut flaw) = (Vec::new(), None);
    for mut rest in bytes.chunks(piece) {
        while !rest.is_empty() && flaw.is_none() {
            let space = stream.space();
            let len = space.len().min(rest.len());
            space[..len].copy_from_slice(&rest[..len]);
            stream.filled(len);
            rest = &rest[len..];
            let batch;
            (batch, flaw) = decode(&mut stream);
            let Some(Event::Said { said, .. }) = batch else {
                continue;
            };
            for one in said {
                feed.apply(&mut bench.rib, &one);
                told.push(format!("{one:?}"));
            }
        }
    }
    bench.commit();
    (told, flaw, feed.counts.added)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_says_something() {
        let corpus = include_bytes!("../../../../fuzz/corpus/fpm_stream/routes");
        let (told, flaw, added) = read(&corpus[1..], corpus.len());
        assert_eq!((told.len(), flaw, added), (7, None, 4), "{told:#?}");
    }
}
