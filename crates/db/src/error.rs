//! Errors of the database, in the same words for both engines.

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a statement or a transaction failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Named as PostgreSQL names it: `account_email_key`, `account_pkey`.
    #[error("unique constraint {0} refused the row")]
    Unique(String),
    #[error("a foreign key refused the change")]
    ForeignKey,
    #[error("no row where one was expected")]
    Missing,
    #[error("cannot read the row: {0}")]
    Decode(String),
    #[error("text holds a NUL character, which no column can keep")]
    NulInText,
    /// Lost against another transaction; worth trying again from the start.
    #[error("lost against another transaction: {0}")]
    Conflict(String),
    #[error("an earlier statement of this transaction failed")]
    Aborted,
    #[error("the transaction was silent for too long and was rolled back")]
    Silent,
    #[error("the statement took too long")]
    Timeout,
    #[error("the disk is full")]
    Full,
    #[error("the database takes no writes: {0}")]
    ReadOnly(String),
    #[error("the database is out of reach: {0}")]
    Unavailable(String),
    /// The request this is part of was carried out before; see [`claim`](crate::claim).
    #[error("the request was carried out before")]
    Repeated,
    #[error("{0}")]
    Driver(String),
}

impl Error {
    /// Whether the named unique constraint refused the row.
    pub fn is_unique(&self, constraint: &str) -> bool {
        matches!(self, Self::Unique(name) if name == constraint)
    }
}

/// An error type that a transaction may end with.
pub trait Outcome: From<Error> {
    /// Whether the whole transaction should be tried again.
    fn is_conflict(&self) -> bool;
}

impl Outcome for Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}
