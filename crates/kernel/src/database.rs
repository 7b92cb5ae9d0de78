//! The database as the rest of the service sees it: transactions of the [`Janua`], and database errors as faults.
use std::time::Duration;

use db::{Error, Outcome, Work};

use crate::{
    Janua,
    fault::{self, Fault},
    telemetry,
};

/// Runs an async closure in one transaction and commits it; its error is a [`Fault`]:
/// `transact!(janua, async |tx| { …; Ok(made) })`. Everything else is as in [`db::transact!`], which is for the few places
/// that want a [`db::Error`].
#[macro_export]
macro_rules! transact {
    ($janua:expr, async |$tx:ident| $work:expr) => {
        ::db::transact!($janua.db, $crate::fault::Fault, async |$tx| $work)
    };
}

impl Janua {
    /// Runs a hot transaction with [`Db::carry`](db::Db::carry). Its log lines carry the id of the present request or job,
    /// as everywhere else.
    pub async fn carry<A, T, E>(&self, along: A, work: Work<A, T, E>) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: Outcome + Send + 'static,
    {
        let along = (telemetry::about(), along, work);
        let carried = self.db.carry(along, |tx, (about, along, work)| match about {
            Some(about) => Box::pin(telemetry::ABOUT.scope(about.clone(), work(tx, along))),
            None => work(tx, along),
        });
        carried.await
    }
}

impl From<Error> for Fault {
    #[track_caller]
    fn from(error: Error) -> Self {
        let wait = Duration::from_secs(1);
        match error {
            Error::NulInText => fault::INVALID.because("Text must not contain NUL characters."),
            // The row it refers to was deleted meanwhile.
            Error::ForeignKey => fault::CONFLICT.caused_by(error),
            Error::Full => fault::STORAGE_FULL.caused_by(error).retry_after(10 * wait),
            Error::Conflict(_) => fault::UNAVAILABLE.caused_by(error).retry_after(wait).marked_conflict(),
            Error::Unavailable(_) | Error::ReadOnly(_) | Error::Timeout | Error::Silent => {
                fault::UNAVAILABLE.caused_by(error).retry_after(wait)
            }
            // Seen by handlers alone: the door replaces it with the answer given before.
            Error::Repeated => fault::IDEMPOTENCY_IN_PROGRESS.into(),
            _ => fault::INTERNAL.caused_by(error),
        }
    }
}

impl Outcome for Fault {
    fn is_conflict(&self) -> bool {
        Self::is_conflict(self)
    }
}
