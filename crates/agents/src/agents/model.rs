//! Agents as they are stored, and every statement on them.
use db::{Db, FromRow, Read, Row, Tx, params};
use kernel::{clock::Timestamp, http::Key};
use tenancy::machines::{Machine, MachineId};

use super::wallet::Wallet;
use crate::{machines_of, shared::Selection};

#[derive(Debug, Clone)]
pub struct Agent {
    pub machine: Machine,
    pub wallet: Wallet,
    pub proven: bool,
}

const LIST: [&str; 2] = machines_of!(
    "agent.namespace, agent.chain, agent.wallet, agent.proven",
    "agent ON agent.machine_id = machine.id",
    "agent"
);

impl FromRow for Agent {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let machine = Machine::take(&mut row)?;
        let (namespace, chain): (String, String) = (row.get("namespace")?, row.get("chain")?);
        let wallet = Wallet::stored(&namespace, chain, row.get("wallet")?);
        Ok(Self { machine, wallet, proven: row.get("proven")? })
    }
}

impl Agent {
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        self.machine.insert(tx).await?;
        let sql = "INSERT INTO agent (machine_id, namespace, chain, wallet, proven) VALUES ($1, $2, $3, $4, $5)";
        let Wallet { namespace, chain, key } = &self.wallet;
        tx.exec(sql, params![self.machine.id, namespace.name(), chain, key, self.proven]).await?;
        Ok(())
    }

    pub async fn find(mut from: impl Read, id: MachineId) -> db::Result<Option<Self>> {
        let sql = "SELECT machine.*, agent.namespace, agent.chain, agent.wallet, agent.proven
                   FROM machine JOIN agent ON agent.machine_id = machine.id WHERE machine.id = $1";
        from.opt(sql, params![id]).await
    }

    /// The agents that claim a wallet: the one that has proven it first, then the oldest. Two are enough to know that a
    /// claim is not the only one.
    pub async fn of_wallet(mut from: impl Read, wallet: &str) -> db::Result<Vec<Self>> {
        let sql = "SELECT machine.*, agent.namespace, agent.chain, agent.wallet, agent.proven
                   FROM agent JOIN machine ON machine.id = agent.machine_id WHERE agent.wallet = $1
                   ORDER BY CASE WHEN agent.proven THEN 0 ELSE 1 END, machine.created_at, machine.id LIMIT 2";
        from.all(sql, params![wallet]).await
    }

    /// Notes that an agent has proven its wallet; fails with the unique constraint when another one has.
    pub async fn prove(tx: &mut Tx, id: MachineId) -> db::Result<()> {
        tx.exec("UPDATE agent SET proven = $2 WHERE machine_id = $1", params![id, true]).await?;
        Ok(())
    }

    pub async fn page(db: &Db, chosen: &Selection, now: Timestamp, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let Selection { owner, org, state, .. } = chosen;
        db.all(chosen.statement(LIST), params![owner, org, state, now, below.at, &below.id, most]).await
    }
}
