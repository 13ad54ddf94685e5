//! Links between the repository's own pages lead somewhere.

use std::path::{Path, PathBuf};

use crate::process;

/// Every page below a folder, build output and hidden folders aside.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Targets of `[text](target)` that are paths, without the part after `#`.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let links = page.split("](").skip(1);
    let ends = links.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    ends.filter(|target| !target.contains("://"))
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|path| !path.is_empty())
}

#[test]
fn links_between_pages_resolve() {
    let mut found = Vec::new();
    pages(&process::root(), &mut found);
    assert!(!found.is_empty());
    let mut broken = Vec::new();
    for page in &found {
        let text = std::fs::read_to_string(page).unwrap();
        let missing = targets(&text).filter(|path| !page.with_file_name(path).exists());
        broken.extend(missing.map(|path| format!("{}: {path}", page.display())));
    }
    assert!(broken.is_empty(), "no such file:\n{}", broken.join("\n"));
}

#[test]
fn only_paths_are_followed() {
    let page = "[a](b.md#c), [d](https://example.org), [e](#f) and [g](../h)";
    assert!(targets(page).eq(["b.md", "../h"]));
}
