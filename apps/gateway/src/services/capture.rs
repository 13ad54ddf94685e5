//! `capture`: packets of chosen flows, for `linerate capture --stage captured`.
//!
//! They pass a point of the path that no other packet passes, so all that there is for captures
//! (filters, limits, several at once) is there for them. While nobody listens it costs a count.

use std::sync::Arc;

use linerate_tables::TableError;

use super::{Given, Kind, Make, Outcome, Service};

pub(super) const KIND: Kind = Kind {
    name: "capture",
    is_named: false,
    directions: [true; 2],
    // While somebody captures: rules apply it to what somebody is about to.
    reads_payload: true,
    read: |section| {
        // It has no keys: `end` refuses any.
        let _ = section;
        Arc::new(Config)
    },
};

#[derive(Debug, PartialEq)]
struct Config;

impl Make for Config {
    fn make(&self) -> Result<Box<dyn Service>, TableError> {
        Ok(Box::new(Capture))
    }

    fn text(&self) -> String {
        "shows packets to `linerate capture --stage captured`".into()
    }
}

struct Capture;

impl Service for Capture {
    fn run(&mut self, given: &mut Given<'_, '_>) {
        given.each(|one| {
            one.capture();
            Outcome::Keep
        });
    }
}
