//! The terminal screen of `linerate pktgen`: a client of its JSON interface, as scripts are.
//!
//! [`draw`] makes a picture from a snapshot and the state of the screen, [`ui`] changes that state by keys
//! and answers, [`link`] talks to the session on a thread of its own. [`pages`] holds one table for each
//! page; read [`grid`] and [`sheet`] first, which all of them are made of.

mod draw;
mod grid;
mod line;
mod link;
mod number;
mod pages;
mod sheet;
mod theme;
mod ui;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::apps::pktgen::{Client, Problem, Snapshot};
use crate::apps::runtime::Interrupts;
use crate::error::Error;

use link::{Heard, Link};
use theme::Theme;
use ui::{Ask, Ui};

/// Longest that a key or a signal waits.
const PAUSE: Duration = Duration::from_millis(40);

/// Shows the session that `client` is connected to until the user leaves, a signal is caught, or the
/// session ends. Returns the last snapshot, where one came.
///
/// # Errors
/// There is no terminal, or the session went away.
pub(crate) fn run(client: Client, interrupts: &Interrupts) -> Result<Option<Snapshot>, Error> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Error::Usage {
            problem: "there is no terminal to draw a screen on".into(),
            fix: "run it in a terminal, or use --headless".into(),
        });
    }
    let variable = |name: &str| std::env::var(name).ok();
    let mut ui = Ui::new(Theme::of_terminal(variable), !is_utf8(variable));
    let link = Link::start(client)?;
    let terminal = Restored::init()?;
    let mut screen = Screen {
        terminal,
        link,
        snapshot: None,
    };
    let ended = screen.show(&mut ui, interrupts);
    let Screen {
        terminal, snapshot, ..
    } = screen;
    // Before anything else is printed.
    drop(terminal);
    ended?;
    Ok(snapshot)
}

/// The terminal, given back as it was when dropped; a panic gives it back too.
struct Restored(DefaultTerminal);

impl Restored {
    fn init() -> io::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                ratatui::restore();
                Err(error)
            }
        }
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        // The cursor is hidden while nothing is typed. There is nobody to tell that it cannot be shown.
        let _ = self.0.show_cursor();
        ratatui::restore();
    }
}

struct Screen {
    terminal: Restored,
    link: Link,
    snapshot: Option<Snapshot>,
}

impl Screen {
    /// Draws, and takes what comes from keys and from the session, until the screen is left.
    fn show(&mut self, ui: &mut Ui, interrupts: &Interrupts) -> Result<(), Error> {
        let mut changed = true;
        loop {
            if changed {
                self.picture(ui)?;
            }
            changed = false;
            if interrupts.wait_until(Instant::now()) {
                return Ok(());
            }
            // Every event that is there, then one picture.
            let mut pause = PAUSE;
            while event::poll(pause)? {
                changed = true;
                pause = Duration::ZERO;
                if let Some(ask) = self.event(event::read()?, ui)? {
                    if ask == Ask::Leave {
                        return Ok(());
                    }
                    self.link.ask(ask);
                }
            }
            while let Ok(heard) = self.link.heard.try_recv() {
                changed = true;
                if self.hear(heard, ui)? {
                    return Ok(());
                }
            }
        }
    }

    fn event(&mut self, event: Event, ui: &mut Ui) -> io::Result<Option<Ask>> {
        match event {
            // What another program wrote over is drawn anew.
            Event::Key(key)
                if key.code == KeyCode::Char('l')
                    && key.modifiers.contains(KeyModifiers::CONTROL) =>
            {
                self.terminal.0.clear()?;
            }
            Event::Key(key) => {
                let none = Snapshot::default();
                return Ok(ui.key(key, self.snapshot.as_ref().unwrap_or(&none)));
            }
            Event::Paste(text) if ui.typing => ui.line.insert(&text),
            _ => {}
        }
        Ok(None)
    }

    /// True where the screen is to be left.
    fn hear(&mut self, heard: Heard, ui: &mut Ui) -> Result<bool, Error> {
        match heard {
            Heard::Snapshot(snapshot) => {
                ui.pictures += 1;
                self.snapshot = Some(*snapshot);
            }
            Heard::Answer(answer) => return Ok(ui.answered(answer) == Some(Ask::Leave)),
            Heard::Completion(completion) => ui.completed(completion),
            Heard::Help(answer) => {
                ui.extra.help = match answer {
                    Ok(reply) => reply.text.lines().map(str::to_owned).collect(),
                    Err(problem) => vec![problem.problem],
                };
            }
            Heard::History(lines) => ui.line.remember(lines),
            Heard::Gone(Problem { problem, fix, .. }) => {
                return Err(Error::Usage { problem, fix });
            }
        }
        Ok(false)
    }

    fn picture(&mut self, ui: &mut Ui) -> io::Result<()> {
        let mut seen = None;
        self.terminal.0.draw(|frame| {
            let drawn = draw::draw(self.snapshot.as_ref(), ui, frame.buffer_mut());
            if let Some(cursor) = drawn.cursor {
                frame.set_cursor_position(cursor);
            }
            seen = Some(drawn.seen);
        })?;
        ui.seen = seen.unwrap_or_default();
        Ok(())
    }
}

/// Whether the terminal shows more than ASCII, by the locale's variables in their order (POSIX 8.2).
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty())
        .unwrap_or_default()
        .to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
