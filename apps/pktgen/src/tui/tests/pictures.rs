//! Contents of pictures: the talk's figures, sums, and every page at both sizes.

use ratatui::crossterm::event::KeyCode;

use super::super::pages::Page;
use super::super::theme::{Palette, Tone};
use super::{Stage, talk};
use crate::{PortView, SIZE_CLASSES, Snapshot, StreamView};

/// The number in a cell, without its separators.
fn number(cell: &str) -> f64 {
    let digits: String = cell
        .chars()
        .filter(|letter| !matches!(letter, ',' | '!'))
        .collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no number: {cell:?}"))
}

#[test]
fn the_talks_screen_has_the_talks_figures() {
    let stage = Stage::new(talk::snapshot(), 200, 60);
    assert_eq!(stage.row("Flags:Port")[0], "P-----RI-----:0");
    assert_eq!(stage.row("Flags:Port")[8], "---Total Rate---");
    assert_eq!(stage.row("Link State")[0], "UP 10 Gbit/s");
    assert_eq!(stage.row("Pkts/s Max/Rx")[0], "1,626,548/1,626,475");
    assert_eq!(stage.row("       Max/Tx")[0], "1,626,698/1,626,661");
    // The talk cut the decimals off: 9888/9890.
    assert_eq!(stage.row("Mbit/s L1 Rx/Tx")[0], "9,889.0/9,890.1");
    // 8 x Rx is 79.13 Gbit/s of L1, which the talk calls 79.1 Gb/s, and 77.05 of L2.
    let total = |label: &str| {
        stage.row(label)[8]
            .split('/')
            .map(number)
            .collect::<Vec<_>>()
    };
    assert_eq!(total("Pkts/s Max/Rx")[1], 13_015_518.0);
    assert_eq!((total("Mbit/s L1 Rx/Tx")[0] / 10.0).round(), 7913.0);
    assert_eq!((total("Mbit/s L2 Rx/Tx")[0] / 10.0).round(), 7705.0);
    // What it printed as megabytes were megabits.
    assert_eq!(
        stage.row("  Rx/Tx Mbit L1")[0].split('/').next(),
        Some("75,262.2")
    );
    assert_eq!(
        stage.row("      Rx/Tx MB")[0].split('/').next(),
        Some("9,160.2")
    );
    // 99 % of 10 Gbit/s at 740 bytes.
    assert_eq!(stage.row("Pkts/s asked/sent")[0], "1,628,290/1,626,661");
    assert_eq!(stage.row("Rate error ppm")[0], "-1,000.1");
    assert_eq!(stage.row("Size/Tx:Rx Burst")[0], "740 / 32:64");
    assert_eq!(stage.row("Tx Count/Rate")[0], "Forever / 99%");
    assert_eq!(stage.row("Pkt Type:VLAN ID")[0], "IPv4 / TCP:0001");
    assert_eq!(stage.row("Src/Dest Port")[0], "1111 / 5678");
    assert_eq!(stage.row("Lost Pkts")[0], "!79");
    assert_eq!(stage.row("Lost Pkts")[1], "0");
    let summary = stage.lines()[1].clone();
    assert!(
        summary.contains("Rx 13,015,518 pps 79.13 Gbit/s L1"),
        "{summary}"
    );
    assert!(summary.contains("!lost 79"), "{summary}");
}

#[test]
fn sums_on_a_page_agree() {
    let stage = Stage::new(talk::snapshot(), 200, 80);
    for label in [
        "Pkts/s Max/Rx",
        "       Max/Tx",
        "Mbit/s L1 Rx/Tx",
        "Mbit/s L2 Rx/Tx",
        "Broadcast Pkts",
        "Multicast Pkts",
        "Total Rx Pkts",
        "      Tx Pkts",
        "      Rx/Tx MB",
        "  Rx/Tx Mbit L1",
        "Pkts/s asked/sent",
        "Unsent Pkts",
        "Test Pkts Rx",
        "Lost Pkts",
        "       samples",
    ] {
        let cells: Vec<Vec<f64>> = stage
            .row(label)
            .iter()
            .map(|cell| cell.split('/').map(number).collect())
            .collect();
        let (total, ports) = cells.split_last().unwrap();
        assert_eq!(ports.len(), 8, "{label}");
        for part in 0..total.len() {
            let sum: f64 = ports.iter().map(|cell| cell[part]).sum();
            assert!(
                (sum - total[part]).abs() < 0.01,
                "{label}: {sum}, {total:?}"
            );
        }
    }
    // The frames by size add up to all received frames.
    for port in 0..9 {
        let of = |label: String| number(&stage.row(&label)[port]);
        let sizes = SIZE_CLASSES[..6]
            .iter()
            .map(|class| of(format!("  {class} Bytes")));
        let jumbos = number(stage.row("Runts/Jumbos")[port].split('/').nth(1).unwrap());
        assert_eq!(
            sizes.sum::<f64>() + jumbos,
            of("Total Rx Pkts".into()),
            "port {port}"
        );
        let whose = ["Test Pkts Rx", "Earlier Pkts Rx", "Foreign Pkts Rx"]
            .map(|label| of(label.into()))
            .iter()
            .sum::<f64>();
        assert_eq!(whose, of("Total Rx Pkts".into()));
    }
}

#[test]
fn the_thirty_rows_are_in_the_talks_order() {
    let stage = Stage::new(talk::snapshot(), 200, 80);
    let lines = stage.lines();
    let mut last = 0;
    for label in [
        "\\   Ports 0-7 of 8",
        "Flags:Port",
        "Link State",
        "Pkts/s Max/Rx",
        "       Max/Tx",
        "Mbit/s L1 Rx/Tx",
        "Broadcast",
        "Multicast",
        "  64 Bytes",
        "  65-127",
        "  128-255",
        "  256-511",
        "  512-1023",
        "  1024-1518",
        "Runts/Jumbos",
        "Errors Rx/Tx",
        "Total Rx Pkts",
        "      Tx Pkts",
        "      Rx/Tx MB",
        "  Rx/Tx Mbit",
        "ARP/ICMP",
        "Pattern Type",
        "Tx Count/Rate",
        "Size/Tx:Rx Burst",
        "Src/Dest Port",
        "Pkt Type:VLAN ID",
        "Dst IP",
        "Src IP",
        "Dst MAC",
        "Src MAC",
        "Device",
        "Lost Pkts",
        "Lost ppm",
        "Reordered",
        "Duplicate",
        "Latency p50",
        "Cycles/pkt",
        "Core busy %",
        "-- drops by reason",
        "-- ? help",
        "linerate>",
    ] {
        let at = lines
            .iter()
            .skip(last)
            .position(|line| line.starts_with(label));
        last +=
            at.unwrap_or_else(|| panic!("{label:?} after line {last} in\n{}", lines.join("\n")));
    }
}

#[test]
fn every_page_at_both_sizes_is_as_committed() {
    for (width, height) in [(80, 24), (200, 60)] {
        let mut stage = Stage::new(talk::snapshot(), width, height);
        stage.ui.extra.help = vec!["start [PORTS]   begin to send".into()];
        for page in Page::ALL {
            stage.ui.show(page);
            stage.draw();
            stage.compare(&format!("{}-{width}x{height}", page.name()));
        }
    }
}

#[test]
fn an_idle_session_shows_dashes_and_no_zero_latency() {
    let port = |number| PortView {
        number,
        name: "a".into(),
        kind: "ring".into(),
        device: "ring:a".into(),
        state: "idle".into(),
        link_up: true,
        rate: "max".into(),
        ..PortView::default()
    };
    let snapshot = Snapshot {
        ports: (0..2).map(port).collect(),
        ..Snapshot::default()
    };
    let mut stage = Stage::new(snapshot, 80, 80);
    assert_eq!(stage.row("Link State")[0], "UP unknown speed");
    assert_eq!(stage.row("        p99 us"), ["-", "-", "-"]);
    assert_eq!(stage.row("Lost ppm"), ["-", "-", "-"]);
    assert_eq!(stage.row("Cycles/pkt Rx/Tx")[0], "-/-");
    stage.ui.show(Page::Latency);
    stage.draw();
    let text = stage.lines().join("\n");
    assert!(text.contains("no latency is known"), "{text}");
}

#[test]
fn a_run_that_is_invalid_says_so_and_why() {
    let mut snapshot = talk::snapshot();
    snapshot.invalid = vec!["port 3: the device is gone".into()];
    let stage = Stage::new(snapshot, 80, 24);
    let lines = stage.lines();
    assert!(lines[1].starts_with("!INVALID  Tx"), "{}", lines[1]);
    assert_eq!(
        lines[22],
        "!this run is invalid: port 3: the device is gone"
    );
}

#[test]
fn no_port_at_all_is_no_trouble() {
    for page in Page::ALL {
        let mut stage = Stage::new(Snapshot::default(), 80, 24);
        stage.ui.show(page);
        stage.draw();
        assert!(stage.lines()[0].contains(page.name()));
    }
}

#[test]
fn the_largest_figures_fit_their_columns() {
    let mut snapshot = talk::snapshot();
    for port in &mut snapshot.ports {
        for traffic in [&mut port.rx, &mut port.tx] {
            traffic.packets = u64::MAX / 4096;
            traffic.bytes = u64::MAX / 64;
            traffic.pps = 595_238_095.0;
            traffic.max_pps = 595_238_095.0;
            traffic.l1_bps = 400e9;
            traffic.l2_bps = 304.761e9;
        }
        port.sizes = [0, 0, 0, 0, u64::MAX / 4096, 0, 0];
        port.template.dst_ip = "2001:0db8:1111:2222:3333:4444:5555:6666".into();
        port.template.src_mac = "02:00:00:00:00:00-02:00:00:00:ff:ff/256".into();
    }
    for (width, height) in [(80, 90), (200, 90)] {
        let stage = Stage::new(snapshot.clone(), width, height);
        let lines = stage.lines();
        let text = lines.join("\n");
        assert_eq!(stage.row("Pkts/s Max/Rx")[0], "595238095/595238095");
        assert_eq!(
            stage.row("Mbit/s L1 Rx/Tx")[0],
            "400,000.0/400,000.0",
            "{text}"
        );
        assert!(!text.contains('~'), "{text}");
        // The address in full, in as many lines as it takes.
        let at = lines
            .iter()
            .position(|line| line.starts_with("Dst IP"))
            .unwrap();
        let cell = |line: &String| line.chars().skip(18).take(20).collect::<String>();
        let address: String = lines[at..at + 3].iter().map(cell).collect();
        let address = address.replace(' ', "");
        assert!(
            address.starts_with(&snapshot.ports[0].template.dst_ip),
            "{address}"
        );
    }
}

#[test]
fn ports_scroll_sideways_and_rows_up_and_down() {
    let mut stage = Stage::new(talk::snapshot(), 80, 24);
    let title = |stage: &Stage| stage.lines()[0].clone();
    assert!(
        title(&stage).contains("  Ports 0-1 of 8 >"),
        "{}",
        title(&stage)
    );
    stage.press(KeyCode::Right);
    assert!(
        title(&stage).contains("< Ports 1-2 of 8 >"),
        "{}",
        title(&stage)
    );
    (0..20).for_each(|_| drop(stage.press(KeyCode::Right)));
    assert!(
        title(&stage).contains("< Ports 6-7 of 8  "),
        "{}",
        title(&stage)
    );
    assert_eq!(
        stage.row("Flags:Port"),
        ["P-----RI-----:6", "P-----RI-----:7", "---Total Rate---"]
    );
    stage.press(KeyCode::Left);
    assert!(
        title(&stage).contains("< Ports 5-6 of 8 >"),
        "{}",
        title(&stage)
    );

    assert!(title(&stage).contains(" v"), "{}", title(&stage));
    stage.press(KeyCode::End);
    assert!(title(&stage).contains(" ^"), "{}", title(&stage));
    assert!(
        stage
            .lines()
            .iter()
            .any(|line| line.starts_with("-- drops by reason"))
    );
    // Heads stay.
    assert!(stage.lines()[2].starts_with("Flags:Port"));
    stage.press(KeyCode::Home);
    assert!(stage.lines()[3].starts_with("Link State"));
}

#[test]
fn thousands_of_streams_scroll_and_their_sum_is_shown() {
    let mut snapshot = talk::snapshot();
    snapshot.streams = (0..4000).map(talk::stream).collect();
    let sent: u64 = snapshot
        .streams
        .iter()
        .map(|stream: &StreamView| stream.tally.sent)
        .sum();
    let mut stage = Stage::new(snapshot, 200, 60);
    stage.ui.show(Page::Streams);
    stage.draw();
    let lines = stage.lines();
    assert!(lines[0].contains("of 4001"), "{}", lines[0]);
    assert!(
        lines[3].replace(',', "").contains(&sent.to_string()),
        "{}",
        lines[3]
    );
    stage.press(KeyCode::End);
    assert!(
        stage
            .lines()
            .iter()
            .any(|line| line.trim_start().starts_with("3999"))
    );
}

#[test]
fn a_terminal_too_small_says_how_large_and_recovers() {
    let mut stage = Stage::new(talk::snapshot(), 60, 10);
    let text = stage.lines().join(" ");
    assert!(text.contains("needs 80 columns and 24 lines"), "{text}");
    assert!(text.contains("has 60 and 10"), "{text}");
    for size in [(1, 1), (0, 0), (80, 23), (79, 24)] {
        stage.size = size;
        stage.draw();
    }
    stage.size = (80, 24);
    stage.draw();
    assert!(stage.lines()[0].contains("<main>"));
}

#[test]
fn each_size_draws_each_page() {
    // No panic, and title and prompt always there.
    for size in [
        (80, 24),
        (81, 25),
        (99, 31),
        (132, 42),
        (160, 24),
        (80, 200),
        (400, 100),
    ] {
        for palette in Palette::ALL {
            let mut stage = Stage::new(talk::snapshot(), size.0, size.1);
            stage.ui.theme.choose(palette);
            for page in Page::ALL {
                stage.ui.show(page);
                stage.draw();
                let lines = stage.lines();
                assert!(
                    lines[0].contains(&format!("<{}>", page.name())),
                    "{}",
                    lines[0]
                );
                assert!(lines[usize::from(size.1) - 1].starts_with("linerate>"));
            }
        }
    }
}

#[test]
fn mono_has_no_colour_anywhere() {
    let mut stage = Stage::new(talk::snapshot(), 80, 24);
    stage.ui.theme.choose(Palette::Mono);
    stage.draw();
    let plain = stage.ui.theme.style(Tone::Plain);
    for cell in stage.buffer.content() {
        assert_eq!((Some(cell.fg), Some(cell.bg)), (plain.fg, plain.bg));
    }
}

#[test]
fn without_utf8_the_picture_is_ascii() {
    let mut stage = Stage::new(talk::snapshot(), 80, 24);
    stage.ui.ascii = true;
    for page in Page::ALL {
        stage.ui.show(page);
        stage.draw();
        assert!(stage.lines().iter().all(|line| line.is_ascii()), "{page:?}");
    }
}
