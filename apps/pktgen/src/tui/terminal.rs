//! The terminal while the screen has it: raw, on its alternate screen. Its state is restored when
//! [`Screened`] is dropped, and before the message of a panic is printed.

use std::io::{self, Stdout, Write, stdout};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

type Hook = dyn Fn(&PanicHookInfo<'_>) + Sync + Send;

/// A terminal that shows the screen.
pub(super) struct Screened {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Panic messages of other threads: printed at once, they would be drawn over.
    panics: Receiver<String>,
    said: Vec<String>,
    hook: Arc<Hook>,
}

impl Screened {
    pub(super) fn begin() -> io::Result<Self> {
        let (tell, panics) = mpsc::channel();
        let hook: Arc<Hook> = panic::take_hook().into();
        let (before, drawing) = (Arc::clone(&hook), thread::current().id());
        panic::set_hook(Box::new(move |info| {
            match thread::current().id() == drawing {
                true => {
                    give_back();
                    before(info);
                }
                // The receiver is gone once the screen has been left.
                false => drop(tell.send(info.to_string())),
            }
        }));
        let begun = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match begun {
            Ok(terminal) => Ok(Self {
                terminal,
                panics,
                said: Vec::new(),
                hook,
            }),
            Err(error) => {
                give_back();
                restore_hook(hook);
                Err(error)
            }
        }
    }

    /// The message of a thread that has panicked since the last call.
    pub(super) fn panicked(&mut self) -> Option<String> {
        let text = self.panics.try_recv().ok()?;
        self.said.push(text.clone());
        Some(text)
    }
}

impl Drop for Screened {
    fn drop(&mut self) {
        give_back();
        // While panicking, the hook must not be changed; it has already run.
        if !thread::panicking() {
            restore_hook(Arc::clone(&self.hook));
        }
        for text in self.said.drain(..).chain(self.panics.try_iter()) {
            eprintln!("{text}");
        }
    }
}

fn restore_hook(hook: Arc<Hook>) {
    panic::set_hook(Box::new(move |info| hook(info)));
}

/// Calling it twice does no harm. If it fails there is no terminal any more, so errors are ignored.
fn give_back() {
    let _ = execute!(
        stdout(),
        DisableBracketedPaste,
        LeaveAlternateScreen,
        ratatui::crossterm::cursor::Show
    );
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}
