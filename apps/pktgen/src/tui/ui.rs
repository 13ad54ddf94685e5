//! The state of the screen between two pictures, and the effect of keys. It uses no terminal and no
//! socket: input is a key or an answer, output an [`Ask`].

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::grid::{Seen, View};
use super::line::Line;
use super::pages::{Extra, Page};
use super::theme::{Palette, Theme, Tone, style_of};
use crate::{Candidate, Completion, Problem, Reply, ScreenAction, Snapshot};

/// Requests of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Command(String),
    /// Complete the line at this byte.
    Complete(String, usize),
    /// Save the colours.
    SaveTheme,
    /// Leave the screen.
    Leave,
}

/// The message above the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: String,
    /// Not empty where something is wrong.
    pub(super) fix: String,
    pub(super) is_error: bool,
}

/// Completions of the line.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) begins: usize,
    pub(super) candidates: Vec<Candidate>,
    pub(super) picked: Option<usize>,
}

/// Text that covers the page until a key is pressed.
#[derive(Clone, Debug)]
pub(super) struct Sheet {
    pub(super) lines: Vec<String>,
    pub(super) view: View,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Ui {
    pub(super) page: Page,
    views: [View; Page::ALL.len()],
    pub(super) extra: Extra,
    pub(super) line: Line,
    /// Whether keys go into the line.
    pub(super) typing: bool,
    pub(super) choice: Option<Choice>,
    pub(super) note: Note,
    pub(super) sheet: Option<Sheet>,
    pub(super) theme: Theme,
    /// Whether only ASCII can be shown.
    pub(super) ascii: bool,
    /// Snapshots that came: turns the mark in the title.
    pub(super) pictures: u64,
    /// Commands that were given and not answered yet.
    pub(super) pending: usize,
    /// Whether `q` was pressed while sending.
    leaving: bool,
    /// Of the last picture: how far one can scroll.
    pub(super) seen: Seen,
}

impl Ui {
    pub(super) fn new(theme: Theme, ascii: bool) -> Self {
        Self {
            page: Page::Main,
            views: Default::default(),
            extra: Extra::default(),
            line: Line::default(),
            typing: false,
            choice: None,
            note: Note::default(),
            sheet: None,
            theme,
            ascii,
            pictures: 0,
            pending: 0,
            leaving: false,
            seen: Seen::default(),
        }
    }

    /// The scroll position of the page, or of the text that covers it.
    pub(super) fn view(&self) -> View {
        match &self.sheet {
            Some(sheet) => sheet.view,
            None => self.views[self.page as usize],
        }
    }

    fn scroll_to(&mut self, view: View) {
        let last = self.seen.last();
        let view = View {
            top: view.top.min(last.top),
            left: view.left.min(last.left),
        };
        match &mut self.sheet {
            Some(sheet) => sheet.view = view,
            None => self.views[self.page as usize] = view,
        }
    }

    pub(super) fn show(&mut self, page: Page) {
        self.page = page;
        self.sheet = None;
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent, snapshot: &Snapshot) -> Option<Ask> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Some(Ask::Leave);
        }
        if let KeyCode::F(number) = key.code {
            self.open(usize::from(number).saturating_sub(1));
            return None;
        }
        match self.typing {
            true => self.typed(key),
            false => self.browsed(key, snapshot),
        }
    }

    /// The page of an F key or a digit, counted from 0; the help is always the twelfth.
    fn open(&mut self, at: usize) {
        match at {
            11 => self.show(Page::Help),
            at => Page::ALL
                .get(at)
                .copied()
                .into_iter()
                .for_each(|page| self.show(page)),
        }
    }

    /// A key while a command is typed.
    fn typed(&mut self, key: KeyEvent) -> Option<Ask> {
        match key.code {
            KeyCode::Esc => {
                if self.choice.take().is_none() {
                    self.line.clear();
                    self.typing = false;
                }
            }
            KeyCode::Enter => {
                self.choice = None;
                self.typing = false;
                let text = self.line.take();
                let text = text.trim();
                self.note = Note::default();
                return match text {
                    "" => None,
                    text => self.command(text),
                };
            }
            KeyCode::Tab | KeyCode::BackTab => {
                if let Some(choice) = &mut self.choice {
                    let all = choice.candidates.len();
                    let next = match (choice.picked, key.code) {
                        (None, KeyCode::Tab) => 0,
                        (None, _) => all - 1,
                        (Some(at), KeyCode::Tab) => (at + 1) % all,
                        (Some(at), _) => (at + all - 1) % all,
                    };
                    choice.picked = Some(next);
                    self.line
                        .replace(choice.begins, &choice.candidates[next].text);
                } else {
                    return Some(Ask::Complete(self.line.text(), self.line.cursor_byte()));
                }
            }
            KeyCode::PageUp | KeyCode::PageDown => self.scroll(key.code),
            _ => {
                self.choice = None;
                self.line.key(key);
            }
        }
        None
    }

    /// Commands of the screen itself are handled here; the others go to the session.
    fn command(&mut self, text: &str) -> Option<Ask> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["theme", "save"] => Some(Ask::SaveTheme),
            ["theme", item, ref style @ ..] if Tone::named(item).is_some() => {
                let tone = Tone::named(item)?;
                match style_of(style) {
                    Ok(style) => self.theme.change(tone, style),
                    Err(word) => self.problem(&Problem::new(
                        format!("`{word}` is no colour"),
                        "write COLOUR [on COLOUR] [bold]; a colour is black, red, green, yellow, \
                         blue, magenta, cyan, gray, white, one of them with light in front, or \
                         #rrggbb",
                    )),
                }
                None
            }
            _ => {
                self.pending += 1;
                Some(Ask::Command(text.into()))
            }
        }
    }

    /// A key while pages are looked at.
    fn browsed(&mut self, key: KeyEvent, snapshot: &Snapshot) -> Option<Ask> {
        let leaving = std::mem::take(&mut self.leaving);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') if !control => {
                if !snapshot.sending || leaving {
                    return Some(Ask::Leave);
                }
                self.leaving = true;
                self.tell("sending: q again stops it and leaves");
            }
            KeyCode::Char('?') => self.show(Page::Help),
            KeyCode::Char(':' | '/') => self.typing = true,
            KeyCode::Char(digit @ '1'..='9') => self.open(digit as usize - '1' as usize),
            KeyCode::Char(letter) if letter.is_ascii_alphabetic() && !control => {
                self.typing = true;
                if leaving {
                    // Otherwise it is the first letter of `quit`.
                    self.line
                        .key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE));
                }
                self.line.key(key);
            }
            KeyCode::Esc | KeyCode::Enter => {
                self.sheet = None;
                self.note = Note::default();
            }
            KeyCode::Tab => self.show(self.page.step(1)),
            KeyCode::BackTab => self.show(self.page.step(-1)),
            KeyCode::Left | KeyCode::Right
                if self.page == Page::Latency && self.sheet.is_none() =>
            {
                self.choose(key.code == KeyCode::Right, snapshot.ports.len());
            }
            code => self.scroll(code),
        }
        None
    }

    /// The port whose histogram is shown: the next or the one before, and its column comes into
    /// sight.
    fn choose(&mut self, next: bool, ports: usize) {
        let last = ports.saturating_sub(1);
        let chosen = &mut self.extra.chosen;
        *chosen = match next {
            true => (*chosen + 1).min(last),
            false => chosen.saturating_sub(1),
        };
        let (chosen, mut view) = (*chosen, self.view());
        let columns = self.seen.columns.max(1);
        view.left = view
            .left
            .clamp((chosen + 1).saturating_sub(columns), chosen);
        self.scroll_to(view);
    }

    fn scroll(&mut self, code: KeyCode) {
        let page = self.seen.lines.saturating_sub(1).max(1);
        let View { mut top, mut left } = self.view();
        match code {
            KeyCode::Up => top = top.saturating_sub(1),
            KeyCode::Down => top += 1,
            KeyCode::PageUp => top = top.saturating_sub(page),
            KeyCode::PageDown => top += page,
            KeyCode::Home => top = 0,
            KeyCode::End => top = usize::MAX,
            KeyCode::Left => left = left.saturating_sub(1),
            KeyCode::Right => left += 1,
            _ => return,
        }
        self.scroll_to(View { top, left });
    }

    /// The answer to a command.
    pub(super) fn answered(&mut self, answer: Result<Reply, Problem>) -> Option<Ask> {
        self.pending = self.pending.saturating_sub(1);
        let reply = match answer {
            Ok(reply) => reply,
            Err(problem) => {
                self.problem(&problem);
                return None;
            }
        };
        let text = reply.text.trim_end();
        match reply.screen {
            Some(ScreenAction::Quit) => return Some(Ask::Leave),
            Some(ScreenAction::Page(name)) => match Page::named(&name) {
                Some(page) => self.show(page),
                None => self.tell(&format!("this screen has no page {name}")),
            },
            Some(ScreenAction::Theme(name)) => match name.parse::<Palette>() {
                Ok(palette) => self.theme.choose(palette),
                Err(()) => self.tell(&format!("this screen has no theme {name}")),
            },
            Some(ScreenAction::Show(text)) => self.cover(&text),
            None if text.lines().count() > 1 => self.cover(text),
            None => self.tell(text),
        }
        None
    }

    /// The answer to a completion.
    pub(super) fn completed(&mut self, completion: Completion) {
        let Completion { begins, candidates } = completion;
        if !self.typing || begins > self.line.cursor_byte() {
            return;
        }
        match &candidates[..] {
            [] => self.tell("nothing completes that"),
            [one] => {
                let space = if one.text.ends_with(['=', ':', '/']) {
                    ""
                } else {
                    " "
                };
                self.line.replace(begins, &format!("{}{space}", one.text));
            }
            [first, rest @ ..] => {
                // The common prefix is typed already.
                let common = rest.iter().fold(first.text.as_str(), |common, other| {
                    let same = common.chars().zip(other.text.chars());
                    let bytes = same.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8());
                    &common[..bytes.sum()]
                });
                let typed = self.line.cursor_byte() - begins;
                if common.len() > typed {
                    self.line.replace(begins, common);
                }
                self.choice = Some(Choice {
                    begins,
                    candidates,
                    picked: None,
                });
            }
        }
    }

    pub(super) fn cover(&mut self, text: &str) {
        self.sheet = Some(Sheet {
            lines: text.lines().map(str::to_owned).collect(),
            view: View::default(),
        });
    }

    pub(super) fn tell(&mut self, text: &str) {
        self.note = Note {
            text: text.into(),
            ..Note::default()
        };
    }

    pub(super) fn problem(&mut self, problem: &Problem) {
        let mut fix = problem.fix.clone();
        let unsaid: Vec<&str> = problem
            .nearest
            .iter()
            .map(String::as_str)
            .filter(|name| !fix.contains(name) && !problem.problem.contains(name))
            .collect();
        if !unsaid.is_empty() {
            let near = format!("near to it: {}", unsaid.join(", "));
            fix = if fix.is_empty() {
                near
            } else {
                format!("{fix}; {near}")
            };
        }
        self.note = Note {
            text: problem.problem.clone(),
            fix,
            is_error: true,
        };
    }
}
