//! What an act costs. The acts are those that `bench nodes` measured; what was not measured says so in its comment, as an
//! assumption.
use super::stored::{ActCost, Measurements};

/// Processor seconds of a node and of PostgreSQL, commits and lines of the audit log, for one act.
pub struct Act {
    pub name: &'static str,
    pub node: f64,
    pub database: f64,
    pub round_trips: f64,
    pub commits: f64,
    pub audited: f64,
    /// How often a daily user does it in a day. Assumed.
    pub a_day: f64,
}

/// Events of a batch.
pub const BATCH: f64 = 100.0;
pub const USAGE: &str = "usage event";

/// The acts of a daily user.
pub fn acts() -> Vec<Act> {
    let stored = Measurements::stored();
    let act = |name, measured: &str, divided_by: f64, a_day| {
        let none = ActCost::default();
        let cost = stored.act(measured).unwrap_or(&none);
        Act {
            name,
            node: cost.node_us * 1e-6 / divided_by,
            database: cost.database_us * 1e-6 / divided_by,
            round_trips: cost.round_trips / divided_by,
            commits: cost.commits / divided_by,
            audited: cost.audited / divided_by,
            a_day,
        }
    };
    vec![
        act("sign-in", "sign-in", 1.0, 0.2),
        act("refresh", "refresh", 1.0, 4.0),
        act("/auth/me", "/auth/me", 1.0, 20.0),
        act("introspection", "introspection", 1.0, 40.0),
        act("change", "change", 1.0, 0.5),
        // One daily user in a thousand is new.
        act("sign-up", "sign-up", 1.0, 0.001),
        act("webhook", "webhook", 1.0, 1.0),
        act(USAGE, "100 usage events", BATCH, 20.0),
        // 2,844 a processor second (docs/performance.md). Nothing where a proxy does it.
        Act {
            name: "TLS handshake",
            node: 1.0 / 2_844.0,
            database: 0.0,
            round_trips: 0.0,
            commits: 0.0,
            audited: 0.0,
            a_day: 6.0,
        },
    ]
}

/// A user with a session and three lines of the audit log on the disk, in bytes. Measured, on SQLite.
pub const USER_BYTES: f64 = 5_700.0;
/// A line of the audit log with its indexes, in bytes. Assumed: a row of 250 and three entries of indexes.
pub const AUDIT_BYTES: f64 = 500.0;
/// Resident memory of a node: idle, and for each open connection. Measured.
pub const IDLE_BYTES: f64 = 27.9e6;
pub const CONNECTION_BYTES: f64 = 20.2e3;

/// What a round trip from a node to PostgreSQL takes on the network. Assumed.
pub const NETWORK: f64 = 0.000_2;
/// How long a commit takes where the log is flushed to a second machine as well. Assumed.
pub const COMMIT: f64 = 0.001;

/// Raw SQLite: 230,693 inserts a second with 100 in a commit, 144,095 with 32. So a commit and a row take:
pub const SQLITE_COMMIT: f64 = (1.0 / 144_095.0 - 1.0 / 230_693.0) / (1.0 / 32.0 - 1.0 / 100.0);
pub const SQLITE_ROW: f64 = 1.0 / 230_693.0 - SQLITE_COMMIT / 100.0;
