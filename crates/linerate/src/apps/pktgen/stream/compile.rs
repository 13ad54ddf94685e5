//! From what users wrote to a template.

use linerate_wire::ethernet::MacAddr;

use super::values::Values;
use super::{Stream, StreamError, StreamSpec};

pub(super) fn compile(
    spec: &StreamSpec,
    id: u16,
    src: MacAddr,
    dst: MacAddr,
    _seed: u64,
) -> Result<Stream, StreamError> {
    let bytes = match spec.size.as_ref().map(|size| size.values()) {
        Some(Values::Fixed(size)) => size as usize,
        _ => 64,
    };
    Ok(Stream::new(id, src, dst, bytes))
}
