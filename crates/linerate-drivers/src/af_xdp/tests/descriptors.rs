//! Descriptors that come from another process need not be what they should: see the privilege
//! helper.

use super::*;
use crate::Own;
use std::os::fd::AsFd;

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const XSKMAP: u32 = 17;

/// `bpf(2)` reads as many bytes as a map's keys and values have, whatever the caller has there.
#[test]
fn a_map_of_another_shape_is_refused_and_gets_nothing() {
    if !privileged() {
        return;
    }
    let socket = Own.xdp_socket("", 0).unwrap();
    for (kind, key, value) in [(HASH, 4, 128), (HASH, 64, 4), (HASH, 4, 4), (ARRAY, 4, 128)] {
        let map = sys::any_map(kind, key, value).unwrap();
        for socket in [Some(socket.as_fd()), None] {
            let refused = Own.xdp_map("", map.as_fd(), 1, socket).unwrap_err();
            let said = refused.to_string();
            let expected = format!("type {kind}, with keys of {key} and values of {value} bytes");
            assert!(said.contains(&expected), "{said}");
        }
        if kind == ARRAY {
            // What was on the stack behind the number is not in it.
            assert_eq!(sys::look_up(map.as_fd(), 1).unwrap(), [0; 256]);
        } else if key == 4 {
            assert!(sys::look_up(map.as_fd(), 1).is_err(), "it has an entry");
        }
    }
    let map = sys::any_map(XSKMAP, 4, 4).unwrap();
    Own.xdp_map("", map.as_fd(), 1, Some(socket.as_fd()))
        .unwrap();
    Own.xdp_map("", map.as_fd(), 1, None).unwrap();
}

#[test]
fn what_is_neither_map_nor_program_is_refused() {
    if !privileged() {
        return;
    }
    let (pipe, _writer) = std::io::pipe().unwrap();
    let loaded = Own.xdp_program("", "").unwrap();
    let socket = Own.xdp_socket("", 0).unwrap();
    for other in [pipe.as_fd(), socket.as_fd(), loaded.program.as_fd()] {
        assert!(Own.xdp_map("", other, 0, Some(socket.as_fd())).is_err());
        assert!(Own.xdp_map("", other, 0, None).is_err());
    }
    for other in [pipe.as_fd(), socket.as_fd(), loaded.map.as_fd()] {
        let refused = Own.xdp_attach("lo", other, false).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
    // A socket that is none of AF_XDP's does not get into the map.
    let map = loaded.map.as_fd();
    assert!(Own.xdp_map("", map, 0, Some(pipe.as_fd())).is_err());
}
