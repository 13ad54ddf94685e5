//! A run from opening the ports to the last table: the part of `linerate pktgen` that is the same
//! with and without a screen.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_core::env::{Clock, ClockSource};
use linerate_core::run::ledger::Balance;
use serde::Serialize;

use super::args::{Limits, Settings, UNSENT_PPM};
use super::client::Client;
use super::commands::run_lines;
use super::connection::{Access, Asker};
use super::dump;
use super::owner::{Control, ControlHandle};
use super::protocol::Problem;
use super::server::Server;
use super::summary;
use super::wire::Wire;
use crate::session::Session;
use crate::{Snapshot, Tally};
use linerate_appliance::control::answers::{Listeners, Methods};
use linerate_appliance::control::ledger;
use linerate_appliance::error::Error;
use linerate_appliance::output::{self, MachineFacts};
use linerate_appliance::runtime::{Interrupts, drivers};

/// How often to look whether all has been sent.
const LOOK: Duration = Duration::from_millis(20);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// The result of a run, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    machine: &'a MachineFacts,
    verdict: &'a Verdict,
    /// Whether a slot is missing, and which account it was lost from.
    ledger: ledger::Verdict,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

/// Whether a run met its limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// `good`, `behind`, `lossy` or `invalid`.
    pub(super) word: &'static str,
    pub(super) exit_code: u8,
    pub(super) reasons: Vec<String>,
}

impl Verdict {
    /// Judges the last counts.
    pub(super) fn of(snapshot: &Snapshot, failed: &[String], limits: &Limits) -> Self {
        let (mut all_sent, mut sent, mut lost, mut unsent) = (0, 0, 0, 0);
        let mut unknown = Vec::new();
        for stream in &snapshot.streams {
            let Tally {
                sent: s, lost: l, ..
            } = stream.tally;
            (all_sent, unsent) = (all_sent + s, unsent + stream.unsent);
            match stream.tested {
                true => (sent, lost) = (sent + s, lost + l),
                false if s > 0 => unknown.push(stream.id.to_string()),
                false => {}
            }
        }
        let ppm = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 1e6;
        let too_many = |part, whole, limit: Option<f64>, word| {
            let ppm = ppm(part, whole);
            let limit = limit.filter(|limit| ppm > *limit)?;
            Some(format!(
                "{part} frames {word} of {whole}: {ppm:.1} ppm, allowed are {limit}"
            ))
        };
        let due = all_sent + unsent;
        let late = too_many(unsent, due, limits.unsent_ppm, "unsent");
        // Always reported, since frames that were not sent were not tested.
        let told = (late.is_none() && unsent > 0).then(|| {
            format!(
                "{unsent} of {due} frames unsent: {:.1} ppm",
                ppm(unsent, due)
            )
        });
        let mut invalid: Vec<String> = failed.iter().cloned().chain(late).collect();
        if limits.loss_ppm.is_some() {
            // A limit without any measured frame is not met.
            if !unknown.is_empty() {
                let which = unknown.join(", ");
                invalid.push(format!(
                    "the loss of streams {which} is unknown: no signature"
                ));
            }
            if sent == 0 {
                invalid.push("no test frame was sent: loss is unknown".into());
            }
            if !snapshot.settled {
                invalid.push("test frames are still under way".into());
            }
        }
        let lossy: Vec<String> = too_many(lost, sent, limits.loss_ppm, "lost")
            .into_iter()
            .collect();
        let told: Vec<String> = told.into_iter().collect();
        match (invalid.is_empty(), lossy.is_empty()) {
            (false, _) => Self {
                word: "invalid",
                exit_code: 4,
                reasons: [invalid, lossy, told].concat(),
            },
            (true, false) => Self {
                word: "lossy",
                exit_code: 3,
                reasons: [lossy, told].concat(),
            },
            (true, true) => Self {
                // Without a limit, but less than was asked for.
                word: match limits.unsent_ppm.is_none() && ppm(unsent, due) > UNSENT_PPM {
                    true => "behind",
                    false => "good",
                },
                exit_code: 0,
                reasons: told,
            },
        }
    }
}

/// Opens, runs and ends a session; prints the result.
pub(super) fn run(settings: &Settings) -> Result<(), Error> {
    // Before anything is opened: without a place for its result a run does not begin.
    settings.output.as_deref().map(probe).transpose()?;
    let interrupts = Interrupts::catch()?;
    let clock = Clock::calibrate();
    if let ClockSource::Monotonic { reason } = clock.source() {
        eprintln!(
            "warning: {reason}, so the clock is read from the kernel: rates and latencies are less \
             exact"
        );
    }
    // Before anything runs that would look like stolen time.
    let machine = MachineFacts::gather(&clock)?;
    let session = Session::open(settings.config.clone(), &mut drivers(), clock)?;
    let profile = settings.config.profile.clone();
    let (control, thread) = Control::spawn(session, profile)?;
    let mut server = Server::new(control.clone());
    for address in &settings.listen {
        let at = server.listen(address, settings.change, settings.token.as_deref())?;
        if let Some(at) = at.filter(|at| !at.ip().is_loopback()) {
            eprintln!("warning: anyone who reaches {at} and has the token controls this session");
        }
        if let Some(at) = at {
            eprintln!("listening at tcp:{at}");
        }
    }
    let methods = Methods::new(control.0.clone(), None);
    let listeners = Listeners::at(&settings.places, None, methods)?;
    let mut asker = Asker::new(control.clone(), Access::FULL, server.closing());
    let result = work(settings, &control, &server, &mut asker, &interrupts);
    drop(asker);
    let mut failed = failures(&control);
    if let (Ok(true), Some(_)) = (&result, settings.limits.loss_ppm) {
        failed.push("interrupted before its end".into());
    }
    let closed = control.close();
    drop((server, listeners));
    drop(control);
    // A panic there was printed already.
    let _ = thread.join();
    result?;
    let Some((snapshot, balance, errors)) = closed else {
        return Err(super::owner::ended().into());
    };
    if settings.dump.is_some() {
        return Error::all(errors);
    }
    let verdict = Verdict::of(&snapshot, &failed, &settings.limits);
    show(settings, &snapshot, &balance, &verdict, &machine)?;
    Error::all(errors)?;
    match verdict.exit_code {
        0 => Ok(()),
        code => Err(Error::Found(code)),
    }
}

/// Why the session's counts are invalid.
fn failures(control: &ControlHandle) -> Vec<String> {
    let failed = |control: &mut Control| {
        let session = control.session()?;
        session.is_sending();
        Ok::<_, Problem>(session.invalid().to_vec())
    };
    control
        .call(failed)
        .and_then(|failed| failed)
        .unwrap_or_default()
}

/// The run between opening and closing. True where it was interrupted before its planned end.
fn work(
    settings: &Settings,
    control: &ControlHandle,
    server: &Server,
    asker: &mut Asker,
    interrupts: &Interrupts,
) -> Result<bool, Error> {
    for line in &settings.shortcuts {
        asker.command(line)?;
    }
    if let Some(frames) = settings.dump {
        let text = control.call(move |control| dump::text(control, None, frames))??;
        return output::print(&text).map(|()| false);
    }
    if settings.tui {
        let (ours, theirs) = UnixStream::pair()?;
        server.adopt(Wire::Unix(theirs), Access::FULL)?;
        let (file, lines) = settings.commands.clone();
        run_lines(asker, &file, lines)?;
        if settings.start {
            start(control, settings.duration)?;
        }
        let client = Client::over(Wire::Unix(ours))?;
        return screen(client, control, server, interrupts).map(|()| false);
    }
    // Commands may wait; Ctrl-C sets the flag that they check meanwhile.
    let closing = server.closing();
    let (file, lines) = settings.commands.clone();
    let mut own = Asker::new(control.clone(), Access::FULL, closing.clone());
    let commands = std::thread::Builder::new()
        .name("commands".into())
        .spawn(move || run_lines(&mut own, &file, lines).map(drop))?;
    while !commands.is_finished() {
        if interrupts.wait(LOOK) {
            closing.store(true, Ordering::SeqCst);
            // The wait was interrupted; the cause is known.
            let _ = commands.join();
            return Ok(true);
        }
    }
    match commands.join() {
        Ok(result) => result?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    if settings.start {
        start(control, settings.duration)?;
    }
    watch(settings, control, interrupts)
}

/// Shows the screen until the user leaves it, or another client sends `quit`.
fn screen(
    client: Client,
    control: &ControlHandle,
    server: &Server,
    interrupts: &Interrupts,
) -> Result<(), Error> {
    let closing = server.closing();
    let is_quitting = || control.call(|control| control.quitting).unwrap_or(true);
    let left = AtomicBool::new(false);
    let shown = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !left.load(Ordering::SeqCst) {
                if is_quitting() {
                    // This ends all connections, also the screen's.
                    closing.store(true, Ordering::SeqCst);
                    return;
                }
                std::thread::sleep(LOOK);
            }
        });
        let shown = crate::tui::run(client, interrupts);
        left.store(true, Ordering::SeqCst);
        shown
    });
    match shown {
        // The screen may report the end of the session as an error, but here it was requested.
        Err(_) if is_quitting() => Ok(()),
        shown => shown.map(drop),
    }
}

fn start(control: &ControlHandle, duration: Option<Duration>) -> Result<(), Error> {
    let start =
        move |control: &mut Control| Ok::<_, Problem>(control.session()?.start(&[], duration)?);
    Ok(control.call(start)??)
}

/// Waits for the end: all sent, `quit`, or Ctrl-C. A session that was not started here and has
/// listeners goes on until a client sends `quit`. True where Ctrl-C came before the end of a
/// duration.
fn watch(
    settings: &Settings,
    control: &ControlHandle,
    interrupts: &Interrupts,
) -> Result<bool, Error> {
    let is_reached = !settings.listen.is_empty() || settings.places.control.is_some();
    let stays = !settings.start && is_reached;
    let tells = std::io::stderr().is_terminal();
    let began = Instant::now();
    let mut told = began;
    loop {
        let state = |control: &mut Control| {
            let quitting = control.quitting;
            Ok::<_, Problem>((quitting, control.session()?.is_sending()))
        };
        let (quitting, sending) = control.call(state)??;
        let cut_short = !(quitting || (!sending && !stays)) && interrupts.wait(LOOK);
        if cut_short || quitting || (!sending && !stays) {
            if tells && told != began {
                eprint!("\r\x1b[K");
            }
            return Ok(cut_short && sending && settings.duration.is_some());
        }
        if tells && told.elapsed() >= PROGRESS {
            told = Instant::now();
            let snapshot = control.call(Control::snapshot)??;
            eprint!("\r\x1b[K{}", summary::progress(&snapshot, began.elapsed()));
        }
    }
}

/// Whether a file can be written, without touching what it holds.
fn probe(path: &Path) -> Result<(), Error> {
    let wrong = |source| Error::File {
        path: path.into(),
        source,
    };
    let existed = path.exists();
    let file = OpenOptions::new().append(true).create(true).open(path);
    drop(file.map_err(wrong)?);
    if !existed {
        std::fs::remove_file(path).map_err(wrong)?;
    }
    Ok(())
}

/// Prints the last counts, and writes them to a file if one was named.
fn show(
    settings: &Settings,
    snapshot: &Snapshot,
    balance: &Balance,
    verdict: &Verdict,
    machine: &MachineFacts,
) -> Result<(), Error> {
    ledger::warn(balance);
    let text = |colour: bool| -> Result<String, Error> {
        if !settings.json {
            return Ok(summary::table(snapshot, verdict, machine, colour));
        }
        let report = Report {
            machine,
            verdict,
            ledger: ledger::Verdict::of(balance),
            snapshot,
        };
        let mut text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        text.push('\n');
        Ok(text)
    };
    output::print(&text(output::colour())?)?;
    if let Some(path) = &settings.output {
        let written = std::fs::File::create(path)
            .and_then(|mut file| file.write_all(text(false).unwrap_or_default().as_bytes()));
        written.map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamView;

    fn snapshot(sent: u64, lost: u64, unsent: u64) -> Snapshot {
        let stream = StreamView {
            unsent,
            tested: true,
            tally: Tally {
                sent,
                lost,
                ..Tally::default()
            },
            ..StreamView::default()
        };
        Snapshot {
            streams: vec![stream],
            settled: true,
            ..Snapshot::default()
        }
    }

    #[test]
    fn the_exit_code_follows_loss_and_what_was_not_sent() {
        let limits = Limits {
            loss_ppm: Some(100.0),
            unsent_ppm: Some(1000.0),
        };
        let judge = |sent, lost, unsent, failed: &[String]| {
            Verdict::of(&snapshot(sent, lost, unsent), failed, &limits).exit_code
        };
        assert_eq!(judge(1_000_000, 100, 0, &[]), 0);
        assert_eq!(judge(1_000_000, 101, 0, &[]), 3);
        assert_eq!(judge(999_000, 0, 1000, &[]), 0);
        assert_eq!(judge(998_000, 0, 2000, &[]), 4);
        assert_eq!(judge(1_000_000, 500, 0, &["port 0 is gone".into()]), 4);
        assert_eq!(
            judge(0, 0, 0, &[]),
            4,
            "no frame was measured against the limit"
        );
        for spoil in [
            |all: &mut Snapshot| all.streams[0].tested = false,
            |all: &mut Snapshot| all.settled = false,
        ] {
            let mut all = snapshot(1000, 0, 0);
            spoil(&mut all);
            assert_eq!(Verdict::of(&all, &[], &limits).exit_code, 4);
            let judged = Verdict::of(&all, &[], &Limits::default());
            assert_eq!((judged.word, judged.reasons.len()), ("good", 0));
        }
        let free = Verdict::of(&snapshot(10, 10, 10), &[], &Limits::default());
        assert_eq!((free.word, free.exit_code), ("behind", 0));
        assert_eq!(free.reasons, ["10 of 20 frames unsent: 500000.0 ppm"]);
        let none = Verdict::of(&snapshot(10, 0, 0), &[], &Limits::default());
        assert!(none.reasons.is_empty());
    }
}
