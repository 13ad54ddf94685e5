//! Colours. Colour is never the only sign of a meaning: errors have a `!` and are bold in every
//! theme, and no theme distinguishes two meanings by red and green only.
//!
//! The sixteen colours of a terminal suffice; the colour-blind safe theme takes the palette of
//! Okabe and Ito (blue, orange, vermillion) where the terminal has all colours, and its nearest of
//! the sixteen elsewhere.

use std::fmt;
use std::str::FromStr;

use ratatui::style::{Color, Modifier, Style};

/// What a piece of the screen means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Values.
    Plain,
    /// Names of rows and columns.
    Label,
    /// The first line.
    Title,
    /// Sums.
    Total,
    /// Normal: a link that is up.
    Good,
    /// Warning: a port that does not send what was asked.
    Warn,
    /// Wrong: lost frames, errors.
    Bad,
    /// Less important.
    Dim,
    /// What is typed, and what is chosen.
    Input,
    /// Bars of charts.
    Bar,
}

impl Tone {
    const ALL: [(Self, &'static str); 10] = [
        (Self::Plain, "value"),
        (Self::Label, "label"),
        (Self::Title, "title"),
        (Self::Total, "total"),
        (Self::Good, "good"),
        (Self::Warn, "warn"),
        (Self::Bad, "bad"),
        (Self::Dim, "dim"),
        (Self::Input, "input"),
        (Self::Bar, "bar"),
    ];

    /// By the name that `theme ITEM STYLE` calls it by.
    pub(super) fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(tone, _)| *tone)
    }
}

/// A set of colours that comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    Dark,
    Light,
    Mono,
    Safe,
}

impl Palette {
    /// For tests: the session's command table lists them for users.
    #[cfg(test)]
    pub(super) const ALL: [Self; 4] = [Self::Dark, Self::Light, Self::Mono, Self::Safe];
}

impl fmt::Display for Palette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::Mono => "mono",
            Self::Safe => "safe",
        })
    }
}

impl FromStr for Palette {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        // `off` and `on` are Pktgen's words.
        Ok(match name {
            "dark" | "on" | "default" => Self::Dark,
            "light" => Self::Light,
            "mono" | "off" | "none" => Self::Mono,
            "safe" | "colour-blind" | "color-blind" => Self::Safe,
            _ => return Err(()),
        })
    }
}

/// How each [`Tone`] looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Theme {
    pub(super) palette: Palette,
    /// What the user changed, newest last.
    changed: Vec<(Tone, Style)>,
    /// Whether the terminal has all colours.
    true_colour: bool,
}

impl Theme {
    pub(super) fn new(palette: Palette, true_colour: bool) -> Self {
        Self {
            palette,
            changed: Vec::new(),
            true_colour,
        }
    }

    /// By `NO_COLOR`, `COLORTERM` and `TERM`, as `variable` reads them.
    pub(super) fn of_terminal(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let bare = set("TERM").is_some_and(|term| term == "dumb" || term.contains("mono"));
        let palette = match set("NO_COLOR").is_some() || bare {
            true => Palette::Mono,
            false => Palette::Dark,
        };
        let true_colour =
            set("COLORTERM").is_some_and(|kind| kind == "truecolor" || kind == "24bit");
        Self::new(palette, true_colour)
    }

    /// As commands that make this theme again.
    pub(super) fn commands(&self) -> String {
        let mut text = format!("theme {}\n", self.palette);
        for (tone, style) in &self.changed {
            let found = Tone::ALL.iter().find(|(other, _)| other == tone);
            let name = found.map_or("", |(_, name)| name);
            text.push_str(&format!("theme {name} {}\n", words_of(*style)));
        }
        text
    }

    /// Applies what [`commands`](Self::commands) wrote; false if a line is something else.
    pub(super) fn obey(&mut self, text: &str) -> bool {
        text.lines().all(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["theme", palette] if palette.parse::<Palette>().is_ok() => {
                    palette
                        .parse()
                        .into_iter()
                        .for_each(|palette| self.choose(palette));
                    true
                }
                ["theme", item, ref style @ ..] => match (Tone::named(item), style_of(style)) {
                    (Some(tone), Ok(style)) => {
                        self.change(tone, style);
                        true
                    }
                    _ => false,
                },
                _ => words.is_empty(),
            }
        })
    }

    /// Chooses another palette; single changes are dropped.
    pub(super) fn choose(&mut self, palette: Palette) {
        *self = Self::new(palette, self.true_colour);
    }

    /// Makes `tone` look like `style`.
    pub(super) fn change(&mut self, tone: Tone, style: Style) {
        self.changed.retain(|(other, _)| *other != tone);
        self.changed.push((tone, style));
    }

    pub(super) fn style(&self, tone: Tone) -> Style {
        if let Some((_, style)) = self.changed.iter().find(|(other, _)| *other == tone) {
            return self.ground().patch(*style);
        }
        let bold = |style: Style| style.add_modifier(Modifier::BOLD);
        let ground = self.ground();
        let of = |colour| ground.fg(colour);
        match self.palette {
            Palette::Dark => match tone {
                Tone::Plain => ground,
                Tone::Label => of(Color::LightCyan),
                Tone::Title => bold(Style::new().fg(Color::White).bg(Color::Blue)),
                Tone::Total => bold(of(Color::LightYellow)),
                Tone::Good => of(Color::LightBlue),
                Tone::Warn => bold(of(Color::Yellow)),
                Tone::Bad => bold(of(Color::LightRed)),
                Tone::Dim => of(Color::Gray),
                Tone::Input => bold(of(Color::LightCyan)),
                Tone::Bar => of(Color::LightCyan),
            },
            Palette::Light => match tone {
                Tone::Plain => ground,
                Tone::Label => of(Color::Blue),
                Tone::Title => bold(Style::new().fg(Color::White).bg(Color::Blue)),
                Tone::Total => bold(ground),
                Tone::Good => of(Color::Blue),
                Tone::Warn => bold(of(Color::Magenta)),
                Tone::Bad => bold(of(Color::Red)),
                Tone::Dim => of(Color::DarkGray),
                Tone::Input => bold(of(Color::Blue)),
                Tone::Bar => of(Color::Blue),
            },
            Palette::Mono => match tone {
                Tone::Title => ground.add_modifier(Modifier::REVERSED),
                Tone::Bad => bold(ground).add_modifier(Modifier::UNDERLINED),
                Tone::Total | Tone::Warn | Tone::Input => bold(ground),
                _ => ground,
            },
            Palette::Safe => {
                let (blue, sky, orange, vermillion, yellow) = self.okabe_ito();
                match tone {
                    Tone::Plain => ground,
                    Tone::Label | Tone::Good | Tone::Bar => of(sky),
                    Tone::Title => bold(Style::new().fg(Color::White).bg(blue)),
                    Tone::Total | Tone::Input => bold(of(yellow)),
                    Tone::Warn => bold(of(orange)),
                    Tone::Bad => bold(of(vermillion)).add_modifier(Modifier::UNDERLINED),
                    Tone::Dim => of(Color::Gray),
                }
            }
        }
    }

    /// Foreground and background; both are set, so that a terminal's own colours cannot hide text.
    fn ground(&self) -> Style {
        match self.palette {
            Palette::Dark | Palette::Safe => Style::new().fg(Color::White).bg(Color::Black),
            Palette::Light => Style::new().fg(Color::Black).bg(Color::White),
            Palette::Mono => Style::new().fg(Color::Reset).bg(Color::Reset),
        }
    }

    /// Blue, sky blue, orange, vermillion and yellow of Okabe and Ito, "Color Universal Design"
    /// (2008).
    fn okabe_ito(&self) -> (Color, Color, Color, Color, Color) {
        match self.true_colour {
            true => (
                Color::Rgb(0, 114, 178),
                Color::Rgb(86, 180, 233),
                Color::Rgb(230, 159, 0),
                Color::Rgb(213, 94, 0),
                Color::Rgb(240, 228, 66),
            ),
            false => (
                Color::Blue,
                Color::LightCyan,
                Color::Yellow,
                Color::LightMagenta,
                Color::LightYellow,
            ),
        }
    }
}

/// A style as it is typed: `yellow on blue bold`. The error is the word that is not part of a
/// style.
pub(super) fn style_of<'a>(words: &[&'a str]) -> Result<Style, &'a str> {
    let mut style = Style::new();
    let mut ground = false;
    if words.is_empty() {
        return Err("");
    }
    for word in words {
        match (*word, word.parse::<Color>()) {
            ("on", _) => ground = true,
            ("bold", _) => style = style.add_modifier(Modifier::BOLD),
            ("underlined", _) => style = style.add_modifier(Modifier::UNDERLINED),
            ("reversed", _) => style = style.add_modifier(Modifier::REVERSED),
            (_, Ok(colour)) if std::mem::take(&mut ground) => style = style.bg(colour),
            (_, Ok(colour)) => style = style.fg(colour),
            (word, Err(_)) => return Err(word),
        }
    }
    Ok(style)
}

/// What [`style_of`] reads.
fn words_of(style: Style) -> String {
    let mut words: Vec<String> = style.fg.iter().map(Color::to_string).collect();
    words.extend(style.bg.iter().map(|colour| format!("on {colour}")));
    for (modifier, word) in [
        (Modifier::BOLD, "bold"),
        (Modifier::UNDERLINED, "underlined"),
        (Modifier::REVERSED, "reversed"),
    ] {
        if style.add_modifier.contains(modifier) {
            words.push(word.into());
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(set: &[(&str, &str)]) -> Theme {
        Theme::of_terminal(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn no_color_is_mono_and_an_empty_one_is_not() {
        assert_eq!(theme(&[("NO_COLOR", "1")]).palette, Palette::Mono);
        assert_eq!(theme(&[("NO_COLOR", "")]).palette, Palette::Dark);
        assert_eq!(theme(&[("TERM", "dumb")]).palette, Palette::Mono);
        assert_eq!(theme(&[]).palette, Palette::Dark);
        let mono = theme(&[("NO_COLOR", "1")]);
        for (tone, name) in Tone::ALL {
            let style = mono.style(tone);
            assert_eq!(
                (style.fg, style.bg),
                (Some(Color::Reset), Some(Color::Reset)),
                "{name}"
            );
        }
    }

    #[test]
    fn bad_and_good_differ_by_more_than_colour_and_never_by_red_and_green() {
        let green = [Color::Green, Color::LightGreen];
        for palette in Palette::ALL {
            for true_colour in [false, true] {
                let theme = Theme::new(palette, true_colour);
                let (good, bad) = (theme.style(Tone::Good), theme.style(Tone::Bad));
                assert_ne!(good.add_modifier, bad.add_modifier, "{palette}");
                assert!(!green.contains(&good.fg.unwrap()), "{palette}");
                for (tone, name) in Tone::ALL {
                    let style = theme.style(tone);
                    assert!(
                        palette == Palette::Mono || style.fg != style.bg,
                        "{palette} {name}"
                    );
                }
            }
        }
    }

    #[test]
    fn palettes_are_read_as_they_are_printed() {
        for palette in Palette::ALL {
            assert_eq!(palette.to_string().parse(), Ok(palette));
        }
        assert_eq!("mauve".parse::<Palette>(), Err(()));
    }

    #[test]
    fn an_item_can_be_changed_until_the_next_palette() {
        let mut theme = Theme::new(Palette::Dark, false);
        theme.change(Tone::Label, Style::new().fg(Color::Magenta));
        assert_eq!(theme.style(Tone::Label).fg, Some(Color::Magenta));
        assert_eq!(theme.style(Tone::Label).bg, Some(Color::Black));
        theme.choose(Palette::Light);
        assert_eq!(theme.style(Tone::Label).fg, Some(Color::Blue));
    }

    #[test]
    fn a_theme_that_is_saved_is_the_same_when_read() {
        let mut theme = Theme::new(Palette::Safe, false);
        for (item, text) in [
            ("label", "magenta on #102030 bold"),
            ("bad", "lightred underlined"),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            theme.change(Tone::named(item).unwrap(), style_of(&words).unwrap());
        }
        let mut read = Theme::new(Palette::Light, false);
        assert!(read.obey(&theme.commands()), "{}", theme.commands());
        assert_eq!(read, theme);
        assert!(!read.obey("start all"));
        assert!(!read.obey("theme label mauve"));
    }
}
