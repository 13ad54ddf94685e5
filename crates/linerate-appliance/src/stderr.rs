//! What is said on standard error. The standard library's macros panic where nobody reads it any
//! more (a pipe that was closed, a terminal that went away), and the program would end with 101, or
//! go on without the thread that spoke. These take their place in the whole crate: what nobody
//! hears is not said.

/// As the standard library's, but that nobody need listen.
#[macro_export]
macro_rules! eprint {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr().lock(), $($said)*);
    }};
}

/// As the standard library's, but that nobody need listen.
#[macro_export]
macro_rules! eprintln {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($said)*);
    }};
}
