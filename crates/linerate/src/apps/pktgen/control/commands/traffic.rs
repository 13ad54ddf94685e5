//! Commands that send, stop, count and wait.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{number, seconds, text};
use crate::apps::pktgen::control::connection::Asker;
use crate::apps::pktgen::control::desk::Desk;
use crate::apps::pktgen::control::protocol::{Problem, Reply};
use crate::apps::pktgen::control::table::{Done, Given};

/// How often `wait` looks.
const LOOK: Duration = Duration::from_millis(20);

pub(in super::super) fn start(desk: &mut Desk, given: &Given) -> Done {
    let ports = desk.ports_of(given.get(0))?;
    // Those without anything to send are passed over where nobody named them.
    let named: &[u16] = if given.get(0) == "all" { &[] } else { &ports };
    if given.optional(1) == Some("arp") {
        return Err(Problem::new(
            "`start` sends streams only",
            format!("write `arp {}`", given.get(0)),
        ));
    }
    let duration = given.optional(1).map(seconds).transpose()?;
    desk.session()?.start(named, duration)?;
    let time = duration.map_or_else(
        || "until stopped".into(),
        |time| format!("for {} s", time.as_secs_f64()),
    );
    Ok(text(format!("sending {time}")))
}

pub(in super::super) fn stop(desk: &mut Desk, given: &Given) -> Done {
    let ports = desk.ports_of(given.optional(0).unwrap_or("all"))?;
    desk.session()?.stop(&ports);
    Ok(text("stopped"))
}

pub(in super::super) fn clear(desk: &mut Desk, _: &Given) -> Done {
    desk.session()?.clear();
    Ok(text("all counts begin at zero"))
}

pub(in super::super) fn wait(asker: &mut Asker, given: &Given) -> Done {
    let longest = given.optional(0).map(seconds).transpose()?;
    let began = Instant::now();
    loop {
        let sending = asker
            .desk
            .call(|desk| Ok::<_, Problem>(desk.session()?.is_sending()))??;
        let late = longest.is_some_and(|longest| began.elapsed() >= longest);
        if !sending || late {
            let said = if sending { "still sending" } else { "all sent" };
            return Ok(Reply {
                data: json!({ "done": !sending }),
                ..text(said)
            });
        }
        asker.pause(LOOK)?;
    }
}

pub(in super::super) fn sleep(asker: &mut Asker, given: &Given) -> Done {
    asker.pause(seconds(given.get(0))?)?;
    Ok(Reply::default())
}

pub(in super::super) fn delay(asker: &mut Asker, given: &Given) -> Done {
    let time = number("the delay in milliseconds", given.get(0))?;
    asker.pause(Duration::from_millis(time))?;
    Ok(Reply::default())
}

pub(in super::super) fn arp(desk: &mut Desk, given: &Given) -> Done {
    let _ = (desk, given, number::<u32>);
    Err(Problem::new("not yet", ""))
}

pub(in super::super) fn ping(desk: &mut Desk, given: &Given) -> Done {
    arp(desk, given)
}
