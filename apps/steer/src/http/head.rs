//! The parts of a head (RFC 9112 2.1): where tokens, targets, field values and lines end. Bytes are
//! looked at eight at a time where most of them are text.

/// A byte that may not be where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// By byte: whether it is one of a token (RFC 9110 5.6.2).
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let marks = b"!#$%&'*+-.^_`|~";
        let mut is_mark = false;
        let mut mark = 0;
        while mark < marks.len() {
            is_mark |= marks[mark] == byte;
            mark += 1;
        }
        table[byte as usize] = byte.is_ascii_alphanumeric() || is_mark;
        byte += 1;
    }
    table
};

/// Where a token that begins at `at` ends.
#[inline]
pub(super) fn token_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let other = rest.iter().position(|byte| !TOKEN[usize::from(*byte)]);
    other.map_or(bytes.len(), |count| at + count)
}

/// Where a target that begins at `at` ends: at a blank, a control, or the end.
#[inline]
pub(super) fn target_end(bytes: &[u8], at: usize) -> usize {
    below(bytes, at, b' ' + 1)
}

/// Where a field's value that begins at `at` ends: at a control other than HTAB, or the end (RFC
/// 9110 5.5). Blanks around it are in it.
#[inline]
pub(super) fn value_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = below(bytes, at, b' ');
        match bytes.get(at) {
            Some(b'\t') => at += 1,
            _ => return at,
        }
    }
}

/// The first byte from `at` on that is below `least` (at most 128) or DEL; or the end.
#[inline]
fn below(bytes: &[u8], mut at: usize, least: u8) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*eight);
        // A byte's highest bit is set where it is less, of those below 128; beyond the first such
        // one a borrow may have set others (Mycroft's test for a zero byte, with other numbers).
        let is_less = word.wrapping_sub(ONES * u64::from(least)) & !word;
        let other = word ^ (ONES * 0x7f);
        let is_del = other.wrapping_sub(ONES) & !other;
        let found = (is_less | is_del) & HIGHS;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or(&[]);
    let found = rest.iter().position(|&byte| byte < least || byte == 0x7f);
    found.map_or(bytes.len(), |count| at + count)
}

/// Where the line after the one that ends at `at` begins, if its end is there: CR LF, or LF alone,
/// which a recipient may take for it (RFC 9112 2.2).
#[inline]
pub(super) fn line_end(bytes: &[u8], at: usize) -> Result<Option<usize>, Malformed> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) => Ok(Some(at + 2)),
        (Some(b'\n'), _) => Ok(Some(at + 1)),
        (None, _) | (Some(b'\r'), None) => Ok(None),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use linerate_testkit::Random;

    use super::*;

    #[test]
    fn ends_are_found_wherever_they_are() {
        let mut random = Random::new(20_261_128);
        for _ in 0..20_000 {
            let len = random.below(40_usize);
            // Mostly text, so that runs are long.
            let any = |random: &mut Random| match random.below(12_u8) {
                0 => random.below(256_u16) as u8,
                _ => b' ' + random.below(95_u8),
            };
            let bytes: Vec<u8> = (0..len).map(|_| any(&mut random)).collect();
            let at = random.below(len + 2);
            let first = |is: &dyn Fn(u8) -> bool| {
                (at..len)
                    .find(|place| is(bytes[*place]))
                    .unwrap_or(len.max(at).min(len))
            };
            let expected = first(&|byte| byte <= b' ' || byte == 0x7f);
            assert_eq!(target_end(&bytes, at), expected, "{bytes:?} from {at}");
            let expected = first(&|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
            assert_eq!(value_end(&bytes, at), expected, "{bytes:?} from {at}");
        }
    }

    #[test]
    fn rfc9110_5_6_2_tokens() {
        assert_eq!(token_end(b"Content-Length: 5", 0), 14);
        assert_eq!(token_end(b"a b", 0), 1);
        assert_eq!(token_end(b"!#$%&'*+-.^_`|~09AZaz", 0), 21);
        for other in *b"\"(),/:;<=>?@[\\]{} \x7f\x80\xff\0" {
            assert_eq!(token_end(&[b'a', other], 0), 1, "{other}");
        }
    }

    #[test]
    fn rfc9112_2_2_lines_end_by_crlf_or_lf() {
        assert_eq!(line_end(b"a\r\nb", 1), Ok(Some(3)));
        assert_eq!(line_end(b"a\nb", 1), Ok(Some(2)));
        assert_eq!(line_end(b"a\r", 1), Ok(None));
        assert_eq!(line_end(b"a", 1), Ok(None));
        assert_eq!(line_end(b"a\rb", 1), Err(Malformed));
        assert_eq!(line_end(b"a\x01", 1), Err(Malformed));
    }
}
