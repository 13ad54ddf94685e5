//! What nmap can tell of our numbers, which is nothing: RFC 6528 for those of sequences, RFC 6864
//! for those of packets (4.1: one that is not to be cut may have any).

use super::{OURS, Stand};

#[test]
fn nmap_cannot_predict_our_numbers() {
    let echo = "[[app]]\nkind = \"echo\"\nlisten = 7\n";
    let Some(stand) = Stand::new("af_packet:d0", echo, &["nmap"]) else {
        return;
    };
    let output = stand
        .host
        .run("nmap", &format!("-n -Pn -O -sS -v -p 7,81 {}", OURS[0]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let states = |port: &str| {
        let row = said.lines().find(|line| line.starts_with(port));
        row.and_then(|row| row.split_whitespace().nth(1))
    };
    assert_eq!(states("7/tcp"), Some("open"), "{said}");
    assert_eq!(states("81/tcp"), Some("closed"), "{said}");
    let (_, difficulty) = said
        .split_once("TCP Sequence Prediction: Difficulty=")
        .unwrap_or_else(|| panic!("{said}"));
    let (difficulty, comment) = difficulty.split_once(' ').unwrap();
    // nmap's logarithm, times 8, of how far six numbers lie from a straight line; 32 bits drawn
    // by chance give about 260.
    assert!(difficulty.parse::<u32>().unwrap() > 230, "{said}");
    assert!(comment.starts_with("(Good luck!)"), "{said}");
    let (_, ids) = said.split_once("IP ID Sequence Generation: ").unwrap();
    let ids = ids.lines().next().unwrap();
    assert!(["All zeros", "Randomized"].contains(&ids), "{said}");
    stand.close();
}

#[test]
#[ignore = "long: nmap waits for what says nothing"]
fn nmap_finds_what_is_served() {
    let apps = "[[app]]\nkind = \"http\"\nlisten = 80\nbodies = [\"/=64\"]\n\
        [[app]]\nkind = \"echo\"\nlisten = 7\n";
    let Some(stand) = Stand::new("af_packet:d0", apps, &["nmap"]) else {
        return;
    };
    for (way, family) in [("-sS", ""), ("-sT", "-6 ")] {
        let ours = OURS[usize::from(!family.is_empty())];
        let words = format!("-n -Pn {family}{way} -sV -p 1-100 {ours}");
        let output = stand.host.run("nmap", &words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("98 closed"), "{words}: {said}");
        let row = |port: &str| said.lines().find(|line| line.starts_with(port));
        assert!(row("7/tcp").unwrap().contains("open  echo"), "{said}");
        assert!(row("80/tcp").unwrap().contains("open  http"), "{said}");
    }
    stand.close();
}
