//! Reports of `linerate bench`: one [`schema`], and four ways to show it.

mod schema;

pub(crate) use schema::*;
