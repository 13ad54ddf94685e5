//! A front end that knows vhost-user and breaks it, rule by rule: it is cut off, by reason counted,
//! and the next one is served.

use crate::End;
use crate::peer::*;
use linerate_testkit::{Scratch, wait};
use std::io::{Read, Write};
use std::os::fd::AsFd;

#[test]
fn each_broken_rule_has_its_reason_and_the_next_peer_is_served() {
    type Break = fn(&Peer);
    let breaks: [(&str, &str, Break); 32] = [
        ("another version", "message_bad", |peer| {
            peer.put([GET_FEATURES, 2, 0], &[], &[]);
        }),
        ("an unknown request", "message_bad", |peer| {
            peer.send(77, &[], &[]);
        }),
        ("a payload of 2 GiB", "message_bad", |peer| {
            peer.put([SET_FEATURES, 1, 1 << 31], &[], &[]);
        }),
        ("a payload too short", "message_bad", |peer| {
            peer.put([SET_FEATURES, 1, 4], &[0; 4], &[]);
        }),
        ("features nobody offered", "message_bad", |peer| {
            peer.send(SET_FEATURES, &[1 << 63], &[]);
        }),
        ("a ring that is not there", "message_bad", |peer| {
            peer.state(SET_VRING_NUM, 2, 64);
        }),
        ("a ring of no entries", "message_bad", |peer| {
            peer.state(SET_VRING_NUM, 0, 0);
        }),
        ("a ring too large", "message_bad", |peer| {
            peer.state(SET_VRING_NUM, 0, 65_536);
        }),
        ("descriptors where none belong", "files_bad", |peer| {
            peer.send(SET_FEATURES, &[0], &[eventfd().as_fd()]);
        }),
        ("no descriptor where one belongs", "files_bad", |peer| {
            peer.send(SET_VRING_KICK, &[0], &[]);
        }),
        ("two descriptors where one belongs", "files_bad", |peer| {
            let event = eventfd();
            peer.send(SET_VRING_CALL, &[0], &[event.as_fd(); 2]);
        }),
        ("nine descriptors", "files_bad", |peer| {
            let event = eventfd();
            peer.send(SET_MEM_TABLE, &[0], &[event.as_fd(); 9]);
        }),
        ("a kick through memory", "not_eventfd", |peer| {
            peer.send(SET_VRING_KICK, &[0], &[memory(4096).as_fd()]);
        }),
        ("more regions than descriptors", "message_bad", |peer| {
            let words = [2, 0, REGION, 0, 0, REGION, REGION, REGION, 0];
            peer.send(SET_MEM_TABLE, &words, &[memory(REGION).as_fd()]);
        }),
        ("a region longer than its file", "region_bad", |peer| {
            let file = memory(REGION);
            let words = [1, 0, REGION + 1, 0, 0];
            peer.send(SET_MEM_TABLE, &words, &[file.as_fd()]);
        }),
        ("a region of an eventfd", "region_bad", |peer| {
            peer.send(SET_MEM_TABLE, &[1, 0, 4096, 0, 0], &[eventfd().as_fd()]);
        }),
        ("regions that overlap", "region_bad", |peer| {
            let file = memory(REGION);
            let words = [2, 0, REGION, 0, 0, 4096, REGION, REGION, 0];
            peer.send(SET_MEM_TABLE, &words, &[file.as_fd(); 2]);
        }),
        ("a region that wraps", "region_bad", |peer| {
            let file = memory(REGION);
            let words = [1, u64::MAX - 4095, REGION, 0, 0];
            peer.send(SET_MEM_TABLE, &words, &[file.as_fd()]);
        }),
        ("an offset that wraps", "region_bad", |peer| {
            let file = memory(REGION);
            let words = [1, 0, 4096, 0, u64::MAX - 4095];
            peer.send(SET_MEM_TABLE, &words, &[file.as_fd()]);
        }),
        ("a ring outside of all regions", "ring_outside", |peer| {
            peer.set_up();
            peer.ring(0, REGION - 4096);
        }),
        ("a split ring of 63 entries", "ring_outside", |peer| {
            peer.set_up();
            peer.state(SET_VRING_NUM, 0, 63);
        }),
        (
            "a packed ring that begins behind its end",
            "ring_index",
            |peer| {
                peer.set_up();
                peer.send(SET_FEATURES, &[FEATURES | 1 << 34], &[]);
                peer.state(SET_VRING_BASE, 0, 64);
            },
        ),
        ("a region within another", "region_bad", |peer| {
            peer.set_up();
            let file = memory(REGION);
            peer.send(ADD_MEM_REG, &[0, 0, REGION - 4096, 0, 0], &[file.as_fd()]);
        }),
        ("a log without a file", "files_bad", |peer| {
            peer.send(SET_LOG_BASE, &[4096, 0], &[]);
        }),
        ("a log that is no memory", "region_bad", |peer| {
            peer.send(SET_LOG_BASE, &[4096, 0], &[eventfd().as_fd()]);
        }),
        ("a log longer than its file", "region_bad", |peer| {
            peer.send(SET_LOG_BASE, &[4096, 1], &[memory(4096).as_fd()]);
        }),
        ("a log too short for the memory", "log_outside", |peer| {
            peer.set_up();
            peer.send(SET_FEATURES, &[FEATURES | 1 << 26], &[]);
            peer.send(SET_LOG_BASE, &[31, 0], &[memory(4096).as_fd()]);
        }),
        ("a used ring beyond the log", "log_outside", |peer| {
            peer.set_up();
            peer.send(SET_LOG_BASE, &[32, 0], &[memory(4096).as_fd()]);
            let parts = [1 << 32, 0, 0x2000, 0x1000, REGION - 8];
            peer.send(SET_VRING_ADDR, &parts, &[]);
        }),
        ("to be told of the log by memory", "not_eventfd", |peer| {
            peer.send(SET_LOG_FD, &[], &[memory(4096).as_fd()]);
        }),
        (
            "a record of more queues than there are",
            "message_bad",
            |peer| {
                peer.send(GET_INFLIGHT_FD, &[0, 0, 64 << 16 | 3], &[]);
            },
        ),
        ("a record too short for its queues", "region_bad", |peer| {
            let words = [2000, 0, 64 << 16 | 2];
            peer.send(SET_INFLIGHT_FD, &words, &[memory(4096).as_fd()]);
        }),
        ("a record of another version", "region_bad", |peer| {
            let file = memory(4096);
            poke(&file, 8, &[2]);
            let words = [4096, 0, 64 << 16 | 2];
            peer.send(SET_INFLIGHT_FD, &words, &[file.as_fd()]);
            peer.set_up();
        }),
    ];
    let folder = Scratch::new();
    let path = folder.path().join("s");
    let end = End::new(&format!("vhost:{}", path.display()), 1);
    let counts = |end: &End, reason: &str| {
        let all = end.port.stats().violations;
        all.iter()
            .find(|(name, _)| *name == reason)
            .map_or(0, |&(_, count)| count)
    };
    for (what, reason, break_it) in breaks {
        let before = counts(&end, reason);
        let mut peer = Peer::new(&path);
        assert!(peer.ask(GET_FEATURES, &[]).is_some(), "{what}: not served");
        break_it(&peer);
        wait(&format!("{what}: {reason}"), || {
            counts(&end, reason) > before
        });
        assert!(end.port.warning().unwrap().contains(reason), "{what}");
        let mut rest = Vec::new();
        let _ = peer.0.read_to_end(&mut rest); // it is closed, or reset
    }
    // Half a message, and gone.
    Peer::new(&path).0.write_all(&[1, 0, 0, 0, 1]).unwrap();
    let peer = Peer::new(&path);
    let _memory = peer.set_up();
    end.wait_up();
    end.finish();
}

/// What a driver writes to a ring: the violation, and that the port goes on.
#[test]
fn a_peer_whose_rings_break_the_rules_is_disconnected() {
    let folder = Scratch::new();
    let path = folder.path().join("s");
    let mut end = End::new(&format!("vhost:{}", path.display()), 1);
    // The receive queue's ring 1 is at 0x10000: table, available ring at +0x1000, used at +0x2000.
    let table = 0x1_0000;
    let available = 0x1_1000;
    let descriptor = |at: u64, len: u32, flags: u16, next: u16| {
        let mut bytes = at.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        bytes
    };
    let cases: [(&str, Vec<u8>, u16, u16); 7] = [
        ("ring_index", descriptor(0, 64, 0, 0), 0, 65),
        ("descriptor_index", descriptor(0, 64, 0, 0), 64, 1),
        (
            "descriptor_outside",
            descriptor(REGION - 63, 64, 0, 0),
            0,
            1,
        ),
        (
            "descriptor_outside",
            descriptor(u64::MAX - 3, 64, 0, 0),
            0,
            1,
        ),
        ("descriptor_flags", descriptor(0, 64, 2, 0), 0, 1),
        ("chain_too_long", descriptor(0, 64, 1, 0), 0, 1),
        ("descriptor_index", descriptor(0, 64, 1, 999), 0, 1),
    ];
    for (reason, bytes, head, index) in cases {
        let peer = Peer::new(&path);
        let file = peer.set_up();
        end.wait_up();
        poke(&file, table, &bytes);
        poke(&file, available + 4, &head.to_le_bytes());
        poke(&file, available + 2, &index.to_le_bytes());
        let counted = |end: &End| end.port.stats().violations;
        let before = counted(&end);
        wait(&format!("{reason} of {head}, {index}"), || {
            let mut burst = linerate_core::packet::Burst::new();
            assert_eq!(end.queues.rx[0].rx_burst(&mut burst, &mut end.cache), 0);
            counted(&end) != before
        });
        let after = counted(&end);
        let of = |all: &[(&str, u64)]| {
            all.iter()
                .find(|(name, _)| *name == reason)
                .map_or(0, |&(_, count)| count)
        };
        assert_eq!(of(&after), of(&before) + 1, "{reason}: {after:?}");
        end.wait_down();
    }
    end.finish();
}

/// Regions come and go, and the table is replaced, while both workers are busy; a file that
/// shrinks ends the connection only.
#[test]
fn memory_changes_under_load() {
    let folder = Scratch::new();
    let path = folder.path().join("s");
    let mut end = End::new(&format!("vhost:{}", path.display()), 1);
    let mut peer = Peer::new(&path);
    let file = peer.set_up();
    end.wait_up();
    // 64 buffers for what is sent, and as many frames to receive, again and again.
    for index in 0..64_u64 {
        for (ring, flags) in [(0, 2_u16), (0x1_0000, 0)] {
            let mut bytes = (0x4_0000 + ring * 2 + index * 2048).to_le_bytes().to_vec();
            bytes.extend(1500_u32.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend([0; 2]);
            poke(&file, ring + index * 16, &bytes);
            poke(
                &file,
                ring + 0x1000 + 4 + index * 2,
                &(index as u16).to_le_bytes(),
            );
        }
    }
    let mut received = 0;
    for round in 0..200_u16 {
        // One buffer more to send into, 16 frames more to receive.
        poke(&file, 0x1002, &(round + 1).to_le_bytes());
        poke(&file, 0x1_1002, &((round + 1) * 16).to_le_bytes());
        match round % 3 {
            0 => peer.send(SET_MEM_TABLE, &[1, 0, REGION, 0, 0], &[file.as_fd()]),
            1 => {
                let other = memory(REGION);
                let words = [0, REGION, REGION, REGION, 0];
                // As QEMU does: each message for each pair of queues.
                for _ in 0..2 {
                    peer.send(ADD_MEM_REG, &words, &[other.as_fd()]);
                }
                for _ in 0..2 {
                    peer.send(REM_MEM_REG, &words, &[]);
                }
            }
            _ => {
                // Stopped and started again where it was.
                let base = peer.ask(GET_VRING_BASE, &[1]).unwrap();
                peer.send(SET_VRING_BASE, &[base], &[]);
                peer.send(SET_VRING_KICK, &[1], &[eventfd().as_fd()]);
            }
        }
        let mut burst = linerate_core::packet::Burst::new();
        let sent = end.cache.copy_of(&crate::frame(round.into(), 60)).unwrap();
        burst.push(sent).unwrap();
        end.queues.tx[0].tx_burst(&mut burst, &mut end.cache);
        end.cache.free(&mut burst);
        wait(&format!("16 frames in round {round}"), || {
            received += end.queues.rx[0].rx_burst(&mut burst, &mut end.cache);
            end.cache.free(&mut burst);
            received >= (usize::from(round) + 1) * 16
        });
    }
    assert_eq!(received, 200 * 16, "each once");
    assert_eq!(end.port.stats().violations, []);
    rustix::fs::ftruncate(&file, 4096).unwrap();
    let reason = std::cell::RefCell::new(String::new());
    wait("the end of the connection", || {
        let mut burst = linerate_core::packet::Burst::new();
        end.queues.rx[0].rx_burst(&mut burst, &mut end.cache);
        end.cache.free(&mut burst);
        match end.port.link() {
            linerate_core::port::Link::Up => false,
            linerate_core::port::Link::Down(why) => {
                reason.replace(why);
                true
            }
        }
    });
    assert!(
        !end.port.stats().violations.is_empty(),
        "{}",
        reason.borrow()
    );
    end.finish();
}
