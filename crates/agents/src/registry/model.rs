//! What the registry lists: published versions of verified servers.
use db::{Db, params, row};
use kernel::clock::Timestamp;
use tenancy::orgs::OrgId;

pub struct Entry {
    pub full_name: String,
    pub version: String,
    pub document: serde_json::Value,
    pub published_at: Timestamp,
    pub is_latest: bool,
    pub method: Option<String>,
    pub verified_at: Option<Timestamp>,
    pub org_name: String,
}
row!(Entry { full_name, version, document, published_at, is_latest, method, verified_at, org_name });

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
                 SELECT mcp_server.full_name, mcp_version.version, mcp_version.document, mcp_version.published_at,
                        mcp_server.method, mcp_server.verified_at, org.name AS org_name,
                        CASE WHEN mcp_version.version = mcp_server.version THEN TRUE ELSE FALSE END AS is_latest
                 FROM mcp_version
                 JOIN mcp_server ON mcp_server.machine_id = mcp_version.machine_id
                 JOIN machine ON machine.id = mcp_server.machine_id
                 JOIN org ON org.id = machine.org_id
                 WHERE mcp_server.proof = 'verified' AND machine.state = 'active'
                   AND ($1 = '' AND mcp_server.visibility = 'public' OR machine.org_id = $1)) AS listed WHERE ",
            $condition
        )
    };
}

impl Entry {
    pub async fn page(db: &Db, filter: &Filter, most: u32) -> db::Result<Vec<Self>> {
        let sql = entries!(
            "(full_name, version) > ($2, $3) AND published_at >= $4 AND ($5 = '' OR version = $5)
               AND (NOT $6 OR is_latest) AND ($7 = '' OR full_name LIKE $7 ESCAPE '!')
             ORDER BY full_name, version LIMIT $8"
        );
        let org = filter.org.map(|id| id.to_string()).unwrap_or_default();
        let plain = filter.search.replace('!', "!!").replace('%', "!%").replace('_', "!_");
        let pattern = if plain.is_empty() { String::new() } else { format!("%{plain}%") };
        let (name, version) = &filter.after;
        db.all(sql, params![org, name, version, filter.since, &filter.version, filter.is_latest, pattern, most]).await
    }

    /// All versions of a server, newest first.
    pub async fn of_server(db: &Db, org: Option<OrgId>, name: &str) -> db::Result<Vec<Self>> {
        let sql = entries!("full_name = $2 ORDER BY published_at DESC, version DESC LIMIT 500");
        db.all(sql, params![org.map(|id| id.to_string()).unwrap_or_default(), name]).await
    }
}
