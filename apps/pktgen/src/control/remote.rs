//! `linerate pktgen --connect`: commands for a session that runs elsewhere, or its screen.

use std::io::IsTerminal;
use std::path::Path;

use super::client::Client;
use super::listen::Address;
use super::runfile::Script;
use linerate_appliance::error::Error;
use linerate_appliance::output;
use linerate_appliance::runtime::Interrupts;

/// Connects, and runs the commands in order, up to the first that fails. Without commands: shows
/// the screen on a terminal, else prints one snapshot.
pub(super) fn run(
    address: &Address,
    token: Option<&str>,
    commands: &[String],
    file: Option<&Path>,
    json: bool,
) -> Result<(), Error> {
    let mut client = match (address, token) {
        (Address::Unix(path), _) => Client::connect(path)?,
        (Address::Tcp(tcp), Some(token)) => Client::connect_tcp(tcp, token)?,
        (Address::Tcp(_), None) => {
            return Err(Error::Usage {
                problem: format!("{address}: a session on TCP asks for its token"),
                fix: "add --token-file FILE".into(),
            });
        }
    };
    let mut lines: Vec<(String, String)> = Vec::new();
    if let Some(path) = file {
        let Script::Commands(script) = Script::read(path)? else {
            return Err(Error::Usage {
                problem: format!("{}: a run file opens ports of its own", path.display()),
                fix: format!(
                    "have the session load it: --command \"load {}\"",
                    path.display()
                ),
            });
        };
        let at = |number: usize| format!("{}:{number}: ", path.display());
        lines.extend(script.into_iter().map(|(number, line)| (at(number), line)));
    }
    lines.extend(commands.iter().map(|line| (String::new(), line.clone())));
    if lines.is_empty() {
        if !json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            return crate::tui::run(client, &Interrupts::catch()?).map(drop);
        }
        return output::print_json(&client.snapshot()?);
    }
    for (place, line) in lines {
        let reply = client.command(&line).map_err(|mut problem| {
            problem.problem.insert_str(0, &place);
            problem
        })?;
        if json {
            output::print_json(&reply)?;
        } else if !reply.text.is_empty() {
            output::print(&format!("{}\n", reply.text))?;
        }
    }
    Ok(())
}
