//! Workers: how an lcore runs, sleeps and wakes.

pub mod doorbell;
