//! Shell commands of scripts that only set `sysctl`s: what they set.
//!
//! In virtual time there is no shell. These commands mean something there: `sysctl ... KEY=VALUE`,
//! packetdrill's `set_sysctls.py /proc/sys/KEY=VALUE` and its `defaults.sh`. Others mean something
//! to Linux alone, and are passed over: `ip tcp_metrics flush`, a `pfifo` without limit, `nstat`;
//! `sysctl_restore_*` means nothing anywhere. All others are refused, with what they are.

/// What every script starts with, below `net.ipv4`: packetdrill's `defaults.sh`, where a kernel of
/// today has the setting. Against Linux the runner sets these; in virtual time they are what a
/// stack must start with.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("tcp_rmem", "4096 540000 15728640"),
    ("tcp_wmem", "4096 262144 4194304"),
    ("tcp_timestamps", "1"),
    ("tcp_window_scaling", "1"),
    ("tcp_sack", "1"),
    ("tcp_dsack", "1"),
    ("tcp_syn_retries", "5"),
    ("tcp_synack_retries", "5"),
    ("tcp_retries2", "15"),
    ("tcp_frto", "2"),
    ("tcp_reordering", "3"),
    ("tcp_congestion_control", "cubic"),
    ("tcp_slow_start_after_idle", "0"),
    ("tcp_early_retrans", "4"),
    ("tcp_recovery", "1"),
    ("tcp_tso_win_divisor", "3"),
    ("tcp_ecn", "0"),
    ("tcp_ecn_option", "2"),
    ("tcp_pacing_ss_ratio", "200"),
    ("tcp_pacing_ca_ratio", "120"),
    ("tcp_notsent_lowat", "4294967295"),
    ("tcp_fastopen", "0x70403"),
    ("tcp_fastopen_key", "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4"),
    ("tcp_syncookies", "1"),
    ("tcp_mtu_probing", "0"),
];

/// What a line of such a command is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// It makes settings, names below `net.ipv4`.
    Set(Vec<(String, String)>),
    /// It means something to Linux alone.
    LinuxOnly(String),
}

/// The lines of a command, if it has no others than those.
///
/// # Errors
/// What else it does, as a noun.
pub(crate) fn of_command(command: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let command = command.replace("\\\n", " "); // a shell's line goes on behind a backslash
    for line in command.split(['\n', ';']).map(str::trim) {
        let mut words = words(line);
        // A comment.
        if let Some(at) = words.iter().position(|word| word.starts_with('#')) {
            words.truncate(at);
        }
        let Some(program) = words.first() else {
            continue;
        };
        let ends = |name: &str| program.rsplit('/').next() == Some(name);
        let word = |index: usize| words.get(index).map_or("", String::as_str);
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        if ends("defaults.sh") || ends("sysctl") || ends("set_sysctls.py") {
            let mut settings = Vec::new();
            if ends("defaults.sh") {
                let defaults = DEFAULTS.iter();
                settings.extend(defaults.map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
            }
            // Behind the defaults there may be more, on the same line.
            settings.extend(assignments(&words[1..])?);
            lines.push(Line::Set(settings));
        } else if program.contains("sysctl_restore_") {
            // Nothing outlives a run.
        } else if ends("nstat")
            || ends("ip") && word(1) == "tcp_metrics" && word(2) == "flush"
            || ends("tc") && has("pfifo") && !has("limit")
        {
            lines.push(Line::LinuxOnly(line.to_owned()));
        } else {
            return Err(format!("the shell command {line:?}"));
        }
    }
    Ok(lines)
}

/// `KEY=VALUE` words; options of `sysctl`, redirections and other programs' names are left out.
fn assignments(words: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut settings = Vec::new();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            let idle = word.starts_with('-') || word.starts_with('>') || word.starts_with("2>");
            let program = word.ends_with("sysctl") || word.ends_with("set_sysctls.py");
            if idle || program || word == "/dev/null" {
                continue;
            }
            return Err(format!("the argument {word:?} of a shell command"));
        };
        let key = key.replace('.', "/");
        let key = key.strip_prefix("/proc/sys/").unwrap_or(&key);
        let Some(name) = key.strip_prefix("net/ipv4/") else {
            return Err(format!("the setting {key}"));
        };
        settings.push((name.to_owned(), value.to_owned()));
    }
    Ok(settings)
}

/// Words of a line as a shell divides them: quotes keep blanks, and go.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut inside) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                inside = true;
            }
            None if c.is_whitespace() => {
                if inside {
                    words.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            None => {
                word.push(c);
                inside = true;
            }
        }
    }
    if inside {
        words.push(word);
    }
    words
}
