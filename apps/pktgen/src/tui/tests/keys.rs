//! What keys and answers do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::pages::Page;
use super::super::theme::{Palette, Tone};
use super::super::ui::Ask;
use super::{Stage, talk};
use crate::{Candidate, Completion, Problem, Reply, ScreenAction};

fn stage() -> Stage {
    Stage::new(talk::snapshot(), 80, 24)
}

fn candidates(names: &[&str]) -> Vec<Candidate> {
    let candidate = |name: &&str| Candidate {
        text: (*name).into(),
        help: format!("about {name}"),
    };
    names.iter().map(candidate).collect()
}

#[test]
fn pages_open_by_number_by_tab_and_by_command() {
    let mut stage = stage();
    stage.press(KeyCode::F(2));
    assert_eq!(stage.ui.page, Page::Streams);
    stage.press(KeyCode::Char('7'));
    assert_eq!(stage.ui.page, Page::Latency);
    stage.press(KeyCode::Tab);
    assert_eq!(stage.ui.page, Page::Queues);
    stage.press(KeyCode::BackTab);
    assert_eq!(stage.ui.page, Page::Latency);
    stage.press(KeyCode::F(12));
    assert_eq!(stage.ui.page, Page::Help);
    let page = |name: &str| Reply {
        screen: Some(ScreenAction::Page(name.into())),
        ..Reply::default()
    };
    stage.ui.answered(Ok(page("rnd")));
    assert_eq!(stage.ui.page, Page::Random);
    stage.ui.answered(Ok(page("nonsense")));
    assert_eq!(stage.ui.page, Page::Random);
}

#[test]
fn a_letter_begins_a_command_and_enter_gives_it() {
    let mut stage = stage();
    stage.type_in("set 0 rate 99%");
    let lines = stage.lines();
    assert_eq!(lines[23], "linerate> set 0 rate 99%");
    let cursor = stage.draw().cursor.unwrap();
    assert_eq!((cursor.x, cursor.y), (24, 23));
    let ask = stage.press(KeyCode::Enter);
    assert_eq!(ask, Some(Ask::Command("set 0 rate 99%".into())));
    assert_eq!(stage.lines()[22], "...");
    stage.ui.answered(Ok(Reply {
        text: "port 0 sends 1,628,290 pps".into(),
        ..Reply::default()
    }));
    stage.draw();
    assert_eq!(stage.lines()[22], "port 0 sends 1,628,290 pps");
    // The history.
    stage.type_in(":");
    stage.press(KeyCode::Up);
    assert_eq!(stage.lines()[23], "linerate> set 0 rate 99%");
}

#[test]
fn an_error_shows_its_fix_and_the_nearest() {
    let mut stage = stage();
    stage.type_in("strat all");
    stage.press(KeyCode::Enter);
    stage.ui.answered(Err(Problem {
        problem: "there is no command `strat`".into(),
        fix: "see `help`".into(),
        nearest: vec!["start".into(), "stat".into()],
    }));
    stage.draw();
    let lines = stage.lines();
    assert_eq!(lines[21], "error: there is no command `strat`");
    assert_eq!(lines[22], "fix: see `help`; near to it: start, stat");
    assert!(lines[20].starts_with("[main] streams"), "{}", lines[20]);
}

#[test]
fn tab_completes_and_shows_candidates() {
    let mut stage = stage();
    stage.type_in("s");
    assert_eq!(
        stage.press(KeyCode::Tab),
        Some(Ask::Complete("s".into(), 1))
    );
    let completion = |names: &[&str], begins| Completion {
        begins,
        candidates: candidates(names),
    };
    stage.ui.completed(completion(&["start", "status"], 0));
    stage.draw();
    let lines = stage.lines();
    assert_eq!(lines[23], "linerate> sta");
    assert_eq!(lines[19], " start   about start");
    assert_eq!(lines[20], " status  about status");
    stage.press(KeyCode::Tab);
    stage.press(KeyCode::Tab);
    assert_eq!(stage.lines()[23], "linerate> status");
    stage.press(KeyCode::BackTab);
    assert_eq!(stage.lines()[23], "linerate> start");
    stage.type_in(" al");
    assert_eq!(
        stage.press(KeyCode::Tab),
        Some(Ask::Complete("start al".into(), 8))
    );
    stage.ui.completed(completion(&["all"], 6));
    stage.draw();
    assert_eq!(stage.lines()[23], "linerate> start all");
    assert_eq!(stage.ui.line.text(), "start all ");
}

#[test]
fn q_asks_while_sending_and_control_c_does_not() {
    let mut stage = stage();
    assert_eq!(stage.press(KeyCode::Char('q')), None);
    assert!(stage.lines()[22].contains("q again"));
    stage.press(KeyCode::Down);
    assert_eq!(stage.press(KeyCode::Char('q')), None);
    assert_eq!(stage.press(KeyCode::Char('q')), Some(Ask::Leave));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    stage.type_in("start");
    assert_eq!(stage.ui.key(control_c, &stage.snapshot), Some(Ask::Leave));
    stage.snapshot.sending = false;
    stage.press(KeyCode::Esc);
    assert_eq!(stage.press(KeyCode::Char('q')), Some(Ask::Leave));
}

#[test]
fn quit_can_be_typed_while_sending() {
    let mut stage = stage();
    stage.type_in("quit");
    assert_eq!(stage.ui.line.text(), "quit");
    assert_eq!(
        stage.press(KeyCode::Enter),
        Some(Ask::Command("quit".into()))
    );
}

#[test]
fn a_long_answer_covers_the_page_until_esc() {
    let mut stage = stage();
    let text: Vec<String> = (0..90).map(|line| format!("line {line}")).collect();
    stage.ui.answered(Ok(Reply {
        text: text.join("\n"),
        ..Reply::default()
    }));
    stage.draw();
    assert_eq!(stage.lines()[3], "line 0");
    stage.press(KeyCode::End);
    assert!(stage.lines().contains(&"line 89".to_owned()));
    stage.press(KeyCode::Esc);
    assert!(stage.lines()[2].starts_with("Flags:Port"));
}

#[test]
fn themes_change_by_answer_and_items_by_command() {
    let mut stage = stage();
    stage.ui.answered(Ok(Reply {
        screen: Some(ScreenAction::Theme("safe".into())),
        ..Reply::default()
    }));
    assert_eq!(stage.ui.theme.palette, Palette::Safe);
    stage.type_in("theme label magenta on white bold");
    assert_eq!(stage.press(KeyCode::Enter), None);
    let style = stage.ui.theme.style(Tone::Label);
    assert_eq!(style.fg, Some(ratatui::style::Color::Magenta));
    stage.type_in("theme label mauve");
    assert_eq!(stage.press(KeyCode::Enter), None);
    assert!(stage.ui.note.is_error);
}

#[test]
fn the_chosen_port_of_the_histogram_comes_into_sight() {
    let mut stage = stage();
    stage.ui.show(Page::Latency);
    stage.draw();
    for _ in 0..5 {
        stage.press(KeyCode::Right);
    }
    assert!(
        stage
            .lines()
            .iter()
            .any(|line| line.starts_with("Port 5: 1,000,005 frames"))
    );
    assert_eq!(stage.row("Port")[1], "> 5 ixgbe5");
    for _ in 0..9 {
        stage.press(KeyCode::Left);
    }
    assert_eq!(stage.row("Port")[0], "> 0 ixgbe0");
}
