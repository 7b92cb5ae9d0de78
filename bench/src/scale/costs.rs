//! What an act costs, from docs/performance.md. A figure that was not measured says so in its comment, as an assumption.

/// Processor seconds of a node, commits and bytes of the database, for one act.
pub struct Act {
    pub name: &'static str,
    /// Seconds of one core of a node. Measured.
    pub node: f64,
    /// Durable commits. Assumed: read from the code in part, not counted.
    pub commits: f64,
    /// Lines of the audit log. Assumed, likewise.
    pub audited: f64,
    /// How often a daily user does it in a day. Assumed.
    pub a_day: f64,
}

/// `POST /auth/login`: 38.6 a processor second. A session and a line of the audit log, in one commit.
pub const SIGN_IN: Act = Act { name: "sign-in", node: 1.0 / 38.6, commits: 1.0, audited: 1.0, a_day: 0.2 };
/// 2,026 a processor second; the turned token is one commit.
pub const REFRESH: Act = Act { name: "refresh", node: 1.0 / 2_026.0, commits: 1.0, audited: 0.0, a_day: 4.0 };
/// `GET /auth/me`: 80,343 a processor second, from memory.
pub const ME: Act = Act { name: "/auth/me", node: 1.0 / 80_343.0, commits: 0.0, audited: 0.0, a_day: 20.0 };
/// 59,941 a processor second, from memory.
pub const INTROSPECT: Act =
    Act { name: "introspection", node: 1.0 / 59_941.0, commits: 0.0, audited: 0.0, a_day: 40.0 };
/// A change with its line in the audit log: 17,234 a second.
pub const CHANGE: Act = Act { name: "change", node: 1.0 / 17_234.0, commits: 1.0, audited: 1.0, a_day: 0.5 };
/// 35.6 a processor second. Assumed: one daily user in a thousand is new.
pub const SIGN_UP: Act = Act { name: "sign-up", node: 1.0 / 35.6, commits: 2.0, audited: 1.0, a_day: 0.001 };
/// An event accepted and delivered: 6,706 a second. Its row is written with the cause; its outcome is written with others, 32 a
/// commit (assumed).
pub const DELIVERY: Act = Act { name: "webhook", node: 1.0 / 6_706.0, commits: 1.0 / 32.0, audited: 0.0, a_day: 1.0 };
/// A usage event in a batch of 100: 20,556 a processor second, and a commit for the batch.
pub const USAGE: Act = Act { name: "usage event", node: 1.0 / 20_556.0, commits: 0.01, audited: 0.0, a_day: 20.0 };
/// A TLS handshake: 2,844 a processor second. Nothing where a proxy does it.
pub const HANDSHAKE: Act = Act { name: "TLS handshake", node: 1.0 / 2_844.0, commits: 0.0, audited: 0.0, a_day: 6.0 };

pub const ACTS: [Act; 9] = [SIGN_IN, REFRESH, ME, INTROSPECT, CHANGE, SIGN_UP, DELIVERY, USAGE, HANDSHAKE];

/// A user with a session and three lines of the audit log on the disk, in bytes. Measured.
pub const USER_BYTES: f64 = 5_700.0;
/// A line of the audit log with its indexes, in bytes. Assumed: a row of 250 and three entries of indexes.
pub const AUDIT_BYTES: f64 = 500.0;
/// Resident memory of a node: idle, and for each open connection. Measured.
pub const IDLE_BYTES: f64 = 27.9e6;
pub const CONNECTION_BYTES: f64 = 20.2e3;

/// PostgreSQL: 4,772 changes a second by pgbench with a quick disk, on a machine of two processors that the clients shared. All of
/// them are counted for the server, so this is more than a change costs.
pub const DATABASE: f64 = 2.0 / 4_772.0;
/// One row that all change: 1,217 times a second with a quick disk, so a turn takes this beside the commit. Measured.
pub const TURN: f64 = 1.0 / 1_217.0;
/// How long a commit takes where the log is flushed to a second machine as well. Assumed.
pub const COMMIT: f64 = 0.001;
/// How long the slow disk of the measurement took.
pub const SLOW_COMMIT: f64 = 0.004;

/// Raw SQLite: 230,693 inserts a second with 100 in a commit, 144,095 with 32. So a commit and a row take:
pub const SQLITE_COMMIT: f64 = (1.0 / 144_095.0 - 1.0 / 230_693.0) / (1.0 / 32.0 - 1.0 / 100.0);
pub const SQLITE_ROW: f64 = 1.0 / 230_693.0 - SQLITE_COMMIT / 100.0;
