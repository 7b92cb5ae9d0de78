//! What the registry lists: published versions of verified servers.
use db::{Db, params, row};
use kernel::clock::Timestamp;
use tenancy::orgs::OrgId;

use crate::{domains, mcp::model::Method};

pub struct Entry {
    pub full_name: String,
    pub domain: String,
    pub version: String,
    pub document: serde_json::Value,
    pub published_at: Timestamp,
    pub is_latest: bool,
    pub method: Option<String>,
    pub verified_at: Option<Timestamp>,
    pub org_name: String,
}
row!(Entry { full_name, domain, version, document, published_at, is_latest, method, verified_at, org_name });

pub struct Filter {
    /// The organization whose own registry it is; none for the public one.
    pub org: Option<OrgId>,
    pub search: String,
    pub since: Timestamp,
    pub is_latest: bool,
    /// Empty for all.
    pub version: String,
    /// The name and version of the last entry of the page before.
    pub after: (String, String),
}

macro_rules! entries {
    ($condition:literal) => {
        concat!(
            "SELECT * FROM (
                 SELECT mcp_server.full_name, mcp_server.domain, mcp_version.version, mcp_version.document, mcp_version.published_at,
                        mcp_server.method, mcp_server.verified_at, org.name AS org_name,
                        CASE WHEN mcp_version.version = mcp_server.version THEN TRUE ELSE FALSE END AS is_latest
                 FROM mcp_version
                 JOIN mcp_server ON mcp_server.machine_id = mcp_version.machine_id
                 JOIN machine ON machine.id = mcp_server.machine_id
                 JOIN org ON org.id = machine.org_id
                 JOIN account ON account.id = machine.owner_id AND account.disabled_at IS NULL
                 WHERE mcp_server.proof = 'verified' AND machine.state = 'active'
                   AND (machine.expires_at IS NULL OR machine.expires_at > $2)
                   AND ($1 = '' AND mcp_server.visibility = 'public' OR machine.org_id = $1)) AS listed WHERE ",
            $condition
        )
    };
}

impl Entry {
    pub async fn page(db: &Db, filter: &Filter, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        let sql = entries!(
            "(full_name, version) > ($3, $4) AND published_at >= $5 AND ($6 = '' OR version = $6)
               AND (NOT $7 OR is_latest) AND ($8 = '' OR full_name LIKE $8 ESCAPE '!')
             ORDER BY full_name, version LIMIT $9"
        );
        let org = filter.org.map(|id| id.to_string()).unwrap_or_default();
        let plain = filter.search.replace('!', "!!").replace('%', "!%").replace('_', "!_");
        let pattern = if plain.is_empty() { String::new() } else { format!("%{plain}%") };
        let (name, version) = &filter.after;
        let Filter { since, is_latest, version: wanted, .. } = filter;
        db.all(sql, params![org, now, name, version, *since, wanted, *is_latest, pattern, most]).await
    }

    /// All versions of a server, newest first.
    pub async fn of_server(db: &Db, org: Option<OrgId>, name: &str, now: Timestamp) -> db::Result<Vec<Self>> {
        let sql = entries!("full_name = $3 ORDER BY published_at DESC, version DESC LIMIT 500");
        let found: Vec<Self> =
            db.all(sql, params![org.map(|id| id.to_string()).unwrap_or_default(), now, name]).await?;
        Ok(found.into_iter().filter(Self::is_proven).collect())
    }

    /// Whether the proof of the server covers what the version says: its name, and for a file on the site all of its remotes.
    pub fn is_proven(&self) -> bool {
        let mut remotes = self.document["remotes"].as_array().into_iter().flatten();
        let is_on_host = |remote: &serde_json::Value| {
            domains::host(remote["url"].as_str().unwrap_or_default()).as_ref() == Some(&self.domain)
        };
        let is_by_file = self.method.as_deref() == Some(Method::Http.name());
        self.document["name"] == self.full_name && (!is_by_file || remotes.all(is_on_host))
    }
}
