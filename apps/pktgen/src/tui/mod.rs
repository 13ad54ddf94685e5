//! The terminal screen of `linerate pktgen`: a client of its JSON interface, as scripts are.
//!
//! [`draw`] makes a picture from a snapshot and the state of the screen, [`ui`] changes that state
//! by keys and answers, [`link`] connects to the session on a thread of its own. [`pages`] has one
//! table for each page; read [`grid`] and [`sheet`] first, on which they are based.

mod draw;
mod grid;
mod line;
mod link;
mod number;
mod pages;
mod sheet;
mod terminal;
mod theme;
mod ui;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::{Client, History, Problem, Snapshot};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::Interrupts;

use link::{Heard, Link};
use terminal::Screened;
use theme::{Palette, Theme};
use ui::{Ask, Ui};

/// Longest that a key or a signal waits.
const PAUSE: Duration = Duration::from_millis(40);

/// Shows the session that `client` is connected to until the user leaves, a signal is caught, or
/// the session ends. Returns the last snapshot, where one came.
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
    // NO_COLOR overrides the saved theme.
    if let (false, Some(path)) = (ui.theme.palette == Palette::Mono, theme_path()) {
        match fs::read_to_string(&path) {
            Ok(text) if !ui.theme.obey(&text) => ui.problem(&Problem::new(
                format!("{}: not all of it is a theme", path.display()),
                "choose colours and `theme save` them again",
            )),
            // A saved theme is optional.
            _ => {}
        }
    }
    if let Some(path) = History::usual_path() {
        let (history, opened) = History::open(&path);
        ui.line.history = history;
        if let Err(error) = opened {
            ui.tell(&format!(
                "the history of commands is not saved: {}: {error}",
                path.display()
            ));
        }
    }
    let link = Link::start(client)?;
    let terminal = Screened::begin()?;
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

struct Screen {
    terminal: Screened,
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
            // All pending events first, then one picture.
            let mut pause = PAUSE;
            while event::poll(pause)? {
                changed = true;
                pause = Duration::ZERO;
                match self.event(event::read()?, ui)? {
                    None => {}
                    Some(Ask::Leave) => return Ok(()),
                    Some(Ask::SaveTheme) => save_theme(ui),
                    Some(ask) => self.link.ask(ask),
                }
            }
            while let Some(text) = self.terminal.panicked() {
                changed = true;
                let fix = "save what is needed and leave; it is printed again then";
                ui.problem(&Problem::new(text.replace('\n', " "), fix));
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
                self.terminal.terminal.clear()?;
            }
            Event::Key(key) => {
                let none = Snapshot::default();
                return Ok(ui.key(key, self.snapshot.as_ref().unwrap_or(&none)));
            }
            Event::Paste(text) => {
                ui.typing = true;
                ui.line.insert(&text);
            }
            _ => {}
        }
        Ok(None)
    }

    /// True if the screen is to be left.
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
            Heard::Gone(Problem { problem, fix, .. }) => {
                return Err(Error::Usage { problem, fix });
            }
        }
        Ok(false)
    }

    fn picture(&mut self, ui: &mut Ui) -> io::Result<()> {
        let mut seen = None;
        self.terminal.terminal.draw(|frame| {
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

/// `$XDG_CONFIG_HOME/linerate/theme`, or below `~/.config`; none without a home.
fn theme_path() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("linerate/theme"))
}

fn save_theme(ui: &mut Ui) {
    let Some(path) = theme_path() else {
        let problem = "there is no home to keep the theme in";
        return ui.problem(&Problem::new(problem, "set HOME or XDG_CONFIG_HOME"));
    };
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    match folder.and_then(|()| fs::write(&path, ui.theme.commands())) {
        Ok(()) => ui.tell(&format!("kept in {}", path.display())),
        Err(error) => ui.problem(&Problem::new(
            format!("{}: {error}", path.display()),
            "make room there, or permit it",
        )),
    }
}

/// Whether the terminal shows more than ASCII, by the locale's variables in their order (POSIX
/// 8.2).
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty())
        .unwrap_or_default()
        .to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
