//! The advertised window.

use linerate_testkit::Random;

use super::super::Window;

const MSS: u32 = 1448;

#[test]
fn rfc_9293_3_8_6_2_2_the_window_stays_until_it_can_grow_by_a_segment() {
    let (buffer, next) = (65_535, 1000);
    let mut window = Window::new(next, 0);
    assert_eq!(window.offer(next, buffer, buffer, MSS), 65_535);
    // 10,000 bytes come and are not read.
    let next = next + 10_000;
    assert_eq!(window.offer(next, buffer - 10_000, buffer, MSS), 55_535);
    // 1447 are read: not yet. One more: now.
    assert_eq!(
        window.offer(next, buffer - 10_000 + 1447, buffer, MSS),
        55_535
    );
    assert_eq!(
        window.offer(next, buffer - 10_000 + 1448, buffer, MSS),
        56_983
    );
}

#[test]
fn rfc_1122_4_2_3_3_half_a_small_buffer_is_enough() {
    let mut window = Window::new(0, 0);
    assert_eq!(window.offer(0, 1000, 1000, MSS), 1000);
    assert_eq!(window.offer(1000, 499, 1000, MSS), 0);
    assert_eq!(window.offer(1000, 500, 1000, MSS), 500);
}

#[test]
fn rfc_9293_3_8_6_the_right_edge_never_moves_back() {
    let mut window = Window::new(0, 0);
    window.offer(0, 50_000, 50_000, MSS);
    // The buffer shrinks.
    assert_eq!(window.offer(10_000, 10, 100, MSS), 40_000);
    assert_eq!(window.edge(), 50_000);
    // More came than the window had.
    assert_eq!(window.offer(60_000, 0, 100, MSS), 0);
    assert_eq!(window.edge(), 60_000);
}

#[test]
fn rfc_7323_2_2_a_syn_is_not_scaled() {
    let mut window = Window::new(0, 7);
    assert_eq!(window.offer_syn(0, 1_000_000), 65_535);
    assert_eq!(window.edge(), 65_535);
    assert_eq!(window.offer(0, 1_000_000, 1_000_000, MSS), 7812);
    assert_eq!(window.edge(), 7812 << 7);
}

#[test]
fn rfc_7323_2_3_the_scale_is_at_most_14() {
    assert_eq!(Window::new(0, 200).scale(), 14);
    let scales = [0, 65_535, 65_536, 131_072, 6 << 20, 1 << 30, u32::MAX].map(Window::scale_for);
    assert_eq!(scales, [0, 0, 1, 2, 7, 14, 14]);
    for (buffer, scale) in [(65_536, 1), (6 << 20, 7), (1 << 30, 14)] {
        // Within one step of it.
        let mut window = Window::new(0, scale);
        let said = u32::from(window.offer(0, buffer, buffer, MSS)) << scale;
        assert!(buffer - said <= 1 << scale);
    }
}

#[test]
fn a_step_larger_than_the_buffer_does_not_close_the_window() {
    let mut window = Window::new(0, 14);
    assert_eq!(window.offer(0, 8192, 8192, MSS), 1);
    assert_eq!(window.edge(), 1 << 14);
}

#[test]
fn an_update_is_due_when_it_doubles_the_window() {
    let mut window = Window::new(0, 0);
    window.offer(0, 65_535, 65_535, MSS);
    // All of it is used: one segment opens it.
    assert!(!window.is_update_due(65_535, 1447, 65_535, MSS));
    assert!(window.is_update_due(65_535, 1448, 65_535, MSS));
    // A quarter is left: as much again.
    assert!(!window.is_update_due(49_151, 32_767, 65_535, MSS));
    assert!(window.is_update_due(49_151, 32_768, 65_535, MSS));
    // More than half is left: the peer goes on, whatever was read.
    assert!(window.is_update_due(32_768, 65_535, 65_535, MSS));
    assert!(!window.is_update_due(32_767, 65_535, 65_535, MSS));
}

#[test]
fn any_reader_sees_a_window_that_never_shrinks_and_is_never_silly() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let scale = random.below(15) as u8;
        let buffer = random.within(1000..=(2 << 20)) as u32;
        let mss = random.within(100..=9000) as u32;
        let mut next = random.bits() as u32;
        let mut window = Window::new(next, scale);
        let mut kept = 0;
        for _ in 0..500 {
            let before = window.edge();
            let free = buffer - kept;
            let due = window.is_update_due(next, free, buffer, mss);
            let field = u32::from(window.offer(next, free, buffer, mss));
            let moved = window.edge().wrapping_sub(before);
            let least = (buffer / 2).min(mss);
            let (step, what) = (1 << scale, format!("seed {seed}: {window:?}"));
            assert_eq!(window.bytes(next), field << scale, "{what}");
            // Where it does not grow, it may be rounded up.
            assert!(moved >= least || moved < step, "{what}");
            assert!(!due || moved >= least, "{what}");
            assert!(window.bytes(next) < free.max(least) + step + step, "{what}");
            let came = random.below(window.bytes(next).min(buffer - kept) + 1);
            (next, kept) = (next.wrapping_add(came), kept + came);
            kept -= random.below(kept + 1);
        }
    }
}
