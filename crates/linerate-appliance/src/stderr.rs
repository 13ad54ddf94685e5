//! Output on standard error. The standard library's macros panic if it cannot be written (a closed
//! pipe, a lost terminal), and the program would end with 101, or continue without the thread that
//! printed. These replace them in the whole crate: output without a reader is discarded.

/// As the standard library's, but ignores errors.
#[macro_export]
macro_rules! eprint {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr().lock(), $($said)*);
    }};
}

/// As the standard library's, but ignores errors.
#[macro_export]
macro_rules! eprintln {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($said)*);
    }};
}
