//! Heads of answers: read where they come, or known from before.

use crate::http::response::{self, Response};

/// Bytes of an answer's head at most.
const MOST_HEAD: usize = 16 << 10;

/// A head as one came before: most of a server's are the same, but for their date in each second.
#[derive(Debug, Default)]
pub(super) struct KnownHead {
    bytes: Vec<u8>,
    response: Option<Response>,
}

impl KnownHead {
    /// The longest that is kept.
    const MOST: usize = 512;

    /// Its length and what it says, if these bytes begin with it.
    #[inline]
    fn find(&self, bytes: &[u8]) -> Option<(usize, Response)> {
        let response = self.response.filter(|_| bytes.starts_with(&self.bytes))?;
        Some((self.bytes.len(), response))
    }

    fn keep(&mut self, head: &[u8], response: Response) {
        if head.len() <= Self::MOST {
            self.bytes.clear();
            self.bytes.extend_from_slice(head);
            self.response = Some(response);
        }
    }
}

/// What was found in the bytes at hand.
pub(super) type Found = Option<Result<Response, response::Malformed>>;

/// Reads a head from `bytes`, or from `part` and them; returns how many of them are done with.
pub(super) fn read_head(
    bytes: &[u8],
    part: &mut Vec<u8>,
    known: &mut KnownHead,
    found: &mut Found,
) -> usize {
    let before = part.len();
    if before == 0
        && let Some((len, response)) = known.find(bytes)
    {
        *found = Some(Ok(response));
        return len;
    }
    let taken = bytes.len().min(MOST_HEAD.saturating_sub(before));
    let whole = match before {
        0 => &bytes[..taken],
        _ => {
            part.extend_from_slice(&bytes[..taken]);
            &part[..]
        }
    };
    match response::read(whole) {
        Ok(Some((len, response))) => {
            *found = Some(Ok(response));
            known.keep(&whole[..len], response);
            part.clear();
            // It was not whole without some of these bytes.
            len.saturating_sub(before)
        }
        Ok(None) if whole.len() < MOST_HEAD => {
            if before == 0 {
                part.extend_from_slice(bytes);
            }
            taken
        }
        Ok(None) | Err(_) => {
            *found = Some(Err(response::Malformed));
            bytes.len()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A head is found to be the same as the one before only where it is, however it comes.
    #[test]
    fn a_known_head_is_read_as_a_new_one() {
        let heads: [&[u8]; 5] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n",
            b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 100 Go on\r\n\r\n",
        ];
        let mut known = KnownHead::default();
        for order in 0..heads.len() * heads.len() * 2 {
            let head = heads[order * order % heads.len()];
            let whole = [head, b"HTTP/1.1 "].concat();
            let (len, response) = response::read(&whole).unwrap().unwrap();
            // As a whole, and in two pieces.
            for cut in [whole.len(), head.len() - 1, 1 + order % (head.len() - 1)] {
                let (mut part, mut found) = (Vec::new(), None);
                let mut done = read_head(&whole[..cut], &mut part, &mut known, &mut found);
                if found.is_none() {
                    assert_eq!(done, cut);
                    done += read_head(&whole[cut..], &mut part, &mut known, &mut found);
                }
                assert_eq!((done, found), (len, Some(Ok(response))));
                assert!(part.is_empty());
            }
        }
        // A long one is not kept.
        let long = format!(
            "HTTP/1.1 200 OK\r\nX: {}\r\n\r\n",
            "y".repeat(KnownHead::MOST)
        );
        let before = known.bytes.clone();
        let mut found = None;
        read_head(long.as_bytes(), &mut Vec::new(), &mut known, &mut found);
        assert!(matches!(found, Some(Ok(_))));
        assert_eq!(known.bytes, before);
    }
}
