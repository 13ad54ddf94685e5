//! Any bytes as a message between the router and its privilege helper: what is one is written and
//! read again as the same.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

// The program has no library: this is its own file.
#[allow(dead_code)] // what only the program asks of a message
#[path = "../../crates/linerate-appliance/src/privilege/message.rs"]
mod message;

pub(crate) fn check(input: &[u8]) {
    same::<message::Request>(input);
    same::<message::Reply>(input);
}

fn same<T: DeserializeOwned + Serialize + PartialEq + Debug>(input: &[u8]) {
    match message::read::<T>(input) {
        Ok(message) => {
            let written = message::write(&message).expect("what was read can be written");
            assert_eq!(message::read::<T>(&written), Ok(message));
        }
        Err(why) => assert!(why.starts_with("no message")),
    }
}
