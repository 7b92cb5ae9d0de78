//! What follows from looking at a proof: a domain is verified, moves to another organization, or lapses.
use std::time::Duration;

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    jobs::{Job, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    events::{self, By},
    machines::{
        Kind, MachineAct, MachineEvent, MachineId, Managed, SUSPENDED_BY_ADMIN, State, SuspendedBy, caller::OfMcp,
    },
    messages::mail,
    orgs,
};

use super::{
    DOMAIN_TAKEN, NAME_TAKEN, URL_OUTSIDE_DOMAIN,
    mails::{McpMail, McpNews},
    model::{McpServer, Method, Proof},
    proof::{self, Seen},
};
use crate::suspended;

pub const EVERY: Duration = Duration::from_mins(10);
const DAY: Duration = Duration::from_hours(24);
/// How long a proof may be gone.
const LAPSE: Duration = Duration::from_hours(72);
const LEAST_FAILURES: i64 = 3;
const SPREAD_MS: u64 = 60 * 60 * 1000;
const AT_A_TIME: u32 = 100;

/// Takes the proof off a server; its tokens end with it.
pub fn unprove(server: &mut McpServer, to: Proof, now: Timestamp) {
    if server.machine.state == State::Active {
        server.machine.state = State::Pending;
    }
    server.machine.generation += 1;
    (server.machine.proven_at, server.machine.updated_at) = (None, now);
    server.proof = to;
    (server.method, server.verified_at, server.next_check_at) = (None, None, None);
    (server.failing_since, server.failures, server.public_key) = (None, 0, None);
}

/// The servers of other organizations on the domain whose proof is gone at this moment. Refuses when one still stands, or
/// when a name server does not answer.
pub async fn contested(janua: &Janua, server: &McpServer) -> Result<Vec<MachineId>> {
    let mut lost = vec![];
    for other in McpServer::verified_on(&janua.db, &server.domain).await? {
        if other.machine.org_id == server.machine.org_id {
            continue;
        }
        if proof::find(janua, &other).await?.is_proven {
            return Err(DOMAIN_TAKEN.into());
        }
        lost.push(other.machine.id);
    }
    Ok(lost)
}

/// Notes a proof that was found.
pub async fn verified(
    tx: &mut Tx,
    janua: &Janua,
    caller: &Managed<OfMcp>,
    asked: &McpServer,
    method: Method,
    seen: &Seen,
    lost: &[MachineId],
) -> Result<()> {
    let (now, by) = (janua.clock.now(), caller.session.by());
    suspended::refuse(&mut *tx, &asked.full_name).await?;
    let held = McpServer::hold_domain(tx, &asked.domain).await?;
    let mut own = None;
    for mut server in held {
        if server.machine.id == asked.machine.id {
            own = Some(server);
        } else if server.full_name == asked.full_name && server.machine.suspended_by == Some(SuspendedBy::Platform) {
            // The platform suspended this name. It does not come back under another registration.
            return Err(SUSPENDED_BY_ADMIN.into());
        } else if server.proof == Proof::Verified && server.machine.org_id != asked.machine.org_id {
            if !lost.contains(&server.machine.id) {
                return Err(DOMAIN_TAKEN.into());
            }
            unprove(&mut server, Proof::Superseded, now);
            server.machine.save(tx).await?;
            server.save(tx).await?;
            let event = MachineEvent::lapsed(json!({ "name": server.full_name, "reason": "superseded" }));
            events::record(tx, janua, &By::default(), server.machine.about(), &event).await?;
            tell(tx, janua, &server, McpNews::Superseded).await?;
        } else if server.proof == Proof::Verified && server.full_name == asked.full_name {
            return Err(NAME_TAKEN.into());
        }
    }
    let mut server = own.filter(|own| own.token == asked.token).ok_or(NOT_FOUND)?;
    // Looked at here, because the URLs may have changed while the proof was looked for.
    if method == Method::Http && !server.is_on_host() {
        return Err(URL_OUTSIDE_DOMAIN.because("A file proves its own host alone. Use a DNS record."));
    }
    let is_new = server.proof != Proof::Verified;
    server.proof = Proof::Verified;
    (server.method, server.checked_at, server.seen) = (Some(method), Some(now), Some(seen.texts.clone()));
    server.verified_at = server.verified_at.or(Some(now));
    server.public_key.clone_from(&seen.public_key);
    (server.failing_since, server.failures) = (None, 0);
    server.next_check_at = Some(next_check(janua, now));
    if server.machine.state == State::Pending {
        server.machine.state = State::Active;
    }
    (server.machine.proven_at, server.machine.updated_at) = (server.machine.proven_at.or(Some(now)), now);
    server.machine.save(tx).await?;
    server.save(tx).await?;
    if is_new {
        let details = json!({ "name": server.full_name, "domain": server.domain, "method": method });
        let event = MachineEvent::new(Kind::Mcp, MachineAct::Proven, details);
        events::record(tx, janua, &by, server.machine.about(), &event).await?;
    }
    Ok(())
}

fn next_check(janua: &Janua, now: Timestamp) -> Timestamp {
    now.plus(DAY).plus(Duration::from_millis(janua.entropy.up_to(SPREAD_MS)))
}

async fn tell(tx: &mut Tx, janua: &Janua, server: &McpServer, news: McpNews) -> db::Result<()> {
    let page = format!("/console/orgs/{}/mcp/{}", server.machine.org_id, server.machine.id);
    for reader in orgs::admins_to_mail(tx, server.machine.org_id).await? {
        let (name, server, domain) = (reader.name, server.full_name.clone(), server.domain.clone());
        mail::send(tx, janua, &reader.email, &McpMail { name, server, domain, page: page.clone(), news }).await?;
    }
    Ok(())
}

/// Checks the proofs whose time has come.
#[derive(Default, Serialize, Deserialize)]
pub struct CheckServers {}

impl Job for CheckServers {
    const KIND: &'static str = "agents.check_mcp_servers";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let due = McpServer::due(&janua.db, janua.clock.now(), AT_A_TIME).await.map_err(Later::retry)?;
        for server in due {
            check(&janua, &server).await.map_err(Later::retry)?;
        }
        Ok(())
    }
}

async fn check(janua: &Janua, server: &McpServer) -> Result<()> {
    let now = janua.clock.now();
    let Ok(seen) = proof::find(janua, server).await else {
        // A name server that does not answer says nothing about the proof.
        return Ok(server.postpone(&janua.db, now.plus(Duration::from_hours(1))).await?);
    };
    transact!(janua, async |tx| {
        let held = McpServer::hold_domain(tx, &server.domain).await?;
        let own = held.into_iter().find(|one| one.machine.id == server.machine.id && one.token == server.token);
        let Some(mut own) = own.filter(|own| own.proof == Proof::Verified) else { return Ok(()) };
        (own.checked_at, own.seen) = (Some(now), Some(seen.texts.clone()));
        own.next_check_at = Some(next_check(janua, now));
        if seen.is_proven {
            (own.failing_since, own.failures) = (None, 0);
            return Ok(own.save(tx).await?);
        }
        own.failures += 1;
        let since = *own.failing_since.get_or_insert(now);
        if own.failures == 1 {
            tell(tx, janua, &own, McpNews::Failing).await?;
        }
        if own.failures >= LEAST_FAILURES && now.since(since) >= LAPSE {
            unprove(&mut own, Proof::Lapsed, now);
            own.machine.save(tx).await?;
            let event = MachineEvent::lapsed(json!({ "name": own.full_name, "reason": "proof_gone" }));
            events::record(tx, janua, &By::default(), own.machine.about(), &event).await?;
            tell(tx, janua, &own, McpNews::Lapsed).await?;
        }
        Ok(own.save(tx).await?)
    })
}
