//! Meters: srTCM, trTCM, RFC 4115.
