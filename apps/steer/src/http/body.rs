//! Where the body of a message ends: after so many bytes, chunk by chunk, or with the connection
//! (RFC 9112 6, 7.1).

/// Bytes of a chunk's size line, and of the trailer section, at most.
const MOST_LINE: u32 = 4096;
const MOST_TRAILERS: u32 = 16 << 10;

/// A body under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// So many bytes are missing.
    Length(u64),
    /// All that comes until the connection ends: of a response only (RFC 9112 6.3).
    UntilEnd,
    /// A chunk's size is being read: what it is so far, with how many digits and what came behind
    /// them, and how many bytes of its line came.
    Size(u64, u32, u32),
    /// So many bytes of a chunk are missing.
    Chunk(u64),
    /// The end of a chunk: how many bytes of CR LF came.
    ChunkEnd(u8),
    /// The trailer section: bytes of it, and of its current line.
    Trailers(u32, u32),
}

/// What is wrong with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chunk is malformed")]
pub struct Malformed;

impl Body {
    /// A body in chunks, before its first byte.
    pub const CHUNKED: Self = Self::Size(0, 0, 0);

    /// Whether all of it came.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Length(0))
    }

    /// Takes what belongs to the body from the front of `bytes`: how many bytes that is, and how
    /// many of them are content.
    ///
    /// # Errors
    /// They are no chunks.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, u64), Malformed> {
        let (mut at, mut all) = (0, 0);
        while !self.is_done() && at < bytes.len() {
            let (framing, content) = self.next(&bytes[at..])?;
            (at, all) = (at + framing + content, all + content as u64);
        }
        Ok((at, all))
    }

    /// Takes the next piece from the front of `bytes`: how many bytes are not content, and how many
    /// behind them are. The rest of `bytes` may have more pieces.
    ///
    /// # Errors
    /// They are no chunks.
    pub fn next(&mut self, bytes: &[u8]) -> Result<(usize, usize), Malformed> {
        let mut framing = 0;
        while !self.is_done() && framing < bytes.len() {
            let rest = &bytes[framing..];
            match self {
                Self::UntilEnd => return Ok((framing, rest.len())),
                Self::Length(left) | Self::Chunk(left) => {
                    let count = (*left).min(rest.len() as u64);
                    *left -= count;
                    if matches!(self, Self::Chunk(0)) {
                        *self = Self::ChunkEnd(0);
                    }
                    return Ok((framing, count as usize));
                }
                Self::Size(..) => self.size(rest[0])?,
                Self::ChunkEnd(came) => match (*came, rest[0]) {
                    (0, b'\r') => *came = 1,
                    (1, b'\n') => *self = Self::CHUNKED,
                    _ => return Err(Malformed),
                },
                Self::Trailers(all, line) => {
                    *all += 1;
                    if *all > MOST_TRAILERS {
                        return Err(Malformed);
                    }
                    // Set in the length of the line; it stands before LF only.
                    const CR: u32 = 1 << 31;
                    match rest[0] {
                        b'\n' if *line & !CR == 0 => *self = Self::Length(0),
                        b'\n' => *line = 0,
                        _ if *line & CR != 0 => return Err(Malformed),
                        b'\r' => *line |= CR,
                        _ => *line += 1,
                    }
                }
            }
            framing += 1;
        }
        Ok((framing, 0))
    }

    /// A byte of a chunk's size, or of its extensions, which say nothing to us (RFC 9112 7.1.1).
    fn size(&mut self, byte: u8) -> Result<(), Malformed> {
        let Self::Size(size, digits, line) = self else {
            return Ok(());
        };
        *line += 1;
        if *line > MOST_LINE {
            return Err(Malformed);
        }
        // Digits are counted up to 15; then comes one of these. Whoever reads the line otherwise
        // than others do may be made to take content for a request (RFC 9112 11.2): there is at
        // least a digit, nothing but blanks before `;`, and the line ends with CR LF.
        const BLANK: u32 = 1 << 8;
        const EXTENSION: u32 = 1 << 9;
        const CR: u32 = 1 << 10;
        let (count, behind) = (*digits & 0xff, *digits & !0xff);
        match byte {
            b'\n' if behind & CR != 0 && *size == 0 => *self = Self::Trailers(0, 0),
            b'\n' if behind & CR != 0 => *self = Self::Chunk(*size),
            b'\n' => return Err(Malformed),
            _ if behind & CR != 0 || count == 0 && !byte.is_ascii_hexdigit() => {
                return Err(Malformed);
            }
            b'\r' => *digits |= CR,
            _ if behind & EXTENSION != 0 => {}
            b';' => *digits |= EXTENSION,
            b' ' | b'\t' => *digits |= BLANK,
            // 2^60 and more is no size (RFC 9112 7.1: beware of overflows).
            _ if behind != 0 || count >= 15 => return Err(Malformed),
            _ => {
                let digit = (byte as char).to_digit(16).ok_or(Malformed)?;
                *size = *size << 4 | u64::from(digit);
                *digits += 1;
            }
        }
        Ok(())
    }
}
