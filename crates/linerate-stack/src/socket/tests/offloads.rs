//! Ports that take unsegmented frames, and stacks that have slots for them, or have not.

use super::*;

/// Bytes of a transfer.
const TOTAL: usize = 1_000_000;

/// A pair whose first end has a port with offloads, and so many slots of 64 KiB.
fn pair(large: u32) -> Pair {
    let mut pair = Pair::new();
    pair.ends[0] = Station::with_port(1, &small(), large, true);
    pair
}

/// Bytes go from the first end to the second until all are there, `between` being called in each
/// round. Returns the length of the longest frame.
fn transfer(pair: &mut Pair, v6: bool, mut between: impl FnMut(&mut Pair)) -> usize {
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let longest = Arc::new(Mutex::new(0));
    let seen = longest.clone();
    pair.loses = Box::new(move |frame| {
        let mut longest = seen.lock().unwrap();
        *longest = frame.len().max(*longest);
        false
    });
    let (client, server) = pair.open(listener, v6, 80);
    let byte = |at: usize| (at % 251) as u8;
    let (mut sent, mut got, mut room) = (0, 0, vec![0; TOTAL]);
    while got < TOTAL {
        assert!(pair.now_ns < 1000 * S, "{sent} sent, {got} have come");
        let now_ns = pair.now_ns;
        let bytes: Vec<u8> = (sent..TOTAL.min(sent + 200_000)).map(byte).collect();
        if let Ok(count) = pair.ends[0].io(now_ns).write(client, &bytes) {
            sent += count;
        }
        pair.pass(5 * MS);
        let now_ns = pair.now_ns;
        if let Ok(count) = pair.ends[1].io(now_ns).read(server, &mut room) {
            assert!(
                (got..)
                    .zip(&room[..count])
                    .all(|(at, had)| byte(at) == *had)
            );
            got += count;
        }
        between(pair);
    }
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).abort(client);
    pair.ends[1].io(now_ns).abort(server);
    pair.calm();
    pair.ends.iter_mut().for_each(Station::check_slots);
    *longest.lock().unwrap()
}

#[test]
fn long_frames_leave_where_there_are_slots_for_them() {
    for v6 in [false, true] {
        assert!(transfer(&mut pair(16), v6, |_| {}) > 20_000);
    }
}

#[test]
fn without_large_slots_segments_leave_one_by_one() {
    for v6 in [false, true] {
        let mut pair = pair(0);
        assert!(transfer(&mut pair, v6, |_| {}) <= 1514);
        assert_eq!(pair.ends[0].stack.tcp_stats().no_slots, 0);
    }
}

/// All large slots are somewhere else, now and then, and retransmissions are needed as well.
#[test]
fn while_large_slots_are_used_up_segments_leave_one_by_one() {
    for v6 in [false, true] {
        let mut pair = pair(4);
        let (mut taken, mut round) = (Vec::new(), 0);
        let longest = transfer(&mut pair, v6, |pair| {
            round += 1;
            let out = &mut pair.ends[0].out;
            match round % 4 {
                1 => taken.extend(std::iter::from_fn(|| out.cache.get_for(60_000))),
                3 => taken
                    .drain(..)
                    .for_each(|packet| out.cache.free_one(packet)),
                _ => {}
            }
            if round % 6 == 2 {
                // What is under way is lost.
                for end in &mut pair.ends {
                    end.out.flush();
                    end.line.lock().unwrap().clear();
                }
            }
            if pair.ends[1].stack.tcp_stats().bytes_in >= TOTAL as u64 {
                let out = &mut pair.ends[0].out;
                taken
                    .drain(..)
                    .for_each(|packet| out.cache.free_one(packet));
            }
        });
        assert!(longest > 20_000);
        assert!(taken.is_empty());
    }
}
