//! A script in packetdrill's language: parsed, or refused with a place in it and a fix; and what is
//! injected of it is read again.

use linerate_drill::{Action, Body, TcpOption, parse};

pub(crate) fn check(input: &[u8]) {
    // The stack's packets, with the same bytes: they never panic.
    let _ = linerate_drill::read(input, false);
    let _ = linerate_drill::read(input, true);
    let options = TcpOption::read_all(input);
    let mut written = Vec::new();
    options.iter().for_each(|option| option.write(&mut written));
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match parse(text) {
        Ok(script) => {
            assert!(!script.events.is_empty());
            for event in &script.events {
                if let Action::Packet(packet) = &event.action
                    && let Body::Tcp(tcp) = &packet.body
                {
                    let len: usize = tcp.options.iter().flatten().map(TcpOption::len).sum();
                    assert!(len <= linerate_drill::MAX_OPTION_BYTES);
                    assert!(tcp.flags < 0x200);
                }
            }
        }
        Err(fault) => {
            let lines = text.split('\n').count();
            assert!(fault.at.line as usize <= lines, "{fault}");
            assert!(!fault.problem.is_empty());
        }
    }
}
