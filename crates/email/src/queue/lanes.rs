//! Lanes as stored, and every statement on them.
use std::{collections::BTreeMap, time::Duration};

use db::{Db, Reach, Sql, Tx, params, row};
use kernel::clock::Timestamp;
use tenancy::apps::ApplicationId;

use crate::{
    sending::{MessageId, RecipientId},
    words::DomainStatus,
};

/// The topic on which new mail is announced to the dispatcher of this node.
pub const TOPIC: &str = "email";

/// Renewed while its mails are under way, so that a lane of a dead node is soon another one's.
const LEASE: Duration = Duration::from_mins(3);

/// Says that these lanes have something to deliver from these moments on.
pub async fn wake(tx: &mut Tx, lanes: &BTreeMap<String, Timestamp>) -> db::Result<()> {
    // Whoever lets go of a lane waits for those who add to it, and sees what they added. They do not wait for one another.
    const SHARE: Sql = Sql::two(
        "SELECT domain FROM email_lane WHERE domain = $1",
        "SELECT domain FROM email_lane WHERE domain = $1 FOR KEY SHARE",
    );
    for (domain, at) in lanes {
        let insert = "INSERT INTO email_lane (domain, next_at, held_until, fence, failures) VALUES ($1, $2, 0, 0, 0)
                      ON CONFLICT (domain) DO NOTHING";
        // A lane that was empty may be deleted between the two.
        for _ in 0..3 {
            tx.send(insert, params![domain, *at]).await?;
            if tx.opt::<(String,)>(SHARE, params![domain]).await?.is_some() {
                break;
            }
        }
        let sooner = "UPDATE email_lane SET next_at = $2 WHERE domain = $1 AND (next_at IS NULL OR next_at > $2)";
        tx.send(sooner, params![domain, *at]).await?;
    }
    tx.notify(Reach::ThisNode, TOPIC, "").await
}

/// A lane that this node delivers for.
#[derive(Debug, Clone)]
pub struct Held {
    pub domain: String,
    pub fence: i64,
    pub failures: u32,
}
row!(Held { domain, fence, failures });

impl Held {
    pub async fn claim(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        const CLAIM: Sql = Sql::two(
            "UPDATE email_lane SET held_until = $2, fence = fence + 1 WHERE domain IN
                 (SELECT domain FROM email_lane WHERE next_at <= $1 AND held_until <= $1 ORDER BY next_at, domain LIMIT $3)
             RETURNING domain, fence, failures",
            "WITH due AS MATERIALIZED
                 (SELECT domain FROM email_lane WHERE next_at <= $1 AND held_until <= $1
                  ORDER BY next_at, domain LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)
             UPDATE email_lane SET held_until = $2, fence = fence + 1 FROM due WHERE email_lane.domain = due.domain
             RETURNING email_lane.domain, email_lane.fence, email_lane.failures",
        );
        db.put(CLAIM, params![now, now.plus(LEASE), most]).await
    }

    /// When a lane that nobody holds has something to deliver next.
    pub async fn next(db: &Db, now: Timestamp) -> db::Result<Option<Timestamp>> {
        let sql = "SELECT next_at FROM email_lane WHERE next_at IS NOT NULL AND held_until <= $1
                   ORDER BY next_at, domain LIMIT 1";
        Ok(db.opt::<(Timestamp,)>(sql, params![now]).await?.map(|(at,)| at))
    }

    /// Makes it ours for another lease; `false` when it is another node's by now.
    pub async fn renew(&self, tx: &mut Tx, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE email_lane SET held_until = $3 WHERE domain = $1 AND fence = $2";
        Ok(tx.exec(sql, params![&self.domain, self.fence, now.plus(LEASE)]).await? == 1)
    }

    /// Lets go of it until its next mail is due, or until `rest` is over.
    pub async fn release(&self, tx: &mut Tx, failures: u32, rest: Option<Timestamp>) -> db::Result<()> {
        const HOLD: Sql = Sql::two(
            "SELECT domain FROM email_lane WHERE domain = $1 AND fence = $2",
            "SELECT domain FROM email_lane WHERE domain = $1 AND fence = $2 FOR UPDATE",
        );
        if tx.opt::<(String,)>(HOLD, params![&self.domain, self.fence]).await?.is_none() {
            return Ok(());
        }
        let first = "SELECT next_at FROM email_recipient WHERE lane = $1 AND next_at IS NOT NULL ORDER BY next_at, id LIMIT 1";
        let first: Option<(Timestamp,)> = tx.opt(first, params![&self.domain]).await?;
        let Some((first,)) = first else {
            // A lane with nothing in it is a row for nothing.
            tx.exec("DELETE FROM email_lane WHERE domain = $1", params![&self.domain]).await?;
            return Ok(());
        };
        let next_at = rest.map_or(first, |rest| rest.max(first));
        tx.exec(
            "UPDATE email_lane SET held_until = 0, next_at = $2, failures = $3 WHERE domain = $1",
            params![&self.domain, next_at, failures],
        )
        .await?;
        Ok(())
    }
}

/// Frees what a dead process held. Only for the one process of an embedded database.
pub async fn release_all(db: &Db) -> db::Result<()> {
    db.exec("UPDATE email_lane SET held_until = 0 WHERE held_until > 0", params![]).await?;
    Ok(())
}

/// A mail that is due, and what decides whether it may go.
#[derive(Debug, Clone)]
pub struct Due {
    pub id: RecipientId,
    pub message_id: MessageId,
    pub app_id: Option<ApplicationId>,
    pub hostname: Option<String>,
    pub domain_status: Option<DomainStatus>,
    pub signing: Option<i64>,
    pub has_return_path: Option<bool>,
    pub paused_at: Option<Timestamp>,
}
row!(Due { id, message_id, app_id, hostname, domain_status, signing, has_return_path, paused_at });

impl Due {
    pub async fn of_lane(db: &Db, lane: &str, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT r.id, r.message_id, m.app_id, m.hostname, d.status AS domain_status, d.signing, d.has_return_path,
                    s.paused_at
             FROM email_recipient r JOIN email_message m ON m.id = r.message_id
             LEFT JOIN email_domain d ON d.app_id = m.app_id AND d.hostname = m.hostname
             LEFT JOIN email_sending s ON s.app_id = m.app_id
             WHERE r.lane = $1 AND r.next_at <= $2 ORDER BY r.next_at, r.id LIMIT $3",
            params![lane, now, most],
        )
        .await
    }
}

/// How many mails wait, up to 10,000.
pub async fn waiting(db: &Db) -> db::Result<i64> {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM
                   (SELECT 1 FROM email_recipient WHERE next_at IS NOT NULL LIMIT 10000) w";
    let (count,): (i64,) = db.one(sql, params![]).await?;
    Ok(count)
}
