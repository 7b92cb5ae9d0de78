//! Wallets and names of servers that the platform suspended: deleting their organization does not end the suspension.
use std::time::Duration;

use db::{Read, Tx, params};
use kernel::{clock::Timestamp, crypto, fault::Result, jobs::Chore};
use tenancy::{gone::Gone, machines::SUSPENDED_BY_ADMIN, orgs::OrgId};

/// After this time a name may have passed to other hands.
const KEPT: Duration = Duration::from_hours(24 * 400);

pub const CHORES: &[Chore] = &[Chore::sweep(
    "suspended_name",
    "DELETE FROM suspended_name WHERE hash IN
         (SELECT hash FROM suspended_name WHERE deleted_at < $1 ORDER BY deleted_at LIMIT $2)",
    KEPT,
)];

pub const GONE: &[Gone] = &[Gone::Org(|tx, janua, org| Box::pin(keep(tx, org, janua.clock.now())))];

fn hash(name: &str) -> String {
    crypto::hash(format!("suspended\n{name}").as_bytes())
}

/// Keeps what the platform suspended of an organization that goes.
async fn keep(tx: &mut Tx, org: OrgId, now: Timestamp) -> db::Result<()> {
    let sql = "SELECT agent.wallet AS name FROM agent JOIN machine ON machine.id = agent.machine_id
               WHERE machine.org_id = $1 AND machine.suspended_by = 'platform' AND agent.proven
               UNION ALL
               SELECT mcp_server.full_name AS name FROM mcp_server JOIN machine ON machine.id = mcp_server.machine_id
               WHERE machine.org_id = $1 AND machine.suspended_by = 'platform' AND mcp_server.proof <> 'pending'";
    let names: Vec<(String,)> = tx.all(sql, params![org]).await?;
    for (name,) in names {
        let sql = "INSERT INTO suspended_name (hash, deleted_at) VALUES ($1, $2)
                   ON CONFLICT (hash) DO UPDATE SET deleted_at = $2";
        tx.send(sql, params![hash(&name), now]).await?;
    }
    Ok(())
}

/// Refuses a wallet or the name of a server that the platform suspended.
pub async fn refuse(mut from: impl Read, name: &str) -> Result<()> {
    let sql = "SELECT hash FROM suspended_name WHERE hash = $1";
    let found: Option<(String,)> = from.opt(sql, params![hash(name)]).await?;
    if found.is_some() { Err(SUSPENDED_BY_ADMIN.into()) } else { Ok(()) }
}
