//! tap against the kernel's end of it.

use crate::{End, frame, is_ours, namespace, pools, wait};
use linerate_core::port::Link;

#[test]
fn a_tap_is_made_as_asked_and_goes_with_its_port() {
    let Some(namespace) = namespace() else { return };
    let _inside = namespace.enter();
    let pools = pools(false);
    let mut t0 = End::new("tap:t0,mac=02:00:00:00:00:77,mtu=1400", 1, &pools);
    let shown = String::from_utf8(namespace.run("ip", "-d link show t0").stdout).unwrap();
    for part in ["02:00:00:00:00:77", "mtu 1400", "state U", "persist off"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let info = t0.port.info();
    assert_eq!(
        (info.mac.unwrap().to_string().as_str(), info.max_frame_bytes),
        ("02:00:00:00:00:77", 1414)
    );
    t0.queues = Default::default();
    t0.port.stop().unwrap();
    assert!(
        !namespace.run("ip", "link show t0").status.success(),
        "gone"
    );
}

#[test]
fn a_persistent_tap_outlives_the_port() {
    let Some(namespace) = namespace() else { return };
    let _inside = namespace.enter();
    let pools = pools(false);
    drop(End::new("tap:t0,persist=on,up=off", 1, &pools));
    let shown = String::from_utf8(namespace.run("ip", "-d link show t0").stdout).unwrap();
    assert!(
        shown.contains("persist on") && shown.contains("state DOWN"),
        "{shown}"
    );
    drop(End::new("tap:t0", 1, &pools));
    assert!(
        namespace.run("ip", "link show t0").status.success(),
        "still there: nobody said off"
    );
    drop(End::new("tap:t0,persist=off", 1, &pools));
    assert!(
        !namespace.run("ip", "link show t0").status.success(),
        "gone"
    );
}

#[test]
fn a_deleted_tap_is_reported_and_taken_up_again() {
    let Some(namespace) = namespace() else { return };
    let _inside = namespace.enter();
    let pools = pools(true);
    let mut t0 = End::new("tap:t0", 1, &pools);
    assert_eq!(t0.port.link(), Link::Up);
    namespace.ip("link del t0");
    assert_eq!(
        t0.port.link(),
        Link::Down("interface `t0` was deleted".into())
    );
    assert_eq!(t0.send(&frame(0, 60)), 1, "taken, dropped, counted");
    assert_eq!(t0.drops("link_down"), 1);
    assert_eq!(t0.receive().len(), 0);
    namespace.ip("tuntap add mode tap name t0");
    namespace.quiet("t0");
    namespace.ip("link set t0 up");
    wait("the port to attach", || {
        t0.receive();
        t0.port.link() == Link::Up
    });
    let mut kernel = End::new("af_packet:t0", 1, &pools);
    wait("frames both ways", || {
        t0.send(&frame(1, 60));
        kernel.send(&frame(2, 60));
        let came = |end: &mut End| end.receive().iter().any(|(_, data)| is_ours(data));
        came(&mut t0) && came(&mut kernel)
    });
}

#[test]
fn a_deleted_tap_is_made_again_where_that_was_asked_for() {
    let Some(namespace) = namespace() else { return };
    let _inside = namespace.enter();
    let pools = pools(true);
    let mut t0 = End::new("tap:t0,mac=02:00:00:00:00:78,mtu=1400,again=on", 1, &pools);
    namespace.ip("link del t0");
    wait("the tap to be back", || {
        t0.receive();
        t0.port.link() == Link::Up
    });
    let shown = String::from_utf8(namespace.run("ip", "-d link show t0").stdout).unwrap();
    for part in ["02:00:00:00:00:78", "mtu 1400", "state U", "persist off"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn the_kernels_end_may_be_in_another_name_space() {
    let Some(namespace) = namespace() else { return };
    let name = format!("lr-tap-{}", std::process::id());
    let ip = |args: &[&str]| {
        std::process::Command::new("ip")
            .args(args)
            .output()
            .unwrap()
    };
    if !ip(&["netns", "add", &name]).status.success() {
        linerate_testkit::skip("`ip netns add` is not permitted");
        return;
    }
    let _inside = namespace.enter();
    let pools = pools(true);
    let spec = format!("tap:t0,netns={name},again=on");
    let mut t0 = End::new(&spec, 1, &pools);
    let there = || ip(&["-n", &name, "link", "show", "t0"]).status.success();
    let made = there() && !namespace.run("ip", "link show t0").status.success();
    let up = t0.port.link() == Link::Up;
    ip(&["-n", &name, "link", "del", "t0"]);
    wait("the tap to be back there", || {
        t0.receive();
        there()
    });
    drop(t0);
    ip(&["netns", "del", &name]);
    assert!(made && up);
}

#[test]
fn several_queues_carry_everything() {
    let Some(namespace) = namespace() else { return };
    let _inside = namespace.enter();
    let pools = pools(true);
    let mut t0 = End::new("tap:t0,queues=4", 4, &pools);
    let mut kernel = End::new("af_packet:t0", 1, &pools);
    let mut numbers = Vec::new();
    for number in 0..200 {
        assert_eq!(kernel.send(&frame(number, 60 + number as usize * 7)), 1);
    }
    wait("all frames", || {
        let ours = t0.receive().into_iter().filter(|(_, data)| is_ours(data));
        numbers.extend(ours.map(|(_, data)| {
            let number = u64::from_be_bytes(data[14..22].try_into().unwrap());
            assert_eq!(data, frame(number, 60 + number as usize * 7));
            number
        }));
        numbers.len() == 200
    });
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..200));
}
