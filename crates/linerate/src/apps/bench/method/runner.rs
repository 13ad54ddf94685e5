//! One trial, again where it was disturbed.
