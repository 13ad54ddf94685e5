//! Reading of the stanzas that all appliances share, and their errors.

use super::*;
use crate::runtime::RunKeys;

fn told(text: &str, build: impl FnOnce(&Section<'_>)) -> Vec<String> {
    let errors = parse(text, build).errors;
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn all_errors_of_run_keys_are_reported_with_legal_values() {
    let text = "[l2fwd]\nperiod = -1\nqueues = 65\nburst = \"x\"\npool_slots = 1\n\
                metrics = \"0.0.0.0:9\"\nsleeep = true\n";
    let errors = told(text, |file| {
        let section = file.table("l2fwd", "l2fwd", "a table").unwrap();
        let keys = RunKeys::read(&section);
        assert_eq!(keys.queues, None);
        assert!(!section.end());
        file.end();
    });
    assert_eq!(
        errors,
        [
            "2: l2fwd.period: this is no such number; a number of seconds such as 2.5",
            "3: l2fwd.queues: 65 is out of range; a number from 1 to 64",
            "4: l2fwd.burst: this is a text; a number from 1 to 64",
            "5: l2fwd.pool_slots: 1 is out of range; a number from 64 to 16777216",
            "6: l2fwd.metrics: 0.0.0.0 can be reached from other machines; a loopback address: \
             127.0.0.1 or [::1]; let a proxy ask for a password",
            "7: l2fwd.sleeep: there is no such key; perhaps sleep",
        ]
    );
}

#[test]
fn ports_without_names_may_be_alike_and_names_may_not() {
    let text = "[[port]]\nspec = \"null\"\n[[port]]\nspec = \"null\"\n[[port]]\nname = \"null\"\n\
                spec = \"ring:a\"\n[[port]]\nspec = \"nul:\"\n[[port]]\nspc = \"null\"\n";
    let errors = told(text, |file| {
        assert_eq!(ports(file).len(), 5);
    });
    assert_eq!(
        errors,
        [
            "6: port.name: `null` names two ports; a name of its own",
            "9: port.spec: there is no kind of port `nul`; perhaps null",
            "11: port.spc: there is no such key; perhaps spec",
        ]
    );
}

#[test]
fn a_value_is_the_text_that_the_command_line_has_for_it() {
    let text = "a = 1\nb = 0x11\nc = \"x\"\nd = true\ne = [1, \"2-3\"]\nf = 1.5\ng = 1979-05-27\n";
    let errors = told(text, |file| {
        let keys = ["a", "b", "c", "d", "e", "f"];
        let all = keys.map(|key| file.scalar(key, "").unwrap().value);
        assert_eq!(all, ["1", "17", "x", "on", "1,2-3", "1.5"]);
        assert_eq!(file.scalar("g", "a time"), None);
    });
    assert_eq!(errors, ["7: g: this is a date; a time"]);
}

#[test]
fn a_word_is_a_text_or_a_whole_number() {
    let text = "a = 443\nb = \"443\"\nc = 0x1bb\nd = 70000\ne = 4.5\nf = [443]\n";
    let port = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("`{text}` is no port"))
    };
    let errors = told(text, |file| {
        for key in ["a", "b", "c"] {
            assert_eq!(file.word(key, "a port", port).unwrap().value, 443);
        }
        for key in ["d", "e", "f", "g"] {
            assert_eq!(file.word(key, "a port", port), None);
        }
    });
    assert_eq!(
        errors,
        [
            "4: d: `70000` is no port; a port",
            "5: e: this is a number with a fraction; a port",
            "6: f: this is a list; a port",
        ]
    );
}

#[test]
fn what_is_wrong_with_several_files_is_one_error() {
    let error = |line| ConfigError {
        line,
        key: "route.port".into(),
        problem: "no port `x`".into(),
        legal: "0 to 2".into(),
    };
    let mut wrong = Wrong::default();
    wrong.add("a.cfg", vec![error(3)]);
    let one = wrong.clone().result().unwrap_err();
    assert_eq!(one.to_string(), "a.cfg:3: route.port: no port `x`; 0 to 2");
    assert_eq!(one.fix().unwrap(), "correct this line");
    wrong.add("b.toml", (1..=60).map(error).collect());
    let all = wrong.checked_by("look".into()).result().unwrap_err();
    let text = all.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "a.cfg, b.toml: 61 things are wrong");
    assert_eq!((lines.len(), lines[51]), (52, "and 11 more"));
    assert_eq!(
        all.fix().unwrap(),
        "correct these lines; `look` looks again"
    );
}
