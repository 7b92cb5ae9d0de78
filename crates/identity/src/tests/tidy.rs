//! Deleting what has expired, however much it is.
use std::time::Duration;

use db::params;
use kernel::testing::{TestJanua, longest_wait, many};

use super::actors::*;

const EXPIRED: &str = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM session WHERE ends_at < $1";

/// Sessions that ended long ago, with ids in no order.
async fn expire(t: &TestJanua, account: &str, sessions: i64) {
    let sql =
        "INSERT INTO session (id, account_id, generation, rotated_at, created_at, authenticated_at, last_seen_at,
                                    expires_at, ends_at, methods, device, user_agent, ip)
               WITH RECURSIVE n (i) AS (SELECT CAST($2 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $3)
               SELECT CAST((i * 7919) % 1000003 AS TEXT) || '-' || CAST(i AS TEXT), $1, 0, 1, 1, 1, 1, 1, i, '[]', '',
                      '', '' FROM n";
    for first in (0..sessions).step_by(20_000) {
        t.janua.db.exec(sql, params![account, first, sessions.min(first + 20_000)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_expired_sessions_goes_without_holding_anybody_up() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let sessions = many(100_000);
    expire(&t, &person.id, sessions).await;
    t.advance(Duration::from_hours(1));
    let (_, slowest) = t.beside_a_writer(t.run_jobs()).await;
    let (left,): (i64,) = t.janua.db.one(EXPIRED, params![t.janua.clock.now()]).await.unwrap();
    assert_eq!(left, 0, "of {sessions}");
    assert!(slowest < longest_wait(), "another write waited for {slowest:?}");
    println!("{sessions} sessions deleted; the slowest write beside it took {slowest:.1?}");
    t.finish().await;
}

#[tokio::test]
async fn one_chore_that_fails_stops_no_other_and_keys_turn_all_the_same() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    expire(&t, &person.id, 10).await;
    t.janua.db.exec("ALTER TABLE once RENAME TO missing", params![]).await.unwrap();
    let published = || async { t.get("/.well-known/jwks.json").await.body["keys"].as_array().unwrap().len() };
    assert_eq!(published().await, 2);
    // The published key has begun to sign.
    t.advance(Duration::from_hours(91 * 24));
    t.run_jobs().await;
    let (left,): (i64,) = t.janua.db.one(EXPIRED, params![t.janua.clock.now()]).await.unwrap();
    assert_eq!(left, 0, "what comes after the chore that failed is done");
    assert_eq!(published().await, 2, "another key is published behind the one that signs");
    let sql = "SELECT last_error FROM job WHERE kind = 'tidy'";
    let (why,): (String,) = t.janua.db.one(sql, params![]).await.unwrap();
    assert!(why.starts_with("once: "), "{why}");
    t.janua.db.exec("ALTER TABLE missing RENAME TO once", params![]).await.unwrap();
    t.advance(Duration::from_hours(2));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn budgets_of_past_hours_and_old_reports_of_abuse_are_deleted() {
    let t = start().await;
    let now = t.janua.clock.now();
    let hour = now.0 / 3_600_000;
    for (subject, hour) in [("past", hour - 1), ("present", hour + 1)] {
        let sql = "INSERT INTO send_budget (subject, hour, sent) VALUES ($1, $2, 1)";
        t.janua.db.exec(sql, params![subject, hour]).await.unwrap();
    }
    for (id, days) in [("old", 91), ("recent", 89)] {
        let sql = "INSERT INTO abuse_report (id, kind, subject, score, reasons, route, seen, first_at, last_at)
                   VALUES ($1, 'network', $1, 100, '[]', '/', 1, $2, $2)";
        t.janua.db.exec(sql, params![id, now.minus(Duration::from_hours(24 * days))]).await.unwrap();
    }
    t.advance(Duration::from_hours(1));
    t.run_jobs().await;
    let left = "SELECT subject FROM send_budget WHERE subject IN ('past', 'present')
                UNION ALL SELECT id FROM abuse_report ORDER BY 1";
    let left: Vec<(String,)> = t.janua.db.all(left, params![]).await.unwrap();
    assert_eq!(left, [("present".to_owned(),), ("recent".to_owned(),)]);
    t.finish().await;
}
