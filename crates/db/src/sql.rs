//! The text of a statement.
use std::borrow::Cow;

/// A statement. The few statements that the engines spell differently have two texts.
#[derive(Debug, Clone, Copy)]
pub struct Sql {
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

impl Sql {
    /// One text for each engine. Use it for row locks, which SQLite with its one writer does not need, and for nothing
    /// else.
    pub const fn two(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }
}

/// Accepts only text that is part of the program, so that no statement can be built from input.
impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        Self::two(text, text)
    }
}

/// A `SELECT` that locks its rows until the transaction ends: `tx.opt(holding!("SELECT …"), params![id])`.
#[macro_export]
macro_rules! holding {
    ($question:literal) => {
        $crate::Sql::two($question, concat!($question, " FOR NO KEY UPDATE"))
    };
}

/// A statement on its way to an engine. A borrowed text stays prepared; an owned one comes from a
/// [`Composed`](crate::Composed) statement and does not.
pub(crate) type Text = Cow<'static, str>;
