//! The examples of RFC 9937, its properties (section 7), and receivers without SACK.
#![allow(clippy::unwrap_used)]

use linerate_testkit::Random;

use super::*;

/// A sender in segments of one byte with a threshold of 10, 22 outstanding: 20, and two by limited
/// transmit. The third SACK starts the episode.
struct Example {
    prr: Prr,
    in_flight: u32,
}

impl Example {
    fn new(lost: u32) -> Self {
        let flight = Flight {
            outstanding: 22,
            sacked: 3,
            newly_sacked: 1,
            newly_acked: 0,
        };
        Self {
            prr: Prr::start(flight),
            // The ACK that starts it is counted by the first call.
            in_flight: 22 - 3 - lost + 1,
        }
    }

    /// An ACK that SACKs a segment. Returns the window, what is in flight, and what is sent.
    fn sack(&mut self) -> (u32, u32, u32) {
        self.in_flight -= 1;
        let before = self.in_flight;
        let cwnd = self.prr.on_ack(1, before, 10, 1, false).unwrap();
        let sent = cwnd - before;
        self.prr.on_sent(sent);
        self.in_flight += sent;
        (cwnd, before, sent)
    }
}

/// RFC 9937 8 figure 1, from the ACK of segment 3 on.
///
/// The figure has a window of 11 at the ACK of 19, and sends then; by the algorithm of 6.2, 10 in
/// flight are no more than the threshold, so nothing is sent until the next ACK.
#[test]
fn rfc9937_8_figure_1_a_single_loss() {
    let mut example = Example::new(1);
    let rows: Vec<_> = (3..=21).map(|_| example.sack()).collect();
    let cwnd: Vec<_> = rows.iter().map(|row| row.0).collect();
    let sent: Vec<_> = rows.iter().map(|row| row.2).collect();
    assert_eq!(
        cwnd,
        [
            19, 18, 18, 17, 17, 16, 16, 15, 15, 14, 14, 13, 13, 12, 12, 11, 10, 10, 10
        ]
    );
    assert_eq!(
        sent,
        [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1]
    );
    // The retransmission, and 9 new segments: as the figure has it.
    assert_eq!((sent.iter().sum::<u32>(), example.in_flight), (10, 10));
}

/// RFC 9937 8 figure 2: 15 of 20 are lost; as much is sent as is delivered.
#[test]
fn rfc9937_8_figure_2_a_burst_of_losses() {
    let mut example = Example::new(15);
    let rows: Vec<_> = (17..=19).map(|_| example.sack()).collect();
    assert_eq!(rows, [(5, 4, 1); 3]);
}

/// The ACKs of the retransmissions advance SND.UNA: a segment more for each (PRR-SSRB), up to the
/// threshold.
#[test]
fn rfc9937_6_2_safe_acks_grow_by_a_segment_each() {
    let mut prr = Prr::start(Flight {
        outstanding: 20,
        ..Flight::default()
    });
    let mut in_flight = 4;
    let mut sent = Vec::new();
    while in_flight < 10 {
        let cwnd = prr.on_ack(1, in_flight - 1, 10, 1, true).unwrap();
        sent.push(cwnd + 1 - in_flight);
        prr.on_sent(cwnd + 1 - in_flight);
        in_flight = cwnd;
    }
    assert_eq!(sent, [2; 6]);
    assert_eq!(prr.on_ack(1, 10, 10, 1, true), Some(10));
}

#[test]
fn rfc9937_6_2_the_first_transmission_is_never_refused() {
    let flight = Flight {
        outstanding: 100,
        ..Flight::default()
    };
    // By an ACK, with as much in flight as there may be.
    let mut prr = Prr::start(flight);
    assert_eq!(prr.on_ack(1, 50, 50, 1, false), Some(51));
    // By a timer, without an ACK (RFC 8985 6.2 step 5).
    let mut prr = Prr::start(flight);
    assert_eq!(prr.on_ack(0, 99, 50, 1, false), Some(100));
    prr.on_sent(1);
    assert_eq!(prr.on_ack(0, 99, 50, 1, false), None);
}

#[test]
fn rfc9937_6_1_what_was_sacked_before_is_not_delivered_again() {
    // 60 of 100 SACKed before, so 40 are to be delivered: each 4 of them release 3.
    let mut prr = Prr::start(Flight {
        outstanding: 100,
        sacked: 62,
        newly_sacked: 2,
        newly_acked: 0,
    });
    let cwnd = prr.on_ack(4, 36, 30, 1, false).unwrap();
    assert_eq!(cwnd - 36, 3);
}

/// RFC 9937 7: with few losses, what is in flight at the end is the threshold, and it was reached
/// evenly; with PRR-CRB never more is sent than was delivered.
#[test]
fn rfc9937_7_the_flight_ends_at_the_threshold() {
    const MSS: u32 = 1000;
    let mut random = Random::new(9937);
    for case in 0..2000 {
        let count = random.below(400_u32) + 10;
        let ssthresh = count * (random.below(5_u32) + 4) / 10 * MSS;
        let is_safe = random.one_in(2);
        let losses = random.below(count - 3) + 1;
        let outstanding = count * MSS;
        let mut prr = Prr::start(Flight {
            outstanding,
            sacked: MSS,
            newly_sacked: MSS,
            newly_acked: 0,
        });
        let mut in_flight = (count - losses) * MSS;
        let (mut delivered, mut sent) = (0, 0);
        for _ in 0..count - losses {
            in_flight -= MSS;
            let cwnd = prr.on_ack(MSS, in_flight, ssthresh, MSS, is_safe).unwrap();
            delivered += MSS;
            let what = format!("seed 9937, case {case}: {cwnd} at {in_flight} of {ssthresh}");
            assert!(cwnd <= (in_flight + MSS * 2).max(ssthresh), "{what}");
            // Whole segments are sent.
            let out = (cwnd - in_flight) / MSS * MSS;
            prr.on_sent(out);
            (sent, in_flight) = (sent + out, in_flight + out);
            assert!(
                is_safe || sent <= delivered.max(MSS),
                "{what}: conservation"
            );
        }
        let what = format!("seed 9937, case {case}: {in_flight} of {ssthresh}, {losses} lost");
        assert!(in_flight <= ssthresh + MSS, "{what}");
        let voluntary = outstanding - ssthresh;
        if losses * MSS < voluntary {
            assert!(in_flight + 2 * MSS >= ssthresh, "{what}");
        }
    }
}

#[test]
fn rfc9937_6_2_without_sack_duplicates_count_a_segment_each() {
    let mut prr = Prr::start(Flight {
        outstanding: 10,
        ..Flight::default()
    });
    for _ in 0..6 {
        let delivered = prr.delivered_without_sack(0, 1);
        assert_eq!(delivered, 1);
        let _ = prr.on_ack(delivered, 9, 5, 1, false);
    }
    assert_eq!(prr.by_duplicates_bytes(), 6);
    // A partial ACK for 4 that the duplicates have counted, and one for more.
    assert_eq!(prr.delivered_without_sack(4, 1), 0);
    assert_eq!(prr.delivered_without_sack(3, 1), 1);
    assert_eq!(prr.by_duplicates_bytes(), 0);
}

/// Savage et al.: duplicates for nothing release no more than was outstanding.
#[test]
fn rfc9937_6_2_duplicates_for_nothing_are_bounded() {
    let mut prr = Prr::start(Flight {
        outstanding: 10,
        ..Flight::default()
    });
    let mut sent = 0;
    for _ in 0..1000 {
        let delivered = prr.delivered_without_sack(0, 1);
        if let Some(cwnd) = prr.on_ack(delivered, 9, 5, 1, false) {
            prr.on_sent(cwnd - 9);
            sent += cwnd - 9;
        }
    }
    assert_eq!(sent, 5);
}

#[test]
fn numbers_of_any_size_do_not_overflow() {
    let mut random = Random::new(1);
    for _ in 0..100_000 {
        let mut any = || random.bits() as u32 >> random.below(32_u32);
        let flight = Flight {
            outstanding: any(),
            sacked: any(),
            newly_sacked: any(),
            newly_acked: any(),
        };
        let mut prr = Prr::start(flight);
        for _ in 0..4 {
            let (delivered, in_flight) = (any(), any());
            let _ = prr.on_ack(
                delivered,
                in_flight,
                any(),
                any() & 0xffff,
                delivered & 1 == 0,
            );
            prr.on_sent(any());
            let _ = prr.delivered_without_sack(any(), any() & 0xffff);
        }
    }
}
