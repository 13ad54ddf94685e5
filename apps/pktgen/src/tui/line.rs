//! The line that is typed: editing as shells do it, and the lines that were typed before.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::History;

/// A line being typed. The cursor counts letters, not bytes.
#[derive(Debug, Default)]
pub(super) struct Line {
    letters: Vec<char>,
    cursor: usize,
    /// Lines that were typed before.
    pub(super) history: History,
}

impl Line {
    pub(super) fn text(&self) -> String {
        self.letters.iter().collect()
    }

    /// Bytes before the cursor.
    pub(super) fn cursor_byte(&self) -> usize {
        self.letters[..self.cursor]
            .iter()
            .map(|c| c.len_utf8())
            .sum()
    }

    /// Ends the line: empties it, remembers and returns it.
    pub(super) fn take(&mut self) -> String {
        let text = self.text();
        self.clear();
        self.history.add(text.trim());
        text
    }

    pub(super) fn clear(&mut self) {
        self.letters.clear();
        self.cursor = 0;
    }

    fn set(&mut self, text: &str) {
        self.letters = text.chars().collect();
        self.cursor = self.letters.len();
    }

    pub(super) fn insert(&mut self, text: &str) {
        for letter in text.chars().filter(|letter| !letter.is_control()) {
            self.letters.insert(self.cursor, letter);
            self.cursor += 1;
        }
    }

    /// Puts `text` in the place of what lies between byte `begins` and the cursor.
    pub(super) fn replace(&mut self, begins: usize, text: &str) {
        while self.cursor > 0 && self.cursor_byte() > begins {
            self.cursor -= 1;
            self.letters.remove(self.cursor);
        }
        self.insert(text);
    }

    /// One line back in the history, or forth.
    fn recall(&mut self, back: bool) {
        let typed = self.text();
        let line = match back {
            true => self.history.back(&typed),
            false => self.history.forth(),
        };
        if let Some(line) = line.map(str::to_owned) {
            self.set(&line);
        }
    }

    /// Takes a key that edits; false where it means nothing here.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.letters.len(),
            KeyCode::Char('b') if control => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Char('f') if control => self.cursor = self.letters.len().min(self.cursor + 1),
            KeyCode::Char('p') if control => self.recall(true),
            KeyCode::Char('n') if control => self.recall(false),
            KeyCode::Char('d') if control => self.delete(),
            KeyCode::Char('h') if control => self.rub_out(),
            KeyCode::Char('u') if control => {
                self.letters.drain(..self.cursor);
                self.cursor = 0;
            }
            KeyCode::Char('k') if control => self.letters.truncate(self.cursor),
            KeyCode::Char('w') if control => {
                while self.cursor > 0 && self.letters[self.cursor - 1] == ' ' {
                    self.rub_out();
                }
                while self.cursor > 0 && self.letters[self.cursor - 1] != ' ' {
                    self.rub_out();
                }
            }
            KeyCode::Char(letter) if !control && !letter.is_control() => {
                self.insert(letter.encode_utf8(&mut [0; 4]));
            }
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.letters.len(),
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = self.letters.len().min(self.cursor + 1),
            KeyCode::Up => self.recall(true),
            KeyCode::Down => self.recall(false),
            KeyCode::Backspace => self.rub_out(),
            KeyCode::Delete => self.delete(),
            _ => return false,
        }
        true
    }

    fn rub_out(&mut self) {
        if self.cursor > 0 {
            self.cursor -= 1;
            self.letters.remove(self.cursor);
        }
    }

    fn delete(&mut self) {
        if self.cursor < self.letters.len() {
            self.letters.remove(self.cursor);
        }
    }

    /// The part of the line that `width` columns show, and where in it the cursor is.
    pub(super) fn window(&self, width: usize) -> (String, usize) {
        let begin = (self.cursor + 1).saturating_sub(width.max(1));
        let shown = self.letters[begin..].iter().take(width).collect();
        (shown, self.cursor - begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(line: &mut Line, code: KeyCode) {
        assert!(line.key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    fn control(line: &mut Line, letter: char) {
        assert!(line.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)));
    }

    fn typed(text: &str) -> Line {
        let mut line = Line::default();
        line.insert(text);
        line
    }

    #[test]
    fn letters_go_in_at_the_cursor_whatever_their_bytes() {
        let mut line = typed("set 0 näme x");
        press(&mut line, KeyCode::Left);
        press(&mut line, KeyCode::Backspace);
        press(&mut line, KeyCode::Char('ü'));
        assert_eq!(line.text(), "set 0 nämeüx");
        assert_eq!(line.cursor_byte(), "set 0 nämeü".len());
        press(&mut line, KeyCode::Home);
        press(&mut line, KeyCode::Delete);
        assert_eq!(line.text(), "et 0 nämeüx");
        line.insert("a\nb\u{1b}[c");
        assert_eq!(line.text(), "ab[cet 0 nämeüx");
    }

    #[test]
    fn words_and_ends_are_cut_as_in_a_shell() {
        let mut line = typed("set 0 rate  ");
        control(&mut line, 'w');
        assert_eq!(line.text(), "set 0 ");
        control(&mut line, 'a');
        control(&mut line, 'k');
        assert_eq!(line.text(), "");
        line.insert("abc");
        press(&mut line, KeyCode::Left);
        control(&mut line, 'u');
        assert_eq!(line.text(), "c");
    }

    #[test]
    fn the_history_goes_back_and_forth_and_keeps_what_was_begun() {
        let mut line = Line::default();
        for before in ["start all", "stop", "stop", " "] {
            line.insert(before);
            line.take();
        }
        line.insert("se");
        press(&mut line, KeyCode::Up);
        assert_eq!(line.text(), "stop");
        press(&mut line, KeyCode::Up);
        assert_eq!(line.text(), "start all");
        press(&mut line, KeyCode::Up);
        assert_eq!(line.text(), "start all");
        press(&mut line, KeyCode::Down);
        press(&mut line, KeyCode::Down);
        assert_eq!(line.text(), "se");
        assert_eq!(line.take(), "se");
        press(&mut line, KeyCode::Up);
        assert_eq!(line.text(), "se");
    }

    #[test]
    fn a_completion_replaces_its_word_only() {
        let mut line = typed("set 0 ra 99%");
        (0..4).for_each(|_| press(&mut line, KeyCode::Left));
        line.replace(6, "rate");
        assert_eq!(line.text(), "set 0 rate 99%");
        assert_eq!(line.cursor_byte(), 10);
    }

    #[test]
    fn a_long_line_scrolls_with_the_cursor() {
        let mut line = typed("0123456789");
        assert_eq!(line.window(5), ("6789".into(), 4));
        press(&mut line, KeyCode::Home);
        assert_eq!(line.window(5), ("01234".into(), 0));
    }
}
