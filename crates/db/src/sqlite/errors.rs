//! SQLite's errors as errors of this crate.
use rusqlite::{ErrorCode, ffi};

use super::super::Error;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(failure, message) = &error else {
            return Self::Driver(error.to_string());
        };
        match (failure.extended_code, failure.code) {
            (ffi::SQLITE_CONSTRAINT_UNIQUE, _) => Self::Unique(constraint(message.as_deref(), false)),
            (ffi::SQLITE_CONSTRAINT_PRIMARYKEY, _) => Self::Unique(constraint(message.as_deref(), true)),
            (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, _) => Self::ForeignKey,
            (_, ErrorCode::DiskFull) => Self::Full,
            (_, ErrorCode::OperationInterrupted) => Self::Timeout,
            (_, ErrorCode::ReadOnly) => Self::ReadOnly(error.to_string()),
            (
                _,
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::CannotOpen
                | ErrorCode::SystemIoFailure,
            ) => Self::Unavailable(error.to_string()),
            _ => Self::Driver(error.to_string()),
        }
    }
}

/// `UNIQUE constraint failed: account.email, account.org` under the name PostgreSQL would give it.
fn constraint(message: Option<&str>, primary: bool) -> String {
    let columns = message.and_then(|m| m.rsplit_once(": ")).map_or("", |(_, columns)| columns);
    if let Some(index) = columns.strip_prefix("index '") {
        return index.trim_end_matches('\'').to_owned();
    }
    let mut pairs = columns.split(", ").filter_map(|column| column.split_once('.')).peekable();
    let table = pairs.peek().map_or("", |(table, _)| table);
    if primary {
        return format!("{table}_pkey");
    }
    let columns: Vec<_> = pairs.map(|(_, column)| column).collect();
    format!("{table}_{}_key", columns.join("_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violated_constraint_has_the_name_postgresql_gives_it() {
        let unique = |columns| constraint(Some(columns), false);
        assert_eq!(unique("UNIQUE constraint failed: account.email"), "account_email_key");
        assert_eq!(unique("UNIQUE constraint failed: member.org_id, member.user_id"), "member_org_id_user_id_key");
        assert_eq!(unique("UNIQUE constraint failed: index 'account_alias_key'"), "account_alias_key");
        assert_eq!(constraint(Some("UNIQUE constraint failed: account.id"), true), "account_pkey");
    }
}
