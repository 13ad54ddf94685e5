//! The frames and the line: what is written is checked, and nothing is lost.

use super::frame::{FCS_BYTES, Label, Template};
use super::*;
use linerate_wire::ethernet::MacAddr;

const LABEL: Label = Label {
    sequence: 7,
    stamp: 1 << 40,
};

fn template(bytes: usize, whole: bool) -> Template {
    Template::new(bytes, MacAddr::local(1), MacAddr::local(2), whole)
}

#[test]
fn any_wrong_byte_of_a_frame_is_found() {
    for bytes in [64, 65, 71, 128, 1518] {
        let template = template(bytes, true);
        let mut frame = vec![0; template.len];
        template.write(&mut frame, LABEL);
        assert_eq!(frame.len(), bytes - FCS_BYTES);
        assert_eq!(template.read(&frame), Some(LABEL));
        for at in 0..frame.len() {
            frame[at] ^= 4;
            // 8-byte frames' worth of pattern leaves two bytes to tell a wrong label from.
            let seen = template.read(&frame);
            assert!(
                seen.is_none() || bytes < 72 && (42..58).contains(&at),
                "{bytes} bytes, {at} flipped: {seen:?}"
            );
            frame[at] ^= 4;
        }
        assert_eq!(template.read(&frame[1..]), None);
    }
}

#[test]
fn frames_are_what_their_headers_say() {
    let template = template(128, true);
    let mut frame = vec![0; template.len];
    template.write(&mut frame, LABEL);
    let headers = linerate_wire::parse(&frame).unwrap();
    let ip = linerate_wire::ipv4::Ipv4::new_checked(&frame[14..]).unwrap();
    assert!(
        ip.verify() && ip.total_len() == frame.len() - 14,
        "{headers:?}"
    );
    let udp = linerate_wire::udp::Udp::new_checked(ip.payload()).unwrap();
    assert_eq!((udp.len(), udp.dst_port()), (frame.len() - 34, 9));
}

#[test]
fn headers_only_leaves_the_payload_out() {
    let template = template(256, false);
    let mut frame = vec![0xaa; template.len];
    template.write(&mut frame, LABEL);
    assert!(frame[58..].iter().all(|&byte| byte == 0xaa));
    assert_eq!(template.read(&frame), Some(LABEL));
}

/// Runs a short job on as many CPUs as `cpus` names.
fn job(cpus: Vec<u32>) -> Vec<Row> {
    let job = Job {
        frames: vec![64, 1518],
        ns_per_size: 40_000_000,
        whole: true,
        clock: Clock::calibrate(),
        cpus,
        stop: Arc::default(),
        progress: Arc::default(),
    };
    job.measure().unwrap().0
}

#[test]
fn nothing_is_lost_in_one_loop_nor_on_three_lcores() {
    let cpu = Topology::machine().unwrap().allowed().as_slice()[0];
    // Three lcores on one CPU: nobody may need another one to be running.
    for cpus in [vec![cpu], vec![cpu; 3]] {
        let rows = job(cpus.clone());
        assert_eq!(rows.len(), 2, "{cpus:?}");
        for row in rows {
            assert!(
                row.sent > 0 && row.received == row.sent,
                "{cpus:?}: {row:?}"
            );
            assert_eq!(
                (row.lost, row.corrupt, row.out_of_order),
                (0, 0, 0),
                "{cpus:?}"
            );
            assert!(row.p50_ns <= row.p99_ns && row.p99_ns <= row.p999_ns);
        }
    }
}

#[test]
fn an_interrupted_job_shows_what_it_has() {
    let job = Job {
        frames: vec![64, 128],
        ns_per_size: 60_000_000_000,
        whole: true,
        clock: Clock::calibrate(),
        cpus: vec![Topology::machine().unwrap().allowed().as_slice()[0]],
        stop: Arc::default(),
        progress: Arc::default(),
    };
    let stop = job.stop.clone();
    let worker = std::thread::spawn(move || job.measure().unwrap().0);
    std::thread::sleep(Duration::from_millis(50));
    stop.store(true, Ordering::Relaxed);
    assert!(worker.join().unwrap().len() <= 1);
}
