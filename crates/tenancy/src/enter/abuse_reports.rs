//! Networks that behaved suspiciously, for the people who run the platform.
use db::{Db, params, row};
use kernel::{Janua, clock::Timestamp, http::Key, id::Id};
use schemars::JsonSchema;
use serde::Serialize;

use super::visitor::Visitor;

/// An abuse report for platform owners.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbuseReport {
    pub id: Id<AbuseReport>,
    /// The kind of the report: `network`.
    pub kind: String,
    /// The network (an IPv4 address or an IPv6 /64).
    pub subject: String,
    pub score: i64,
    pub reasons: Vec<String>,
    /// The route of the latest report.
    pub route: String,
    /// How often.
    pub seen: i64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}
row!(AbuseReport { id, kind, subject, score, reasons, route, seen, first_at, last_at });

/// A page of the reports, newest first.
pub async fn abuse_reports(db: &Db, below: &Key, most: u32) -> db::Result<Vec<AbuseReport>> {
    db.all(
        "SELECT id, kind, subject, score, reasons, route, seen, first_at, last_at FROM abuse_report
         WHERE (last_at, id) < ($1, $2) ORDER BY last_at DESC, id DESC LIMIT $3",
        params![below.at, &below.id, most],
    )
    .await
}

/// Notes why a captcha was required of a visitor: one report a network, with the highest score.
pub(super) async fn report(janua: &Janua, visitor: &Visitor, score: i64, reasons: &[&str]) -> db::Result<()> {
    let now = janua.clock.now();
    let reasons: Vec<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
    janua
        .db
        .exec(
            "INSERT INTO abuse_report (id, kind, subject, score, reasons, route, seen, first_at, last_at)
             VALUES ($1, 'network', $2, $3, $4, $5, 1, $6, $6)
             ON CONFLICT (kind, subject) DO UPDATE SET
               score = CASE WHEN $3 > abuse_report.score THEN $3 ELSE abuse_report.score END,
               reasons = $4, route = $5, seen = abuse_report.seen + 1, last_at = $6",
            params![
                Id::<AbuseReport>::new(&janua.entropy, now),
                visitor.client.network().to_string(),
                score,
                &reasons,
                &visitor.route,
                now
            ],
        )
        .await?;
    Ok(())
}
