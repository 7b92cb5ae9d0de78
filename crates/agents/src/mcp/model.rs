//! MCP servers as they are stored, and every statement on them.
use db::{Db, FromRow, FromValue, Read, Row, Tx, Value, holding, params};
use kernel::{clock::Timestamp, http::Key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    machines::{Machine, MachineId},
    orgs::OrgId,
};

use crate::{domains, machines_of, shared::Selection};

/// Whether the domain of a server is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    Pending,
    Verified,
    /// The proof was gone for three days.
    Lapsed,
    /// Another organization has proven the domain since.
    Superseded,
}

/// How a domain is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A TXT record at `_janua-mcp.<domain>`.
    Dns,
    /// A file at `https://<domain>/.well-known/janua-mcp`.
    Http,
    /// The key that the official registry knows (`v=MCPv1`), and a signature by it.
    Mcpv1,
    /// An app of the organization has proven the domain.
    App,
}

/// The visibility of a server in the registry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    #[default]
    Public,
    Org,
}

macro_rules! words { ($($type:ident { $($variant:ident = $word:literal),+ })+) => { $(
    impl $type {
        pub fn name(self) -> &'static str {
            match self { $(Self::$variant => $word),+ }
        }
    }
    impl From<$type> for Value {
        fn from(word: $type) -> Self {
            word.name().into()
        }
    }
    impl FromValue for $type {
        fn from_value(value: Value) -> Option<Self> {
            match String::from_value(value)?.as_str() { $($word => Some(Self::$variant),)+ _ => None }
        }
    }
)+ } }
words! {
    Proof { Pending = "pending", Verified = "verified", Lapsed = "lapsed", Superseded = "superseded" }
    Method { Dns = "dns", Http = "http", Mcpv1 = "mcpv1", App = "app" }
    Visibility { Public = "public", Org = "org" }
}

#[derive(Debug, Clone)]
pub struct McpServer {
    pub machine: Machine,
    pub slug: String,
    pub domain: String,
    pub full_name: String,
    pub url: Option<String>,
    pub title: Option<String>,
    pub version: Option<String>,
    pub packages: serde_json::Value,
    pub remotes: serde_json::Value,
    pub repository: Option<serde_json::Value>,
    pub visibility: Visibility,
    pub proof: Proof,
    pub method: Option<Method>,
    pub token: String,
    pub nonce: String,
    /// The key of an `mcpv1` proof, as its record writes it.
    pub public_key: Option<String>,
    pub verified_at: Option<Timestamp>,
    pub checked_at: Option<Timestamp>,
    pub seen: Option<Vec<String>>,
    pub failing_since: Option<Timestamp>,
    pub failures: i64,
    pub next_check_at: Option<Timestamp>,
}

pub const LIST: [&str; 2] = machines_of!("mcp_server.*", "mcp_server ON mcp_server.machine_id = machine.id", "mcp");

impl FromRow for McpServer {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            machine: Machine::take(&mut row)?,
            slug: row.get("slug")?,
            domain: row.get("domain")?,
            full_name: row.get("full_name")?,
            url: row.get("url")?,
            title: row.get("title")?,
            version: row.get("version")?,
            packages: row.get("packages")?,
            remotes: row.get("remotes")?,
            repository: row.get("repository")?,
            visibility: row.get("visibility")?,
            proof: row.get("proof")?,
            method: row.get("method")?,
            token: row.get("token")?,
            nonce: row.get("nonce")?,
            public_key: row.get("public_key")?,
            verified_at: row.get("verified_at")?,
            checked_at: row.get("checked_at")?,
            seen: row.get("seen")?,
            failing_since: row.get("failing_since")?,
            failures: row.get("failures")?,
            next_check_at: row.get("next_check_at")?,
        })
    }
}

const FIND: &str = "SELECT machine.*, mcp_server.* FROM machine JOIN mcp_server ON mcp_server.machine_id = machine.id
                    WHERE machine.id = $1";

impl McpServer {
    pub async fn find(mut from: impl Read, id: MachineId) -> db::Result<Option<Self>> {
        from.opt(FIND, params![id]).await
    }

    /// The servers of a domain, held, so that of two that prove it at once one is the first.
    pub async fn hold_domain(tx: &mut Tx, domain: &str) -> db::Result<Vec<Self>> {
        let sql = holding!(
            "SELECT machine.*, mcp_server.* FROM machine JOIN mcp_server ON mcp_server.machine_id = machine.id
             WHERE mcp_server.domain = $1 ORDER BY machine.id"
        );
        tx.all(sql, params![domain]).await
    }

    /// The verified servers on a domain, oldest first.
    pub async fn verified_on(db: &Db, domain: &str) -> db::Result<Vec<Self>> {
        let sql = "SELECT machine.*, mcp_server.* FROM mcp_server JOIN machine ON machine.id = mcp_server.machine_id
                   WHERE mcp_server.domain = $1 AND mcp_server.proof = 'verified'
                   ORDER BY mcp_server.verified_at, machine.id LIMIT 100";
        db.all(sql, params![domain]).await
    }

    /// Whether an organization has a server of this name already.
    pub async fn is_named(tx: &mut Tx, org: OrgId, full_name: &str, but: MachineId) -> db::Result<bool> {
        let sql = "SELECT machine.id FROM mcp_server JOIN machine ON machine.id = mcp_server.machine_id
                   WHERE mcp_server.full_name = $1 AND machine.id <> $3
                     AND (machine.org_id = $2 OR mcp_server.proof = 'verified') LIMIT 1";
        Ok(tx.opt::<(String,)>(sql, params![full_name, org, but]).await?.is_some())
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        self.machine.insert(tx).await?;
        tx.exec(
            "INSERT INTO mcp_server (machine_id, slug, domain, full_name, packages, remotes, visibility, proof, token, nonce)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            params![
                self.machine.id,
                &self.slug,
                &self.domain,
                &self.full_name,
                &self.packages,
                &self.remotes,
                self.visibility,
                self.proof,
                &self.token,
                &self.nonce
            ],
        )
        .await?;
        self.save(tx).await
    }

    /// Writes everything but the machine, and tells the nodes.
    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE mcp_server SET domain = $2, full_name = $3, url = $4, title = $5, version = $6, packages = $7,
                    remotes = $8, repository = $9, visibility = $10, proof = $11, method = $12, token = $13,
                    nonce = $14, public_key = $15, verified_at = $16, checked_at = $17, seen = $18, failing_since = $19,
                    failures = $20, next_check_at = $21
             WHERE machine_id = $1",
            params![
                self.machine.id,
                &self.domain,
                &self.full_name,
                self.url.clone(),
                self.title.clone(),
                self.version.clone(),
                &self.packages,
                &self.remotes,
                self.repository.as_ref(),
                self.visibility,
                self.proof,
                self.method,
                &self.token,
                &self.nonce,
                self.public_key.clone(),
                self.verified_at,
                self.checked_at,
                self.seen.as_ref(),
                self.failing_since,
                self.failures,
                self.next_check_at
            ],
        )
        .await?;
        tx.notify(db::Reach::EveryNode, super::lookup::TOPIC, self.domain.clone()).await
    }

    /// Those that are to be checked by now.
    pub async fn due(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT machine.*, mcp_server.* FROM mcp_server JOIN machine ON machine.id = mcp_server.machine_id
                   WHERE mcp_server.next_check_at <= $1 ORDER BY mcp_server.next_check_at LIMIT $2";
        db.all(sql, params![now, most]).await
    }

    /// No answer: the next check is later, and nothing else changes.
    pub async fn postpone(&self, db: &Db, at: Timestamp) -> db::Result<()> {
        let sql = "UPDATE mcp_server SET next_check_at = $2 WHERE machine_id = $1";
        db.exec(sql, params![self.machine.id, at]).await?;
        Ok(())
    }

    pub async fn page(db: &Db, chosen: &Selection, now: Timestamp, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let Selection { owner, org, state, .. } = chosen;
        db.all(chosen.statement(LIST), params![owner, org, state, now, below.at, &below.id, most]).await
    }

    /// Deletes the published versions of a server.
    pub async fn forget_versions(tx: &mut Tx, id: MachineId) -> db::Result<()> {
        tx.send("DELETE FROM mcp_version WHERE machine_id = $1", params![id]).await
    }

    /// Whether the URL and all remotes are on the domain itself, which is all that a file proves.
    pub fn is_on_host(&self) -> bool {
        let remotes =
            self.remotes.as_array().into_iter().flatten().map(|remote| remote["url"].as_str().unwrap_or_default());
        self.url.as_deref().into_iter().chain(remotes).all(|url| domains::host(url).as_ref() == Some(&self.domain))
    }

    /// Publishes a version in the registry; `false` when the version was published with other content.
    pub async fn publish(
        tx: &mut Tx,
        id: MachineId,
        version: &str,
        document: &serde_json::Value,
        now: Timestamp,
    ) -> db::Result<bool> {
        let sql = "SELECT document FROM mcp_version WHERE machine_id = $1 AND version = $2";
        let known: Option<(serde_json::Value,)> = tx.opt(sql, params![id, version]).await?;
        if let Some((known,)) = known {
            return Ok(known == *document);
        }
        let sql = "INSERT INTO mcp_version (machine_id, version, document, published_at) VALUES ($1, $2, $3, $4)";
        tx.exec(sql, params![id, version, document, now]).await?;
        Ok(true)
    }
}
