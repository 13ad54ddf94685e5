//! Bytes from one connection to another, or back to where they came from: only as many are taken as
//! there is room for, so that a slow reader slows its writer down, and nothing piles up here.

use linerate_stack::socket::{Io, SocketId};
use linerate_stack::tcp::connection::Error;

/// Bytes that are copied at a time.
pub const CHUNK: usize = 64 << 10;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many bytes; there may be more.
    Bytes(usize),
    /// There is nothing to read now.
    Nothing,
    /// There is no room now.
    Full,
    /// The peer of the first sends no more.
    End,
}

/// Moves up to [`CHUNK`] bytes, by way of `scratch`.
///
/// # Errors
/// What has ended either connection, and whether it was the second.
pub fn relay(
    io: &mut Io<'_>,
    from: SocketId,
    to: SocketId,
    scratch: &mut [u8],
) -> Result<Moved, (Error, bool)> {
    if io.readable(from) == 0 {
        // With nothing to read this takes no byte.
        return match io.read(from, &mut scratch[..1]) {
            Ok(_) => Ok(Moved::End),
            Err(Error::WouldBlock) => Ok(Moved::Nothing),
            Err(error) => Err((error, false)),
        };
    }
    if let Some(error) = io.error(to) {
        return Err((error, true));
    }
    let room = io.writable(to).min(scratch.len());
    if room == 0 {
        return Ok(Moved::Full);
    }
    let mut count = 0;
    let look = |bytes: &[u8]| {
        count = bytes.len().min(room);
        scratch[..count].copy_from_slice(&bytes[..count]);
        0
    };
    io.consume(from, look).map_err(|error| (error, false))?;
    match io.write(to, &scratch[..count]) {
        Ok(written) => {
            // All of it was there before, and is still.
            let done = io.consume(from, |_| written);
            done.map_err(|error| (error, false)).map(Moved::Bytes)
        }
        Err(Error::WouldBlock) => Ok(Moved::Full),
        Err(error) => Err((error, true)),
    }
}
