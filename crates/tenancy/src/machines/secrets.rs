//! Client secrets and kill switches: shown once, kept as hashes, with a checksum so that a mistyped one costs no look-up and
//! scanners of leaked secrets can tell a real one.
use db::{Db, Tx, params};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret, same},
};

use super::Machine;
use crate::ids::MachineId;

/// The purpose of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The client secret of a framework agent.
    Framework,
    /// The client secret of an MCP server.
    Mcp,
    /// Suspends one framework agent, and does nothing else.
    KillSwitch,
}

const CHECKSUM: usize = 6;

impl Purpose {
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Framework => "fa_live_",
            Self::Mcp => "ms_live_",
            Self::KillSwitch => "ks_live_",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Framework => "framework",
            Self::Mcp => "mcp",
            Self::KillSwitch => "kill_switch",
        }
    }

    /// Whether a text may be a secret of this purpose.
    pub fn fits(self, text: &str) -> bool {
        let Some((body, sum)) = text.len().checked_sub(CHECKSUM).and_then(|at| text.split_at_checked(at)) else {
            return false;
        };
        body.starts_with(self.prefix()) && same(sum.as_bytes(), checksum(body).as_bytes())
    }
}

fn checksum(body: &str) -> String {
    crypto::hash(body.as_bytes())[..CHECKSUM].to_owned()
}

/// Creates a secret. Earlier ones of the purpose end now, or at `grace`.
pub async fn issue(
    tx: &mut Tx,
    janua: &Janua,
    machine: &Machine,
    purpose: Purpose,
    grace: Option<Timestamp>,
) -> db::Result<Secret> {
    match grace {
        Some(until) => {
            let sql = "UPDATE machine_secret SET expires_at = $3
                       WHERE machine_id = $1 AND purpose = $2 AND (expires_at IS NULL OR expires_at > $3)";
            tx.send(sql, params![machine.id, purpose.name(), until]).await?;
        }
        None => end(tx, machine.id, purpose).await?,
    }
    let body = format!("{}{}", purpose.prefix(), janua.entropy.token().expose());
    let secret = Secret::from(format!("{body}{}", checksum(&body)));
    let sql =
        "INSERT INTO machine_secret (hash, machine_id, purpose, prefix, created_at) VALUES ($1, $2, $3, $4, $5)";
    let (hash, shown) = (crypto::hash(secret.expose().as_bytes()), &secret.expose()[..purpose.prefix().len() + 4]);
    tx.exec(sql, params![hash, machine.id, purpose.name(), shown, janua.clock.now()]).await?;
    Ok(secret)
}

/// Ends all secrets of a purpose.
pub async fn end(tx: &mut Tx, id: MachineId, purpose: Purpose) -> db::Result<()> {
    tx.send("DELETE FROM machine_secret WHERE machine_id = $1 AND purpose = $2", params![id, purpose.name()]).await
}

/// The machine whose secret this is.
pub async fn find(db: &Db, purpose: Purpose, secret: &Secret, now: Timestamp) -> db::Result<Option<MachineId>> {
    if !purpose.fits(secret.expose()) {
        return Ok(None);
    }
    let sql = "SELECT machine_id FROM machine_secret
               WHERE hash = $1 AND purpose = $2 AND (expires_at IS NULL OR expires_at > $3)";
    let found: Option<(MachineId,)> =
        db.opt(sql, params![crypto::hash(secret.expose().as_bytes()), purpose.name(), now]).await?;
    Ok(found.map(|(id,)| id))
}
