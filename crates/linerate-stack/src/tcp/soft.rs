//! Soft errors: ICMP says that something does not arrive, and the connection goes on all the same
//! (RFC 9293 3.9.2.2, RFC 5461, RFC 5927 5.2).

use super::connection::Error;

/// What an ICMP error was about. Its numbers are in [`ErrorKind`](crate::host::ErrorKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SoftError {
    /// No route.
    NetUnreachable,
    /// The host does not answer.
    HostUnreachable,
    /// The host does not speak TCP.
    ProtocolUnreachable,
    /// Nobody listens there.
    PortUnreachable,
    /// A source route cannot be followed.
    SourceRouteFailed,
    /// A filter denies it.
    Prohibited,
    /// The time to live or hop limit ran out.
    TtlExceeded,
    /// Fragments did not come together in time.
    ReassemblyExceeded,
    /// A header field is wrong to somebody.
    ParameterProblem,
}

impl SoftError {
    /// By their numbers.
    const ALL: [Self; 9] = [
        Self::NetUnreachable,
        Self::HostUnreachable,
        Self::ProtocolUnreachable,
        Self::PortUnreachable,
        Self::SourceRouteFailed,
        Self::Prohibited,
        Self::TtlExceeded,
        Self::ReassemblyExceeded,
        Self::ParameterProblem,
    ];

    /// One, or none, in four bits.
    pub(crate) fn to_bits(error: Option<Self>) -> u8 {
        error.map_or(0, |error| error as u8 + 1)
    }

    /// What [`to_bits`](Self::to_bits) was given.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        let number = usize::from(bits).checked_sub(1)?;
        Self::ALL.get(number).copied()
    }

    /// Whether the destination itself refuses: RFC 1122 4.2.3.9, RFC 5461 2.
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::ProtocolUnreachable | Self::PortUnreachable)
    }

    /// What a connection ends with that nobody has answered since.
    pub const fn as_error(self) -> Error {
        match self.is_hard() {
            true => Error::Refused,
            false => Error::Unreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_back_from_its_bits() {
        assert_eq!(SoftError::from_bits(SoftError::to_bits(None)), None);
        for error in SoftError::ALL {
            let bits = SoftError::to_bits(Some(error));
            assert!(bits < 16);
            assert_eq!(SoftError::from_bits(bits), Some(error));
        }
    }
}
