//! Framework agents as they are stored.
use db::{Db, FromRow, Row, Tx, params};
use kernel::{clock::Timestamp, http::Key};
use tenancy::machines::{Machine, MachineId};

use crate::{machines_of, shared::Selection};

pub struct FrameworkAgent {
    pub machine: Machine,
    pub framework: String,
    pub version: Option<String>,
}

const LIST: [&str; 2] = machines_of!(
    "framework_agent.framework, framework_agent.version",
    "framework_agent ON framework_agent.machine_id = machine.id",
    "framework"
);

impl FromRow for FrameworkAgent {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let machine = Machine::take(&mut row)?;
        Ok(Self { machine, framework: row.get("framework")?, version: row.get("version")? })
    }
}

impl FrameworkAgent {
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        self.machine.insert(tx).await?;
        let sql = "INSERT INTO framework_agent (machine_id, framework, version) VALUES ($1, $2, $3)";
        tx.exec(sql, params![self.machine.id, &self.framework, self.version.clone()]).await?;
        Ok(())
    }

    pub async fn find(db: &Db, id: MachineId) -> db::Result<Option<Self>> {
        let sql = "SELECT machine.*, framework_agent.framework, framework_agent.version FROM machine
                   JOIN framework_agent ON framework_agent.machine_id = machine.id WHERE machine.id = $1";
        db.opt(sql, params![id]).await
    }

    pub async fn page(db: &Db, chosen: &Selection, now: Timestamp, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let Selection { owner, org, state, .. } = chosen;
        db.all(chosen.statement(LIST), params![owner, org, state, now, below.at, &below.id, most]).await
    }
}
