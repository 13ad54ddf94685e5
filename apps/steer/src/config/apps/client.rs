//! `[[app]] kind = "http-client"`.

use std::path::Path;
use std::sync::Arc;

use linerate_appliance::config::{At, Section};
use linerate_stack::socket::StackConfig;

use super::{ADDRESS, ip_options, said};
use crate::http::client::Job;
use crate::http::client::load::{Arrivals, Load};
use crate::http::site::Content;

const ARRIVALS: [(&str, Arrivals); 2] = [("even", Arrivals::Even), ("poisson", Arrivals::Poisson)];

/// What a client does; `None` where its server is missing.
pub(super) fn read(section: &Section<'_>, stack: &StackConfig) -> Option<Job> {
    let to = match section.requires("connect", ADDRESS) {
        true => said(section.parsed("connect", ADDRESS)),
        false => None,
    };
    let legal = "the value of a Host field, such as \"example.org\"";
    let host = said(section.word("host", legal, |text| {
        let is_good = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_good
            .then(|| text.to_owned())
            .ok_or_else(|| "it is no host".into())
    }));
    let legal = "paths, such as [\"/\", \"/1k?x=y\"]";
    let paths = section.texts("paths", legal, path);
    let connections = said(section.number("connections", 1..=stack.connections));
    let keeps = said(section.switch("keep"));
    let rate = section.number("rate", 1..=1_000_000_000_u64);
    let arrivals = section.choice("arrivals", &ARRIVALS);
    if let (None, Some(at)) = (&rate, &arrivals) {
        let problem = "without a rate requests leave when answers come";
        section.wrong(at.line, "arrivals", problem, "rate as well");
    }
    let requests = section.number("requests", 1..=i64::MAX as u64);
    let timeout = said(section.seconds("timeout"));
    let expects = expects(section);
    let usual = Job::to(to?);
    Some(Job {
        host: host.unwrap_or_else(|| usual.host.clone()),
        paths: match paths.is_empty() {
            true => usual.paths,
            false => paths.into_iter().map(|at| at.value).collect(),
        },
        connections: connections.unwrap_or(usual.connections),
        keeps: keeps.unwrap_or(usual.keeps),
        load: match rate {
            None => Load::Closed,
            Some(At { value, .. }) => Load::Open {
                per_s: value as f64,
                arrivals: said(arrivals).unwrap_or_default(),
            },
        },
        requests: said(requests),
        timeout: timeout.unwrap_or(usual.timeout),
        expects,
        ip: ip_options(section),
        ..usual
    })
}

/// `expect`, a file, or `expect_bytes`.
fn expects(section: &Section<'_>) -> Option<Content> {
    let made_up = section.number("expect_bytes", 0..=i64::MAX as u64);
    let file = section.text("expect", "the path of a file");
    if let (Some(at), Some(_)) = (&made_up, &file) {
        let problem = "expect and expect_bytes are both said";
        section.wrong(at.line, "expect_bytes", problem, "one of them");
    }
    let Some(At { value, line }) = file else {
        return made_up.map(|at| Content::Pattern(at.value));
    };
    match std::fs::read(Path::new(&value)) {
        Ok(bytes) => Some(Content::Bytes(Arc::from(bytes))),
        Err(error) => {
            let problem = format!("{value}: {error}");
            section.wrong(line, "expect", problem, "a file that can be read");
            None
        }
    }
}

/// The target of a request in origin-form (RFC 9112 3.2.1).
pub(crate) fn path(text: &str) -> Result<String, String> {
    let is_good = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_good {
        true => Ok(text.into()),
        false => Err(format!(
            "`{text}` is no path: it begins with / and has no blanks"
        )),
    }
}
