//! Skills: packages of instructions for agents, published by organizations. A version is scanned before anybody sees it,
//! signed, and never changes.
mod api;
mod discovery;
mod events;
mod install;
mod jobs;
mod keys;
mod mails;
mod mcp;
mod model;
mod names;
pub mod package;
mod publish;
mod ratings;
mod reader;
mod readme;
mod reports;
mod review;
mod scan;
mod view;

use db::params;
use kernel::{Janua, feature::Feature, http::Routes};
use serde_json::{Value, json};
use tenancy::{accounts::AccountId, exports::Export, gone::Gone};

pub fn feature() -> Feature {
    let routes = Routes::new("skills")
        .and(api::routes())
        .and(publish::routes())
        .and(install::routes())
        .and(reports::routes())
        .and(ratings::routes())
        .and(review::routes())
        .and(keys::routes())
        .and(discovery::routes())
        .and(mcp::routes());
    Feature::new(routes)
        .declares(events::EVENTS)
        .declares(mails::MAILS)
        .declares(GONE)
        .declares(EXPORTS)
        .declares(reader::RESOURCES)
        .jobs(jobs::jobs())
        .own(publish::ScanPool::default())
        .start(|janua| Box::pin(async move { keys::start(&janua).await }))
}

/// The rows of skills stay for ever, as tombstones. Their bytes go by a job.
const GONE: &[Gone] = &[
    Gone::Account(|tx, _, account| {
        Box::pin(async move {
            install::forget(tx, account).await?;
            ratings::forget(tx, account).await
        })
    }),
    Gone::ManyOfOrg(
        "DELETE FROM skill_word WHERE skill_id IN (SELECT id FROM skill WHERE org_id = $1)
           AND (word, weight, skill_id) IN (SELECT w.word, w.weight, w.skill_id FROM skill_word w
                JOIN skill s ON s.id = w.skill_id WHERE s.org_id = $1 LIMIT $2)",
    ),
    Gone::ManyOfOrg(
        "UPDATE skill_object SET version_id = NULL WHERE object IN
             (SELECT o.object FROM skill_object o JOIN skill_version v ON v.id = o.version_id
              JOIN skill s ON s.id = v.skill_id WHERE s.org_id = $1 LIMIT $2)",
    ),
    Gone::Org(|tx, _, org| {
        Box::pin(async move {
            for sql in [
                "DELETE FROM skill_word WHERE skill_id IN (SELECT id FROM skill WHERE org_id = $1)",
                "UPDATE skill_object SET version_id = NULL WHERE version_id IN
                     (SELECT v.id FROM skill_version v JOIN skill s ON s.id = v.skill_id WHERE s.org_id = $1)",
            ] {
                tx.exec(sql, params![org]).await?;
            }
            let sql = "UPDATE skill SET state = 'removed', is_listed = $2 WHERE org_id = $1";
            tx.exec(sql, params![org, false]).await.map(drop)
        })
    }),
];

const EXPORTS: &[Export] = &[Export::Account("skills", |janua, account| Box::pin(export(janua, account)))];

/// What a person did with skills.
async fn export(janua: &Janua, account: AccountId) -> kernel::fault::Result<Value> {
    let mut lists = json!({});
    for (name, sql) in [
        (
            "installed",
            "SELECT skill.slug, skill_install.installed_at AS at, '' AS text, CAST(0 AS BIGINT) AS stars FROM skill_install
             JOIN skill ON skill.id = skill_install.skill_id WHERE skill_install.account_id = $1
             ORDER BY skill_install.installed_at LIMIT 10000",
        ),
        (
            "starred",
            "SELECT skill.slug, skill_star.created_at AS at, '' AS text, CAST(0 AS BIGINT) AS stars FROM skill_star
             JOIN skill ON skill.id = skill_star.skill_id WHERE skill_star.account_id = $1
             ORDER BY skill_star.created_at LIMIT 10000",
        ),
        (
            "ratings",
            "SELECT skill.slug, skill_rating.updated_at AS at, COALESCE(skill_rating.comment, '') AS text, skill_rating.stars
             FROM skill_rating JOIN skill ON skill.id = skill_rating.skill_id WHERE skill_rating.account_id = $1
             ORDER BY skill_rating.updated_at LIMIT 10000",
        ),
        (
            "reports",
            "SELECT skill.slug, skill_report.created_at AS at, COALESCE(skill_report.detail, '') AS text,
                    CAST(0 AS BIGINT) AS stars
             FROM skill_report JOIN skill ON skill.id = skill_report.skill_id WHERE skill_report.account_id = $1
             ORDER BY skill_report.created_at LIMIT 10000",
        ),
    ] {
        let rows: Vec<model::Exported> = janua.db.all(sql, params![account]).await?;
        lists[name] = json!(rows);
    }
    Ok(lists)
}

#[cfg(test)]
mod tests;
