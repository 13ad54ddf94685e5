//! The parts that every appliance has.
//!
//! | room | what |
//! |---|---|
//! | [`runtime`] | ports, workers and their queues; signals; rates on the screen and in JSON |
//! | [`config`] | how files are read, key by key, and the stanzas that all commands share |
//! | [`control`] | access of clients, requests to threads; metrics, tables, reload |
//! | [`socket`] | the control socket: requests, answers, both ends |
//! | [`ctl`], [`capture`] | the commands that ask a running appliance |
//! | [`output`] | tables for users, JSON, facts about the machine |
//! | [`error`] | errors and their fixes |
//! | [`privilege`] | the process that keeps the privileges, and what it does for this one |
//! | [`notify`] | what the service manager hears |
//! | [`netlink`], [`address`] | the kernel's interfaces and their addresses |
//! | [`supplement`] | the files that `--print` shows |
//! | [`netns`], [`users`], [`files`], [`nearest`] | small helpers: namespaces, users, files, names |
#![forbid(unsafe_code)]

#[macro_use]
mod stderr;

pub mod address;
pub mod capture;
pub mod config;
pub mod control;
pub mod ctl;
pub mod error;
pub mod files;
pub mod nearest;
pub mod netlink;
pub mod netns;
pub mod notify;
pub mod output;
pub mod privilege;
pub mod runtime;
pub mod socket;
pub mod supplement;
pub mod users;
