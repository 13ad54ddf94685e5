//! Pictures of the screen as text, without a terminal. `UPDATE_SCREENS=1` writes those that are
//! compared with files anew: look at the difference before committing it.

mod keys;
mod pictures;
pub(super) mod talk;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;

use super::draw::{Drawn, draw};
use super::theme::{Palette, Theme};
use super::ui::{Ask, Ui};
use crate::Snapshot;

/// A screen that draws into a buffer.
struct Stage {
    ui: Ui,
    snapshot: Snapshot,
    size: (u16, u16),
    buffer: Buffer,
}

impl Stage {
    fn new(snapshot: Snapshot, width: u16, height: u16) -> Self {
        let mut stage = Self {
            ui: Ui::new(Theme::new(Palette::Dark, false), false),
            snapshot,
            size: (width, height),
            buffer: Buffer::default(),
        };
        stage.draw();
        stage
    }

    fn draw(&mut self) -> Drawn {
        let (width, height) = self.size;
        self.buffer = Buffer::empty(Rect::new(0, 0, width, height));
        let drawn = draw(Some(&self.snapshot), &self.ui, &mut self.buffer);
        self.ui.seen = drawn.seen.clone();
        drawn
    }

    /// Presses a key and draws.
    fn press(&mut self, code: KeyCode) -> Option<Ask> {
        let ask = self
            .ui
            .key(KeyEvent::new(code, KeyModifiers::NONE), &self.snapshot);
        self.draw();
        ask
    }

    fn type_in(&mut self, text: &str) {
        for letter in text.chars() {
            assert_eq!(self.press(KeyCode::Char(letter)), None, "{letter}");
        }
    }

    /// The lines of the picture, without spaces at their ends.
    fn lines(&self) -> Vec<String> {
        let width = usize::from(self.size.0);
        self.buffer
            .content()
            .chunks(width)
            .map(|row| {
                let line: String = row.iter().map(|cell| cell.symbol()).collect();
                line.trim_end().to_owned()
            })
            .collect()
    }

    /// The cells of the row that begins with `label`: what stands in the columns of ports, and the
    /// total.
    fn row(&self, label: &str) -> Vec<String> {
        let lines = self.lines();
        let line = lines
            .iter()
            .find(|line| line.starts_with(label))
            .unwrap_or_else(|| panic!("no row {label:?} in\n{}", lines.join("\n")));
        let letters: Vec<char> = line.chars().skip(18).collect();
        // The total is wider than a port.
        let ports = (self.ui.seen.columns * 20).min(letters.len());
        let (ports, total) = letters.split_at(ports);
        let text = |cell: &[char]| cell.iter().collect::<String>().trim().to_owned();
        ports.chunks(20).chain([total]).map(text).collect()
    }

    /// Compares with `screens/NAME.txt`.
    fn compare(&self, name: &str) {
        let path = format!("{}/src/tui/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let picture = self.lines().join("\n") + "\n";
        if std::env::var_os("UPDATE_SCREENS").is_some() {
            std::fs::write(&path, &picture).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            picture == wanted,
            "{path} differs (UPDATE_SCREENS=1 rewrites it); drawn is\n{picture}\nwanted is\n\
             {wanted}"
        );
    }
}
