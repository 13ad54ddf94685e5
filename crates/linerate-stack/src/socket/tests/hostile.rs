//! Peers and strangers that lie: memory and work stay bounded, and other connections go on.

use linerate_testkit::Random;
use linerate_wire::protocol;
use linerate_wire::tcp::flag;

use super::forge::{self, tap};
use super::*;
use crate::tcp::segment::{Header, Sacks};

const CLIENT: [u8; 4] = [192, 0, 2, 1];
pub(super) const SERVER: [u8; 4] = [192, 0, 2, 2];

fn byte(at: usize) -> u8 {
    (at % 253) as u8
}

/// Without time stamps, which somebody who sees nothing would have to guess as well.
pub(super) fn plain() -> StackConfig {
    let mut config = small();
    config.tcp.timestamps = false;
    config
}

/// A connection of the two ends, and what a stranger would have to know of it.
struct Scene {
    pair: Pair,
    listener: ListenerId,
    client: SocketId,
    server: SocketId,
    ports: (u16, u16),
    /// The next number of the client, and of the server.
    seq: u32,
    ack: u32,
    stamps: Option<(u32, u32)>,
    /// Bytes that have gone each way.
    moved: [usize; 2],
}

impl Scene {
    fn new(config: &StackConfig) -> Self {
        let mut pair = Pair::with(config, config);
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        let all = tap(&mut pair);
        let (client, server) = pair.open(listener, false, 80);
        let last = all.lock().unwrap().last().unwrap().clone();
        assert_eq!(last.src, CLIENT);
        pair.loses = Box::new(|_| false);
        Self {
            pair,
            listener,
            client,
            server,
            ports: last.ports,
            seq: last.segment.seq,
            ack: last.segment.ack,
            stamps: last.segment.timestamps,
            moved: [0; 2],
        }
    }

    fn header(&self, flags: u8, seq: u32, ack: u32) -> Header {
        Header {
            seq: self.seq.wrapping_add(seq),
            ack: self.ack.wrapping_add(ack),
            flags,
            window: 60_000,
            timestamps: self.stamps,
            ..Header::default()
        }
    }

    /// A frame that says that it is of the client; numbers count from the next ones.
    fn frame(&self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let bytes = forge::segment((CLIENT, SERVER), self.ports, header, payload);
        forge::packet(CLIENT, SERVER, protocol::TCP, &[], &bytes)
    }

    fn inject(&mut self, frames: &[Vec<u8>]) {
        self.pair.ends[1].receive(frames, self.pair.now_ns);
    }

    /// `count` bytes from an end to the other; each has to be what was written.
    fn transfer(&mut self, from: usize, count: usize) {
        let ids = [self.client, self.server];
        let total = self.moved[from] + count;
        let (mut sent, mut got) = (self.moved[from], self.moved[from]);
        let until = self.pair.now_ns + 300 * S;
        let mut buffer = vec![0; 1 << 16];
        while got < total {
            let now_ns = self.pair.now_ns;
            assert!(now_ns < until, "{got} of {total}");
            if sent < total {
                let bytes: Vec<_> = (sent..total.min(sent + 16_000)).map(byte).collect();
                let written = self.pair.ends[from].io(now_ns).write(ids[from], &bytes);
                sent += written.unwrap_or(0);
            }
            self.pair.pass(5 * MS);
            let now_ns = self.pair.now_ns;
            let mut io = self.pair.ends[1 - from].io(now_ns);
            while let Ok(count @ 1..) = io.read(ids[1 - from], &mut buffer) {
                for &found in &buffer[..count] {
                    assert_eq!(found, byte(got));
                    got += 1;
                }
            }
        }
        self.moved[from] = total;
    }

    /// Both ways, then both ends close, and everything is home.
    fn goes_on(mut self) {
        let now_ns = self.pair.now_ns;
        let state = self.pair.ends[1]
            .io(now_ns)
            .info(self.server)
            .unwrap()
            .state;
        assert_eq!(state, State::Established);
        self.transfer(0, 100_000);
        self.transfer(1, 100_000);
        for (end, id) in [(0, self.client), (1, self.server)] {
            let now_ns = self.pair.now_ns;
            self.pair.ends[end].io(now_ns).close(id);
            self.pair.calm();
        }
        self.pair.pass(200 * S);
        for end in &mut self.pair.ends {
            assert_eq!((end.stack.connections(), end.stack.lingering()), (0, 0));
            is_home(end);
        }
    }
}

/// Nothing of any connection is left.
pub(super) fn is_home(end: &mut Station) {
    end.check_slots();
    let shared = &end.stack.shared;
    let left = (
        shared.records.used(),
        shared.chunks.in_use(),
        shared.pieces.charged_slots(),
    );
    assert_eq!(left, (0, 0, 0));
}

#[test]
fn floods_of_every_flag_leave_a_connection_alone() {
    let mut scene = Scene::new(&plain());
    let mut random = Random::new(1);
    for flags in [
        flag::SYN,
        flag::ACK,
        flag::FIN,
        flag::RST,
        flag::FIN | flag::ACK,
        0xff,
        0,
    ] {
        let frames: Vec<_> = (0..3000)
            .map(|_| {
                let (seq, ack) = (random.below(u32::MAX), random.below(u32::MAX));
                // Nothing of the connection: far from its window.
                let header = scene.header(flags, seq | 1 << 30, ack | 1 << 30);
                scene.frame(&header, &[0; 20])
            })
            .collect();
        scene.inject(&frames);
        scene.pair.calm();
        scene.pair.pass(2 * S);
    }
    assert_eq!(scene.pair.ends[1].stack.connections(), 1);
    scene.goes_on();
}

#[test]
fn rfc_5961_3_and_4_blind_resets_and_syns_in_the_window_end_nothing() {
    for config in [plain(), small()] {
        let mut scene = Scene::new(&config);
        let before = scene.pair.ends[1].stack.tcp_stats().challenges;
        let mut random = Random::new(2);
        for flags in [
            flag::RST,
            flag::RST | flag::ACK,
            flag::SYN,
            flag::SYN | flag::ACK,
        ] {
            let frames: Vec<_> = (0..2000)
                .map(|_| {
                    let seq = 1 + random.below(60_000) as u32;
                    let ack = random.below(u32::MAX);
                    scene.frame(&scene.header(flags, seq, ack), &[])
                })
                .collect();
            scene.inject(&frames);
            scene.pair.calm();
        }
        let challenges = scene.pair.ends[1].stack.tcp_stats().challenges - before;
        // RFC 5961 7: 8000 of them in no time get an answer or two.
        assert!((1..=4).contains(&challenges), "{challenges}");
        scene.goes_on();
    }
}

#[test]
fn rfc_5961_5_blind_data_in_the_window_is_not_taken() {
    let mut scene = Scene::new(&plain());
    let frames: Vec<_> = (0..2000_u32)
        .map(|number| {
            // Acknowledgments are guessed, all over the space of numbers, but where one is right.
            let ack = (1 << 20) + number * ((u32::MAX >> 11) - 1030);
            scene.frame(&scene.header(flag::ACK, number * 20, ack), b"forged")
        })
        .collect();
    scene.inject(&frames);
    scene.pair.calm();
    let now_ns = scene.pair.now_ns;
    assert_eq!(scene.pair.ends[1].io(now_ns).readable(scene.server), 0);
    assert_eq!(scene.pair.ends[1].stack.shared.pieces.charged_slots(), 0);
    scene.goes_on();
}

#[test]
fn acks_that_are_impossible_or_duplicates_change_nothing() {
    let mut scene = Scene::new(&plain());
    let now_ns = scene.pair.now_ns;
    let bytes: Vec<_> = (0..10_000).map(byte).collect();
    let written = scene.pair.ends[1].io(now_ns).write(scene.server, &bytes);
    assert_eq!(written, Ok(10_000));
    let before = scene.pair.ends[1].io(now_ns).info(scene.server).unwrap();
    // Optimistic: of what was never sent. Impossible: of long ago.
    let frames: Vec<_> = (0..2000_u32)
        .map(|number| {
            let ack = match number % 2 {
                0 => 10_001 + number * 100_000,
                _ => 0_u32.wrapping_sub((1 << 24) + number * 1000),
            };
            scene.frame(&scene.header(flag::ACK, 0, ack), &[])
        })
        .collect();
    scene.inject(&frames);
    let now_ns = scene.pair.now_ns;
    let after = scene.pair.ends[1].io(now_ns).info(scene.server).unwrap();
    assert_eq!(
        (after.unacked_bytes, after.cwnd_bytes),
        (10_000, before.cwnd_bytes)
    );
    assert_eq!(scene.pair.ends[1].stack.tcp_stats().acks_of_nothing, 1000);
    // Duplicates, thousands of them: at most what was sent goes again, once.
    let duplicate = scene.frame(&scene.header(flag::ACK, 0, 0), &[]);
    scene.inject(&vec![duplicate; 3000]);
    let again = scene.pair.ends[1].stack.tcp_stats().retransmitted;
    assert!(again <= 10, "{again}");
    scene.pair.pass(2 * S);
    let mut room = vec![0; 20_000];
    let now_ns = scene.pair.now_ns;
    let read = scene.pair.ends[0].io(now_ns).read(scene.client, &mut room);
    assert_eq!((read, &room[..10_000]), (Ok(10_000), &bytes[..]));
    scene.moved[1] = 10_000;
    scene.goes_on();
}

#[test]
fn rfc_5681_3_1_an_ack_that_is_split_opens_the_window_no_faster() {
    // RFC 3465: the window grows by the bytes, so it does not matter in how many ACKs they come.
    let windows = [1, 100].map(|parts| {
        let mut scene = Scene::new(&plain());
        let now_ns = scene.pair.now_ns;
        let mut io = scene.pair.ends[1].io(now_ns);
        io.write(scene.server, &[7; 100_000]).unwrap();
        let frames: Vec<_> = (1..=parts)
            .map(|part| scene.frame(&scene.header(flag::ACK, 0, 8000 / parts * part), &[]))
            .collect();
        scene.inject(&frames);
        scene.pair.ends[1]
            .io(now_ns)
            .info(scene.server)
            .unwrap()
            .cwnd_bytes
    });
    assert_eq!(windows[0], windows[1]);
}

#[test]
fn sacks_that_lie_are_counted_and_cost_nothing() {
    let mut scene = Scene::new(&plain());
    let now_ns = scene.pair.now_ns;
    let bytes: Vec<_> = (0..14_000).map(byte).collect();
    scene.pair.ends[1]
        .io(now_ns)
        .write(scene.server, &bytes)
        .unwrap();
    let mut random = Random::new(3);
    let frames: Vec<_> = (0..1000)
        .map(|number| {
            let mut header = scene.header(flag::ACK, 0, 0);
            header.sacks = Sacks::NONE;
            for _ in 0..4 {
                let at = random.below(u32::MAX) | 1 << 29;
                let (left, right) = match number % 4 {
                    0 => (at, at.wrapping_add(random.below(100_000) as u32)), // never sent
                    1 => (10_000, 5000),                                      // the wrong way round
                    2 => (0_u32.wrapping_sub(1 << 28), 14_000),               // of all there is
                    _ => (5000, 5000),                                        // empty
                };
                let abs = |at: u32| scene.ack.wrapping_add(at);
                header.sacks.push((abs(left), abs(right)));
            }
            scene.frame(&header, &[])
        })
        .collect();
    scene.inject(&frames);
    let info = scene.pair.ends[1].io(now_ns).info(scene.server).unwrap();
    assert_eq!((info.sacked_bytes, info.unacked_bytes), (0, 14_000));
    assert!(scene.pair.ends[1].stack.tcp_stats().bad_sacks > 0);
    // Nor does one that tells of single bytes make more records than a few for each segment.
    for at in 0..2000 {
        let mut header = scene.header(flag::ACK, 0, 0);
        let left = scene.ack.wrapping_add(1 + at * 6);
        header.sacks.push((left, left.wrapping_add(1)));
        let frame = scene.frame(&header, &[]);
        scene.inject(&[frame]);
    }
    let used = scene.pair.ends[1].stack.shared.records.used();
    assert!(used <= 2 * 14_000 / 1448, "{used}");
    scene.pair.pass(10 * S);
    let mut room = vec![0; 20_000];
    let now_ns = scene.pair.now_ns;
    let read = scene.pair.ends[0].io(now_ns).read(scene.client, &mut room);
    assert_eq!((read, &room[..14_000]), (Ok(14_000), &bytes[..]));
    scene.moved[1] = 14_000;
    scene.goes_on();
}

#[test]
fn overlaps_with_other_bytes_keep_the_first() {
    let mut scene = Scene::new(&plain());
    let piece = |seq: u32, bytes: &[u8]| scene.frame(&scene.header(flag::ACK, seq, 0), bytes);
    let frames = [
        piece(2, b"AAAA"),
        piece(8, b"CC"),
        piece(0, b"BBBBBBBBBBBB"),
        piece(0, b"DDDD"),
    ];
    scene.inject(&frames);
    let mut room = [0; 20];
    let now_ns = scene.pair.now_ns;
    let read = scene.pair.ends[1].io(now_ns).read(scene.server, &mut room);
    assert_eq!((read, &room[..12]), (Ok(12), &b"BBAAAABBCCBB"[..]));
}

#[test]
fn segments_of_a_byte_take_bounded_room() {
    let mut scene = Scene::new(&plain());
    // Every second byte: as many holes as can be.
    let frames: Vec<_> = (0..20_000_u32)
        .map(|number| scene.frame(&scene.header(flag::ACK, 1 + 2 * number, 0), b"x"))
        .collect();
    scene.inject(&frames);
    let pieces = &scene.pair.ends[1].stack.shared.pieces;
    assert!(
        pieces.charged_bytes()
            <= u64::from(scene.pair.ends[1].stack.shared.config.receive_bytes_max)
    );
    assert!(
        u64::from(pieces.charged_slots()) < 1000,
        "{}",
        pieces.charged_slots()
    );
    // A second connection has its room.
    let (client, server) = scene.pair.open(scene.listener, false, 80);
    let now_ns = scene.pair.now_ns;
    scene.pair.ends[0]
        .io(now_ns)
        .write(client, &[1; 50_000])
        .unwrap();
    scene.pair.pass(S);
    let now_ns = scene.pair.now_ns;
    assert_eq!(scene.pair.ends[1].io(now_ns).readable(server), 50_000);
    for (end, id) in [(0, client), (1, server), (1, scene.server)] {
        scene.pair.ends[end].io(now_ns).abort(id);
    }
    scene.pair.calm();
    is_home(&mut scene.pair.ends[1]);
}

#[test]
fn rfc_7323_5_time_stamps_that_jump_or_vanish() {
    let mut scene = Scene::new(&small());
    let (value, echo) = scene.stamps.unwrap();
    let frames: Vec<_> = (1..=1000_u32)
        .map(|number| {
            let header = Header {
                timestamps: Some((value.wrapping_sub(number * 2_000_000), echo)),
                ..scene.header(flag::ACK, 0, 0)
            };
            scene.frame(&header, b"forged")
        })
        .collect();
    // 5.3: back, by a little or by weeks.
    scene.inject(&frames);
    scene.pair.calm();
    let now_ns = scene.pair.now_ns;
    assert_eq!(scene.pair.ends[1].io(now_ns).readable(scene.server), 0);
    assert_eq!(scene.pair.ends[1].stack.tcp_stats().too_old, 1000);
    scene.transfer(0, 50_000);
    scene.transfer(1, 50_000);
    // Without them a segment counts as in a connection that has none, as in Linux (3.2 has a
    // SHOULD): it has to have the right numbers.
    for (seq, taken) in [(70_000_000, 0), (50_000, 6)] {
        let header = Header {
            timestamps: None,
            ..scene.header(flag::ACK, seq, 50_000)
        };
        let frame = scene.frame(&header, b"plain!");
        scene.inject(&[frame]);
        let now_ns = scene.pair.now_ns;
        assert_eq!(scene.pair.ends[1].io(now_ns).readable(scene.server), taken);
    }
    let now_ns = scene.pair.now_ns;
    scene.pair.ends[1].io(now_ns).abort(scene.server);
    scene.pair.ends[0].io(now_ns).abort(scene.client);
    scene.pair.calm();
    is_home(&mut scene.pair.ends[1]);
}

#[test]
fn two_ends_that_disagree_do_not_answer_each_other_for_ever() {
    let mut scene = Scene::new(&plain());
    let all = tap(&mut scene.pair);
    // The server gets a byte that the client has never sent: from then on the client's numbers are
    // old to it, and its ACKs are of the future to the client.
    let frame = scene.frame(&scene.header(flag::ACK, 0, 0), b"x");
    scene.inject(&[frame]);
    scene.pair.pass(10 * S);
    let count = all.lock().unwrap().len();
    assert!(count < 60, "{count} segments in ten seconds");
    let now_ns = scene.pair.now_ns;
    scene.pair.ends[0]
        .io(now_ns)
        .write(scene.client, b"y")
        .unwrap();
    scene.pair.pass(10 * S);
    let count = all.lock().unwrap().len();
    assert!(count < 150, "{count} segments in twenty seconds");
}

#[test]
fn rfc_5927_7_forged_reports_of_a_small_path() {
    let mut scene = Scene::new(&plain());
    let now_ns = scene.pair.now_ns;
    let mss = scene.pair.ends[1]
        .io(now_ns)
        .info(scene.server)
        .unwrap()
        .mss;
    scene.pair.ends[1]
        .io(now_ns)
        .write(scene.server, &[7; 5000])
        .unwrap();
    scene.pair.ends[1].out.flush();
    let about = scene.pair.ends[1]
        .line
        .lock()
        .unwrap()
        .back()
        .unwrap()
        .clone();
    // The number that is quoted is a guess.
    let mut random = Random::new(4);
    let forged: Vec<_> = (0..1000)
        .map(|_| {
            let mut about = about.clone();
            let seq = scene
                .ack
                .wrapping_add(1 << 20)
                .wrapping_add(random.below(1 << 30) as u32);
            about[14 + 20 + 4..14 + 20 + 8].copy_from_slice(&seq.to_be_bytes());
            forge::error(forge::UNREACHABLE, 4, 600, &about)
        })
        .collect();
    scene.inject(&forged);
    let now_ns = scene.pair.now_ns;
    assert_eq!(
        scene.pair.ends[1]
            .io(now_ns)
            .info(scene.server)
            .unwrap()
            .mss,
        mss
    );
    assert_eq!(scene.pair.ends[1].stack.stats().errors_ignored, 1000);
    // One that is right, and absurd, makes segments as small as the least MTU that is believed.
    scene.inject(&[forge::error(forge::UNREACHABLE, 4, 68, &about)]);
    let small = scene.pair.ends[1]
        .io(now_ns)
        .info(scene.server)
        .unwrap()
        .mss;
    assert!((500..mss).contains(&small), "{small}");
    scene.pair.pass(2 * S);
    let mut room = vec![0; 10_000];
    let now_ns = scene.pair.now_ns;
    let read = scene.pair.ends[0].io(now_ns).read(scene.client, &mut room);
    assert_eq!(read, Ok(5000));
}
