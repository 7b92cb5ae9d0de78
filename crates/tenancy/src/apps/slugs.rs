//! Slugs. An app's becomes part of a host name, so it is one label of DNS, is none that people or programs take for a part
//! of the service, and does not go to another organization as soon as its app is gone.
use std::time::Duration;

use db::{Tx, params};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, Result},
};

use crate::ids::{AccountId, OrgId};

pub const SLUG_TAKEN: Code = Code::new(409, "slug_taken", "This slug is taken. Choose another one.");

/// The pattern of a slug: letters, digits, single hyphens inside. So there is no `--`, which separates the label of a
/// deployment from its app and begins names in another script (`xn--`). With such a label it fits into one of DNS.
pub const PATTERN: &str = "^[a-z0-9]+(-[a-z0-9]+)*$";
pub const LONGEST: usize = 48;

/// How long the slug of an app that is gone, or has another one now, goes to no other organization: links and settings out
/// there still name it.
const HELD_BACK: Duration = Duration::from_hours(90 * 24);
/// How many slugs are held back for one organization, and for renamings and deletions by one account, in all its
/// organizations.
const MOST_OF_ORG: u32 = 20;
const MOST_OF_ACCOUNT: u32 = 50;

/// In order. Parts of the service, names that mail, browsers and networks ask for by themselves, and words that could
/// make an app look like a part of the service.
const RESERVED: &[&str] = &[
    "abuse",
    "account",
    "accounts",
    "admin",
    "administrator",
    "api",
    "app",
    "apps",
    "assets",
    "auth",
    "autoconfig",
    "autodiscover",
    "billing",
    "blog",
    "broadcasthost",
    "cdn",
    "console",
    "dashboard",
    "demo",
    "deploy",
    "dev",
    "dns",
    "docs",
    "domains",
    "download",
    "edge",
    "email",
    "example",
    "files",
    "ftp",
    "git",
    "health",
    "help",
    "hostmaster",
    "id",
    "identity",
    "imap",
    "info",
    "internal",
    "invalid",
    "isatap",
    "janua",
    "jwks",
    "legal",
    "local",
    "localdomain",
    "localhost",
    "login",
    "logout",
    "mail",
    "mcp",
    "media",
    "metrics",
    "mta-sts",
    "mx",
    "news",
    "no-reply",
    "noreply",
    "ns",
    "ns1",
    "ns2",
    "ns3",
    "ns4",
    "oauth",
    "oauth2",
    "oidc",
    "openid",
    "pay",
    "payments",
    "platform",
    "pop",
    "pop3",
    "postmaster",
    "preview",
    "privacy",
    "production",
    "proxy",
    "public",
    "register",
    "root",
    "saml",
    "scim",
    "secure",
    "security",
    "service",
    "sftp",
    "sign-in",
    "sign-up",
    "signin",
    "signup",
    "smtp",
    "ssh",
    "ssl",
    "sso",
    "staging",
    "static",
    "status",
    "storage",
    "support",
    "system",
    "terms",
    "test",
    "upload",
    "uploads",
    "usercontent",
    "vpn",
    "webhook",
    "webhooks",
    "webmail",
    "webmaster",
    "well-known",
    "wpad",
    "www",
    "www1",
    "www2",
];

fn is_reserved(slug: &str) -> bool {
    RESERVED.binary_search(&slug).is_ok()
}

fn is_label(slug: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    slug.len() <= LONGEST && slug.split('-').all(is_part)
}

/// Refuses reserved slugs.
pub fn check(slug: &str) -> Result<()> {
    if !is_label(slug) {
        let say = "must be at most 48 lower-case letters and digits, with single hyphens between them";
        return Err(INVALID.at("slug", "wrong_form", say));
    }
    if is_reserved(slug) {
        return Err(INVALID.at("slug", "reserved", "is a reserved word; choose another"));
    }
    Ok(())
}

/// A slug made from a name; another app may have it already.
pub fn made_from(janua: &Janua, name: &str) -> String {
    let slug = slug_of(name);
    if is_reserved(&slug) { slug_near(janua, &slug) } else { slug }
}

/// Holds back the slug of an app that is renamed or deleted: for a while it is the organization's alone. An organization
/// holds few, and so does the account that renames and deletes, over all its organizations; beyond that the oldest of this
/// organization is free at once, or else this one. So no user can reserve words by creating and deleting apps, and a
/// user with many apps is refused nothing. It is the acting account that counts, not the app's creator: a former
/// member who holds many elsewhere takes nothing from the organization.
pub async fn hold_back(
    tx: &mut Tx,
    slug: &str,
    (org, actor): (OrgId, Option<AccountId>),
    now: Timestamp,
) -> db::Result<()> {
    tx.exec(
        "INSERT INTO slug_hold (slug, org_id, account_id, held_until) VALUES ($1, $2, $3, $4)
         ON CONFLICT (slug) DO UPDATE SET org_id = $2, account_id = $3, held_until = $4",
        params![slug, org, actor, now.plus(HELD_BACK)],
    )
    .await?;
    tx.exec(
        "DELETE FROM slug_hold WHERE slug IN (SELECT slug FROM slug_hold WHERE org_id = $1 AND slug <> $2
             ORDER BY held_until DESC, slug LIMIT 100 OFFSET $3)",
        params![org, slug, MOST_OF_ORG - 1],
    )
    .await?;
    // Of this organization only: a former member must not be able to free what another organization holds.
    tx.exec(
        "DELETE FROM slug_hold WHERE org_id = $4 AND slug IN (SELECT slug FROM slug_hold WHERE account_id = $1 AND slug <> $2
             ORDER BY held_until DESC, slug LIMIT 100 OFFSET $3)",
        params![actor, slug, MOST_OF_ACCOUNT - 1, org],
    )
    .await?;
    tx.exec(
        "DELETE FROM slug_hold WHERE slug = $2
           AND (SELECT COUNT(*) FROM slug_hold AS held WHERE held.account_id = $1 AND held.held_until > $4) > $3",
        params![actor, slug, MOST_OF_ACCOUNT, now],
    )
    .await?;
    Ok(())
}

/// Whether a slug is held back for another organization.
pub async fn is_held_back(tx: &mut Tx, slug: &str, org: OrgId, now: Timestamp) -> db::Result<bool> {
    let sql = "SELECT slug FROM slug_hold WHERE slug = $1 AND org_id <> $2 AND held_until > $3";
    Ok(tx.opt::<(String,)>(sql, params![slug, org, now]).await?.is_some())
}

/// A name in the form for URLs: letters, digits and hyphens.
pub fn slug_of(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => slug.push(c),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
        if slug.len() == LONGEST_SLUG {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "org".to_owned() } else { slug.to_owned() }
}

/// A slug with random letters at its end, which are unlikely to be taken.
pub fn slug_near(janua: &Janua, slug: &str) -> String {
    format!("{slug}-{}", data_encoding::HEXLOWER.encode(&janua.entropy.bytes::<3>()))
}

/// Leaves room for what makes a taken one unique.
const LONGEST_SLUG: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_slug() {
        for (name, slug) in [
            ("Acme, Inc.", "acme-inc"),
            ("  Große Dinge!  ", "gro-e-dinge"),
            ("日本", "org"),
            ("--a--", "a"),
            (&"x".repeat(100), &"x".repeat(40)),
        ] {
            assert_eq!(slug_of(name), slug);
        }
    }

    #[test]
    fn the_reserved_words_are_slugs_in_order() {
        assert!(RESERVED.is_sorted_by(|a, b| a < b), "looked up by halves");
        assert!(RESERVED.iter().all(|word| is_label(word)), "others are refused anyway");
        for word in [
            "www",
            "api",
            "admin",
            "edge",
            "cdn",
            "mail",
            "ns1",
            "ns2",
            "localhost",
            "static",
            "assets",
            "files",
            "app",
            "apps",
            "auth",
            "account",
            "console",
            "status",
            "docs",
            "help",
            "support",
            "login",
            "oauth",
            "id",
            "sso",
            "smtp",
            "imap",
            "pop",
            "ftp",
            "webmail",
            "autodiscover",
            "autoconfig",
            "wpad",
            "isatap",
            "test",
            "dev",
            "staging",
        ] {
            assert!(check(word).is_err(), "{word}");
        }
    }

    #[test]
    fn a_slug_is_one_label_of_a_host_name() {
        for good in ["a", "shop", "my-shop-2", "2048", "wwww", "xn-a", &"a".repeat(48)] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-",
            "-a",
            "a-",
            "a--b",
            "xn--80ak6aa92e",
            "abc--shop",
            "Shop",
            "sh_op",
            "a.b",
            "b\u{fc}cher",
            "a b",
            &"a".repeat(49),
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
