//! Just enough of Rust's lexical structure to find `unsafe` in code, not in comments or strings.

/// What an `unsafe` keyword introduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Block,
    Fn,
    Impl,
    Trait,
    /// `unsafe extern "C" { .. }`
    Extern,
    /// `#[unsafe(..)]`
    Attribute,
}

/// One `unsafe` keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsafe {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    /// A `// SAFETY:` comment stands directly above it (or its statement), or before it on its line.
    pub(crate) explained: bool,
}

/// Every `unsafe` in `source`, in order.
pub(crate) fn find_unsafe(source: &str) -> Vec<Unsafe> {
    let code = blank_comments_and_strings(source);
    let code_lines: Vec<&str> = code.lines().collect();
    let source_lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("unsafe") {
        let after = &code[at + "unsafe".len()..];
        if is_word(code[..at].chars().next_back()) || is_word(after.chars().next()) {
            continue;
        }
        let line = code[..at].matches('\n').count();
        found.push(Unsafe {
            line: line + 1,
            kind: kind(after),
            explained: is_explained(&source_lines, &code_lines, line),
        });
    }
    found
}

fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c == '_' || c.is_alphanumeric())
}

fn kind(after: &str) -> Kind {
    let after = after.trim_start();
    match after.split(|c: char| !is_word(Some(c))).next() {
        Some("fn") => Kind::Fn,
        Some("impl") => Kind::Impl,
        Some("trait") => Kind::Trait,
        // Strings are blanked, so the ABI's name is gone and `fn` or `{` comes next.
        Some("extern") => {
            let rest =
                after["extern".len()..].trim_start_matches(|c: char| c.is_whitespace() || c == '"');
            if rest.starts_with("fn") {
                Kind::Fn
            } else {
                Kind::Extern
            }
        }
        _ if after.starts_with('(') => Kind::Attribute,
        _ => Kind::Block,
    }
}

/// Walks up from `line` over attributes and the first lines of the same statement to a comment.
fn is_explained(source: &[&str], code: &[&str], line: usize) -> bool {
    let before = source[line].split("unsafe").next().unwrap_or_default();
    if before.contains("SAFETY:") {
        return true;
    }
    for above in (0..line).rev() {
        let text = source[above].trim();
        let code_above = code[above].trim();
        if code_above.is_empty() {
            if text.is_empty() {
                return false;
            }
            if text.contains("SAFETY:") {
                return true;
            }
        } else if !code_above.starts_with("#[") && code_above.ends_with([';', '{', '}', ',']) {
            return false;
        }
    }
    false
}

/// The source with every comment, string and character literal turned into spaces, newlines kept.
fn blank_comments_and_strings(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let word_before = at > 0 && is_word(Some(char::from(bytes[at - 1])));
        let length = match rest {
            [b'/', b'/', ..] => rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => block_comment(rest),
            [b'"', ..] => string(rest),
            [b'r' | b'b' | b'c', ..] if !word_before => match raw_string(rest) {
                Some(length) => length,
                None => {
                    at += 1;
                    continue;
                }
            },
            [b'\'', ..] => match character(rest) {
                Some(length) => length,
                None => {
                    at += 1;
                    continue;
                }
            },
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length;
    }
    // Whole characters are blanked or kept, so this replaces nothing.
    String::from_utf8_lossy(&code).into_owned()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`, `br"..."`, `cr"..."`: the length, if it is one.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = if rest[0] == b'r' { 1 } else { 2 };
    if rest.get(prefix - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = prefix + hashes + 1;
    let length = rest[body..]
        .windows(end.len())
        .position(|window| window == end);
    Some(length.map_or(rest.len(), |length| body + length + end.len()))
}

/// `'x'` or `'\n'`, but not the lifetime `'a`.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|&b| b == b'\'')?;
        return Some(close + 4);
    }
    let close = rest.iter().skip(1).take(6).position(|&b| b == b'\'')?;
    let one_char = std::str::from_utf8(&rest[1..1 + close]).is_ok_and(|s| s.chars().count() == 1);
    one_char.then_some(close + 2)
}

#[cfg(test)]
mod tests {
    use super::{Kind, find_unsafe};

    fn found(source: &str) -> Vec<(usize, Kind, bool)> {
        find_unsafe(source)
            .iter()
            .map(|u| (u.line, u.kind, u.explained))
            .collect()
    }

    #[test]
    fn sees_code_only() {
        let source = r##"
#![forbid(unsafe_code)] // unsafe { }
/* unsafe /* unsafe */ unsafe */
const A: &str = "unsafe \" unsafe"; const B: char = '"'; fn f<'a>() {}
const C: &str = r#"unsafe " unsafe"#; const D: u8 = b'\''; const UNSAFE: () = ();
"##;
        assert_eq!(found(source), []);
    }

    #[test]
    fn tells_the_kinds_apart() {
        let source = "unsafe fn f() {}\nunsafe impl Send for X {}\nunsafe trait T {}\n\
            unsafe extern \"C\" fn g() {}\nunsafe extern \"C\" { }\n#[unsafe(no_mangle)]\nx = unsafe { y };\n";
        let kinds: Vec<Kind> = find_unsafe(source).iter().map(|u| u.kind).collect();
        use Kind::*;
        assert_eq!(kinds, [Fn, Impl, Trait, Fn, Extern, Attribute, Block]);
    }

    #[test]
    fn wants_the_comment_directly_above_the_statement() {
        let above = "fn f() {\n    // SAFETY: checked\n    // above.\n    let x =\n        unsafe { y };\n}\n";
        assert_eq!(found(above), [(5, Kind::Block, true)]);
        let far = "fn f() {\n    // SAFETY: checked\n\n    unsafe { y };\n}\n";
        assert_eq!(found(far), [(4, Kind::Block, false)]);
        let other = "fn f() {\n    // SAFETY: of g\n    g();\n    unsafe { y };\n}\n";
        assert_eq!(found(other), [(4, Kind::Block, false)]);
        let attribute = "// SAFETY: no state.\n#[cfg(x)]\nunsafe impl Send for X {}\n";
        assert_eq!(found(attribute), [(3, Kind::Impl, true)]);
    }
}
