//! Undoes changes to the machine however we end: return, panic, Ctrl-C or kill -9.
//!
//! A shell waits at the other end of a pipe, and ignores the terminal's signals. Each [`Undo::add`]
//! hands it one command; when the pipe closes, because the value was dropped or because we died, it
//! runs them, the last one first.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::error::TaskError;

const SHELL: &str = r#"
trap '' INT HUP TERM QUIT
script=
while IFS= read -r line; do
  script="$line
$script"
done
eval "$script"
"#;

/// Commands to run when this value goes away, or when this process does.
pub(crate) struct Undo {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Undo {
    /// Starts with nothing to undo.
    pub(crate) fn new() -> Result<Undo, TaskError> {
        let start = |source| TaskError::Start {
            program: "sh".into(),
            source,
        };
        let mut shell = Command::new("sh")
            .args(["-c", SHELL])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(start)?;
        let pipe = shell.stdin.take();
        Ok(Undo { shell, pipe })
    }

    /// Adds one line of shell. Call it before the change it undoes.
    pub(crate) fn add(&mut self, line: &str) -> Result<(), TaskError> {
        debug_assert!(!line.contains('\n'), "one line a command");
        let pipe = self.pipe.as_mut().expect("the pipe is open until drop");
        writeln!(pipe, "{line}").map_err(TaskError::file("pipe to the undo shell"))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // An error here means that the shell has ended already.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::Undo;
    use crate::private_folder::PrivateFolder;

    #[test]
    fn undoes_in_reverse_order_on_drop() {
        let folder = PrivateFolder::new("undo").unwrap();
        let file = folder.join("undone");
        let path = file.display();
        let mut undo = Undo::new().unwrap();
        undo.add(&format!("echo first >> {path}")).unwrap();
        undo.add(&format!("echo second >> {path}")).unwrap();
        assert!(!file.exists(), "nothing runs before the drop");
        drop(undo);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "second\nfirst\n");
    }
}
